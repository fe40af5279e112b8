/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_SLURMAPI_H
#define GRESIZE_SLURMAPI_H

/*
 * What the plugin uses of Slurm: the public headers, and four functions that
 * every slurmctld since 20.11 exports and no public header declares.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
/* 20.11 defines it in slurm.h and has no such header; another release may be installed, too. */
#ifndef SLURM_VERSION_NUMBER
#include <slurm/slurm_version.h>
#endif

/*
 * slurmctld frees the strings of a job with slurm_xfree, which expects its own
 * header before the bytes: only memory from slurm_xcalloc may be put there.
 * With try set it returns NULL where it would otherwise end the process.
 */
void *slurm_xcalloc(size_t count, size_t size, bool clear, bool try,
		    const char *file, int line, const char *function);
void slurm_xfree(void **pointer);

/* The version of the running Slurm, as far as version.c can tell. */
extern uint32_t plugin_version;

void slurm_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
int slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
