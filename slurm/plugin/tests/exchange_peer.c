/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One exchange with a socket, for the tests: what the plugin's receiving half
 * makes of a peer, before anything is decoded, where a reply that is refused
 * later looks like one that was never taken.
 *
 *   exchange_peer SOCKET DEADLINE_MS REQUEST_BYTES
 *
 * prints the number of the result, the length of the body, and how many bytes of
 * the answer were written. The answer lies in a block of its exact size, so that
 * a sanitizer sees a write past its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../exchange.h"

#define UNTOUCHED 0xa5

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int64_t deadline_ns = gresize_monotonic_ns() + atol(argv[2]) * INT64_C(1000000);
	size_t request_bytes = strtoul(argv[3], NULL, 10);
	uint8_t *request = calloc(1, request_bytes);
	uint8_t *reply = malloc(GRESIZE_REPLY_FRAME_BYTES);
	uint32_t body_bytes = 0;

	memset(reply, UNTOUCHED, GRESIZE_REPLY_FRAME_BYTES);
	enum gresize_exchange_result result =
		gresize_exchange(argv[1], deadline_ns, request, request_bytes, reply, &body_bytes);
	size_t written = GRESIZE_REPLY_FRAME_BYTES;
	while (written > 0 && reply[written - 1] == UNTOUCHED)
		written--;
	printf("%d %u %zu\n", (int)result, body_bytes, written);
	free(request);
	free(reply);
	return 0;
}
