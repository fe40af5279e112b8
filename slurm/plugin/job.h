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

/* NULL for a job that the daemon should hear of, else why it is left alone. */
const char *gresize_job_skip_reason(const job_desc_msg_t *job);

/* Describes the job. The request points into the job. */
void gresize_job_describe(const job_desc_msg_t *job, uint32_t submit_uid,
			  struct gresize_request *request);

/* Puts the reply into the job: all of it, or (false) nothing. */
bool gresize_job_apply(job_desc_msg_t *job, const struct gresize_reply *reply, time_t now);

#endif
