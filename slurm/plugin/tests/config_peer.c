/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The reader of plugin.conf for its fuzz target: takes texts from standard input,
 * each after its length in four bytes, and answers each with a line: the result,
 * the values, and the message in hex.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../config.h"

int main(void)
{
	unsigned char head[4];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fread(head, sizeof(head), 1, stdin) == 1) {
		size_t length = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];
		char *text = malloc(length + 1), path[64], message[256];
		struct gresize_config config;

		if (!text || (length > 0 && fread(text, length, 1, stdin) != 1))
			return 2;
		int fd = memfd_create("plugin.conf", 0);
		if (fd < 0 || fchmod(fd, 0600) != 0 || write(fd, text, length) != (ssize_t)length)
			return 2;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		gresize_config_defaults(&config);
		bool read = gresize_config_read(&config, path, message, sizeof(message));
		printf("%d %d %u %d %zu m", read, config.enabled, config.deadline_ms, config.socket_path[0] == '/',
		       strlen(config.socket_path));
		for (const char *at = message; *at; at++)
			printf("%02x", (unsigned char)*at);
		putchar('\n');
		close(fd);
		free(text);
	}
	return 0;
}
