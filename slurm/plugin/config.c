/* SPDX-License-Identifier: GPL-2.0-or-later */
#define _GNU_SOURCE /* syscall */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

void gresize_config_defaults(struct gresize_config *config)
{
	memset(config, 0, sizeof(*config));
	config->enabled = true;
	config->deadline_ms = GRESIZE_LOCAL_DEFAULT_DEADLINE_MS;
	strcpy(config->socket_path, GRESIZE_DEFAULT_SOCKET);
}

static char *trim(char *text)
{
	while (isspace((unsigned char)*text))
		text++;
	size_t length = strlen(text);
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		text[--length] = '\0';
	return text;
}

static const char *set_socket(struct gresize_config *config, const char *value)
{
	if (value[0] != '/')
		return "socket must be an absolute path";
	if (strlen(value) >= sizeof(config->socket_path))
		return "socket must be shorter than 108 bytes, the system's limit";
	strcpy(config->socket_path, value);
	return NULL;
}

static const char *set_deadline(struct gresize_config *config, const char *value)
{
	char *end;

	errno = 0;
	long number = strtol(value, &end, 10);
	if (errno != 0 || end == value || *end != '\0' || number < 1 ||
	    number > GRESIZE_LOCAL_MAX_DEADLINE_MS)
		return "deadline_ms must be a whole number from 1 to 1000";
	config->deadline_ms = (uint32_t)number;
	return NULL;
}

static const char *set_switch(bool *on, const char *value, const char *problem)
{
	if (strcmp(value, "yes") == 0 || strcmp(value, "1") == 0 || strcmp(value, "true") == 0)
		*on = true;
	else if (strcmp(value, "no") == 0 || strcmp(value, "0") == 0 || strcmp(value, "false") == 0)
		*on = false;
	else
		return problem;
	return NULL;
}

static const char *set_line(struct gresize_config *config, char *line)
{
	line = trim(line);
	if (*line == '\0' || *line == '#')
		return NULL;

	char *equals = strchr(line, '=');
	if (!equals)
		return "expected key = value";
	*equals = '\0';
	const char *key = trim(line);
	const char *value = trim(equals + 1);

	if (strcmp(key, "socket") == 0)
		return set_socket(config, value);
	if (strcmp(key, "deadline_ms") == 0)
		return set_deadline(config, value);
	if (strcmp(key, "enabled") == 0)
		return set_switch(&config->enabled, value, "enabled must be yes or no");
	if (strcmp(key, "tell_cpu_jobs") == 0)
		return set_switch(&config->tell_cpu_jobs, value, "tell_cpu_jobs must be yes or no");
	return "unknown key; known are socket, deadline_ms, enabled and tell_cpu_jobs";
}

/*
 * Whoever can write this file can send every job's script and environment to a
 * socket of his own. NULL when the file is safe to believe.
 */
static const char *distrust(const struct stat *status)
{
	if (!S_ISREG(status->st_mode))
		return "it is not a regular file";
	if (status->st_uid != 0 && status->st_uid != geteuid())
		return "it must belong to root or to SlurmUser";
	if (status->st_mode & (S_IWGRP | S_IWOTH))
		return "it must not be writable by group or others";
	if (status->st_size >= GRESIZE_LOCAL_MAX_CONFIG_BYTES)
		return "it is longer than 4095 bytes";
	return NULL;
}

static bool read_file(const char *path, char text[GRESIZE_LOCAL_MAX_CONFIG_BYTES], bool *missing,
		      char *message, size_t message_bytes)
{
	/* O_NONBLOCK: a fifo in this place must not stop slurmctld from starting. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		*missing = errno == ENOENT;
		snprintf(message, message_bytes, "%s: %s", path, strerror(errno));
		return false;
	}

	struct stat status;
	/* Past the C library, where fstat() is a new symbol (see glibc.h); on 64 bits
	 * its struct is the kernel's. */
	const char *problem = syscall(SYS_fstat, fd, &status) != 0 ? strerror(errno) : distrust(&status);
	size_t have = 0;
	while (!problem && have < GRESIZE_LOCAL_MAX_CONFIG_BYTES - 1) {
		ssize_t got = read(fd, text + have, GRESIZE_LOCAL_MAX_CONFIG_BYTES - 1 - have);

		if (got == 0)
			break;
		if (got > 0)
			have += (size_t)got;
		else if (errno != EINTR)
			problem = strerror(errno);
	}
	close(fd);
	text[have] = '\0';
	if (!problem && strlen(text) != have)
		problem = "it holds a NUL byte";
	if (problem)
		snprintf(message, message_bytes, "%s: %s", path, problem);
	return !problem;
}

bool gresize_config_read(struct gresize_config *config, const char *path, char *message,
			 size_t message_bytes)
{
	char text[GRESIZE_LOCAL_MAX_CONFIG_BYTES];
	bool missing = false;

	message[0] = '\0';
	if (!read_file(path, text, &missing, message, message_bytes)) {
		config->enabled = config->enabled && missing;
		return missing;
	}

	char *line = text;
	for (int number = 1; line; number++) {
		char *end = strchr(line, '\n');
		if (end)
			*end = '\0';
		const char *problem = set_line(config, line);
		if (problem) {
			snprintf(message, message_bytes, "%s:%d: %s", path, number, problem);
			config->enabled = false;
			return false;
		}
		line = end ? end + 1 : NULL;
	}
	return true;
}
