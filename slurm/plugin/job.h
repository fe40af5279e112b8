/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_JOB_H
#define GRESIZE_JOB_H

/*
 * Everything that reads or writes a job_desc_msg_t: which jobs are told to the
 * daemon, what is told, and how its answer is put into the job.
 */
#include <stdbool.h>
#include <time.h>

#include "codec.h"
#include "slurmapi.h"

#define GRESIZE_TOKEN_PREFIX "gresize:v1:"

/* Does it ask for a GPU? The daemon hears of no other job. */
bool gresize_job_asks_for_gpu(const job_desc_msg_t *job);

/* Is it a probe of gresized, by its name? Those are told to nobody. */
#define GRESIZE_PROBE_NAME_PREFIX "gresize-probe-"
bool gresize_job_is_probe(const job_desc_msg_t *job);

/* Why a job with a GPU is left alone, in the words of FORMAT.md, or NULL. */
const char *gresize_job_skip_reason(const job_desc_msg_t *job);

/* Describes the job. The request points into the job. With a reason to skip it,
 * the script, its arguments and the environment stay out. */
void gresize_job_describe(const job_desc_msg_t *job, uint32_t submit_uid, const char *skip_reason,
			  struct gresize_request *request);

/* Puts the reply into the job: all of it, or (false) nothing. */
bool gresize_job_apply(job_desc_msg_t *job, const struct gresize_reply *reply, time_t now);

#endif
