/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_CONFIG_H
#define GRESIZE_CONFIG_H

/*
 * plugin.conf: key = value lines, read once when slurmctld loads the plugin.
 *
 *   socket = /run/gresize/submit.sock    where gresized listens
 *   deadline_ms = 50                     what a submission may lose, 1 to 1000
 *   enabled = yes                        no: the plugin does nothing
 *   tell_cpu_jobs = no                   yes: jobs without a GPU are told too, so that the log has a row for each
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"

#define GRESIZE_CONFIG_PATH "/etc/gresize/plugin.conf"
#define GRESIZE_CONFIG_ENV "GRESIZE_PLUGIN_CONF"
#define GRESIZE_DEFAULT_SOCKET "/run/gresize/submit.sock"

struct gresize_config {
	bool enabled;
	bool tell_cpu_jobs;
	uint32_t deadline_ms;
	char socket_path[GRESIZE_LOCAL_MAX_SOCKET_PATH_BYTES];
};

void gresize_config_defaults(struct gresize_config *config);

/*
 * Reads the file over the defaults. A missing file is no error. On error the
 * config is switched off, because what the site wanted is not known, and the
 * message says which line of which file and why.
 */
bool gresize_config_read(struct gresize_config *config, const char *path, char *message,
			 size_t message_bytes);

#endif
