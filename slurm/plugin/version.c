/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slurmctld loads a plugin only when plugin_version equals its own version, the
 * micro number included, and does not start otherwise: after a micro upgrade a
 * plugin that was not rebuilt would take the controller down. Inside one
 * major.minor the layout of a job never changes, so the plugin takes over the
 * number of the plugins that lie beside the Slurm library in this process.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "glibc.h"
#include "slurmapi.h"

#define MICRO_MASK 0xffu

/* Plugins that every Slurm has; the first that opens tells the version. */
static const char *const neighbours[] = {
	"job_submit_logging.so",
	"job_submit_all_partitions.so",
	"job_submit_require_timelimit.so",
};

static uint32_t version_of(const char *path)
{
	void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!handle)
		return 0;

	const uint32_t *symbol = dlsym(handle, "plugin_version");
	uint32_t version = symbol ? *symbol : 0;
	dlclose(handle);
	return version;
}

static bool neighbour_path(char *path, size_t path_bytes, const char *library, const char *name)
{
	const char *slash = strrchr(library, '/');
	if (!slash)
		return false;

	int length = snprintf(path, path_bytes, "%.*s/%s", (int)(slash - library), library, name);
	return length > 0 && (size_t)length < path_bytes;
}

__attribute__((constructor)) static void adopt_running_version(void)
{
	Dl_info library;
	char path[4096];

	if (!dladdr((void *)slurm_xfree, &library) || !library.dli_fname)
		return;
	for (size_t i = 0; i < sizeof(neighbours) / sizeof(neighbours[0]); i++) {
		if (!neighbour_path(path, sizeof(path), library.dli_fname, neighbours[i]))
			continue;
		uint32_t running = version_of(path);
		if (running == 0)
			continue;
		if ((running & ~MICRO_MASK) == (plugin_version & ~MICRO_MASK))
			plugin_version = running;
		return;
	}
}
