/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_EXCHANGE_H
#define GRESIZE_EXCHANGE_H

/*
 * One request out, one reply in, over a unix socket, before a deadline on the
 * monotonic clock. It never blocks past the deadline, whatever the peer does.
 */
#include <stddef.h>
#include <stdint.h>

#include "limits.h"

#define GRESIZE_REPLY_FRAME_BYTES (GRESIZE_HEADER_BYTES + GRESIZE_MAX_REPLY_BYTES)

enum gresize_exchange_result {
	GRESIZE_EXCHANGE_OK,
	GRESIZE_EXCHANGE_NOT_ASKED,   /* this process is out of descriptors or memory */
	GRESIZE_EXCHANGE_UNREACHABLE, /* no socket, nobody listens, backlog full */
	GRESIZE_EXCHANGE_LATE,
	GRESIZE_EXCHANGE_BROKEN,  /* the peer went away in the middle */
	GRESIZE_EXCHANGE_GARBLED, /* not a reply of this protocol version */
};

int64_t gresize_monotonic_ns(void);

/* The reply's body begins at reply + GRESIZE_HEADER_BYTES. */
enum gresize_exchange_result gresize_exchange(const char *socket_path, int64_t deadline_ns,
					      const uint8_t *request, size_t request_bytes,
					      uint8_t reply[GRESIZE_REPLY_FRAME_BYTES],
					      uint32_t *body_bytes);

const char *gresize_exchange_text(enum gresize_exchange_result result);

#endif
