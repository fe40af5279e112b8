/* SPDX-License-Identifier: GPL-2.0-or-later */
#define _GNU_SOURCE /* ppoll */
#include "exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "codec.h"

#define NS_PER_SECOND INT64_C(1000000000)

int64_t gresize_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS_PER_SECOND + now.tv_nsec;
}

/* Waits until the socket is ready. False when the deadline came first. */
static bool wait_for(int fd, short events, int64_t deadline_ns)
{
	for (;;) {
		int64_t left = deadline_ns - gresize_monotonic_ns();
		if (left <= 0)
			return false;

		struct pollfd poll_fd = {.fd = fd, .events = events};
		struct timespec timeout = {.tv_sec = left / NS_PER_SECOND,
					   .tv_nsec = left % NS_PER_SECOND};
		int ready = ppoll(&poll_fd, 1, &timeout, NULL);
		if (ready > 0)
			return true;
		if (ready < 0 && errno != EINTR && errno != EAGAIN)
			return false;
	}
}

static bool again(void)
{
	return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Is the cause here, and not with the peer? */
static bool own_want(void)
{
	return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
}

/*
 * A blocking connect() to a socket with a full backlog waits for ever, and with
 * socket activation a dead daemon queues instead of refusing. So: non-blocking,
 * and a full backlog is a failure at once.
 */
static enum gresize_exchange_result connect_to(const char *path, int *connected)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);

	if (length >= sizeof(address.sun_path))
		return GRESIZE_EXCHANGE_UNREACHABLE;
	memcpy(address.sun_path, path, length);

	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return own_want() ? GRESIZE_EXCHANGE_NOT_ASKED : GRESIZE_EXCHANGE_UNREACHABLE;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
		bool own = own_want();

		close(fd);
		return own ? GRESIZE_EXCHANGE_NOT_ASKED : GRESIZE_EXCHANGE_UNREACHABLE;
	}
	*connected = fd;
	return GRESIZE_EXCHANGE_OK;
}

static enum gresize_exchange_result send_all(int fd, int64_t deadline_ns, const uint8_t *bytes,
					     size_t left)
{
	while (left > 0) {
		ssize_t sent = send(fd, bytes, left, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0) {
			bytes += sent;
			left -= (size_t)sent;
			/* A peer that drains slowly never makes send() wait. */
			if (left > 0 && gresize_monotonic_ns() >= deadline_ns)
				return GRESIZE_EXCHANGE_LATE;
		} else if (!again()) {
			return own_want() ? GRESIZE_EXCHANGE_NOT_ASKED : GRESIZE_EXCHANGE_BROKEN;
		} else if (!wait_for(fd, POLLOUT, deadline_ns)) {
			return GRESIZE_EXCHANGE_LATE;
		}
	}
	return GRESIZE_EXCHANGE_OK;
}

static enum gresize_exchange_result receive_reply(int fd, int64_t deadline_ns,
						  uint8_t reply[GRESIZE_REPLY_FRAME_BYTES],
						  uint32_t *body_bytes)
{
	size_t have = 0;

	for (;;) {
		ssize_t got = recv(fd, reply + have, GRESIZE_REPLY_FRAME_BYTES - have, MSG_DONTWAIT);

		if (got == 0)
			return GRESIZE_EXCHANGE_BROKEN;
		if (got < 0) {
			if (!again())
				return GRESIZE_EXCHANGE_BROKEN;
			if (!wait_for(fd, POLLIN, deadline_ns))
				return GRESIZE_EXCHANGE_LATE;
			continue;
		}
		have += (size_t)got;
		if (have < GRESIZE_HEADER_BYTES)
			continue;
		if (!gresize_decode_header(reply, GRESIZE_KIND_REPLY, GRESIZE_MAX_REPLY_BYTES,
					   body_bytes))
			return GRESIZE_EXCHANGE_GARBLED;
		if (have >= GRESIZE_HEADER_BYTES + (size_t)*body_bytes)
			return GRESIZE_EXCHANGE_OK;
	}
}

enum gresize_exchange_result gresize_exchange(const char *socket_path, int64_t deadline_ns,
					      const uint8_t *request, size_t request_bytes,
					      uint8_t reply[GRESIZE_REPLY_FRAME_BYTES],
					      uint32_t *body_bytes)
{
	int fd;
	enum gresize_exchange_result result = connect_to(socket_path, &fd);
	if (result != GRESIZE_EXCHANGE_OK)
		return result;

	result = send_all(fd, deadline_ns, request, request_bytes);
	if (result == GRESIZE_EXCHANGE_OK)
		result = receive_reply(fd, deadline_ns, reply, body_bytes);
	close(fd);
	return result;
}

const char *gresize_exchange_text(enum gresize_exchange_result result)
{
	switch (result) {
	case GRESIZE_EXCHANGE_OK:
		return "answered";
	case GRESIZE_EXCHANGE_NOT_ASKED:
		return "was not asked: slurmctld is out of descriptors or memory";
	case GRESIZE_EXCHANGE_UNREACHABLE:
		return "cannot be reached";
	case GRESIZE_EXCHANGE_LATE:
		return "did not answer in time";
	case GRESIZE_EXCHANGE_BROKEN:
		return "closed the connection without an answer";
	case GRESIZE_EXCHANGE_GARBLED:
		return "gave an answer that this plugin does not understand";
	}
	return "failed";
}
