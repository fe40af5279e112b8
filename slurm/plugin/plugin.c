/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * job_submit/gresize: tells gresized of every batch job that asks for a GPU and
 * does what it answers. slurmctld calls it with locks held, so it is bounded in
 * time by a deadline and a breaker, and whatever goes wrong, the job stays
 * exactly as it was and its owner sees nothing.
 */
#include <stdlib.h>
#include <time.h>

#include "breaker.h"
#include "codec.h"
#include "config.h"
#include "exchange.h"
#include "job.h"
#include "slurmapi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT const char plugin_name[] = "gresize: GPU requests to measure";
EXPORT const char plugin_type[] = "job_submit/gresize";
EXPORT uint32_t plugin_version = SLURM_VERSION_NUMBER; /* see version.c */

EXPORT int init(void);
EXPORT int fini(void);
EXPORT int job_submit(job_desc_msg_t *job, uint32_t submit_uid, char **error_message);
#if SLURM_VERSION_NUMBER >= 0x170200 /* 23.02 */
EXPORT int job_modify(job_desc_msg_t *job, void *record, uint32_t submit_uid, char **error_message);
#else
EXPORT int job_modify(job_desc_msg_t *job, void *record, uint32_t submit_uid);
#endif

/* Written by init() before the first call of job_submit(), then only read. */
static struct gresize_config config;

static struct gresize_breaker breaker;

int init(void)
{
	const char *path = getenv(GRESIZE_CONFIG_ENV);
	char message[512];

	if (!path || !*path)
		path = GRESIZE_CONFIG_PATH;
	gresize_config_defaults(&config);
	if (!gresize_config_read(&config, path, message, sizeof(message)))
		slurm_error("job_submit/gresize: %s; the plugin stays off", message);
	else if (!config.enabled)
		slurm_info("job_submit/gresize: off, as %s says", path);
	else
		slurm_info("job_submit/gresize: asks %s, waits %u ms at most", config.socket_path,
			   config.deadline_ms);
	return SLURM_SUCCESS; /* anything else would stop slurmctld */
}

int fini(void)
{
	return SLURM_SUCCESS;
}

static void report_failure(enum gresize_exchange_result result, enum gresize_ticket ticket)
{
	int64_t pause_ms = gresize_breaker_failure(&breaker, ticket, gresize_monotonic_ns());

	/* One line a pause, however many jobs are submitted meanwhile. */
	if (pause_ms > 0)
		slurm_error("job_submit/gresize: gresized at %s %s; jobs pass unchanged, "
			    "next try in %lld s",
			    config.socket_path, gresize_exchange_text(result),
			    (long long)(pause_ms / 1000));
}

static enum gresize_exchange_result ask(const struct gresize_request *request, size_t frame_bytes,
					int64_t deadline_ns,
					uint8_t answer[GRESIZE_REPLY_FRAME_BYTES],
					struct gresize_reply *reply)
{
	uint32_t body_bytes = 0;
	uint8_t *frame = malloc(frame_bytes);

	if (!frame)
		return GRESIZE_EXCHANGE_NOT_ASKED;
	gresize_encode_request(request, frame);
	enum gresize_exchange_result result = gresize_exchange(
		config.socket_path, deadline_ns, frame, frame_bytes, answer, &body_bytes);
	free(frame);
	if (result == GRESIZE_EXCHANGE_OK &&
	    !gresize_decode_reply(answer + GRESIZE_HEADER_BYTES, body_bytes, reply))
		return GRESIZE_EXCHANGE_GARBLED;
	return result;
}

static void consider(job_desc_msg_t *job, uint32_t submit_uid)
{
	int64_t start_ns = gresize_monotonic_ns();
	int64_t deadline_ns = start_ns + (int64_t)config.deadline_ms * 1000000;

	if ((!gresize_job_asks_for_gpu(job) && !config.tell_cpu_jobs) ||
	    gresize_job_is_probe(job) || gresize_breaker_paused(&breaker, start_ns))
		return;

	const char *skip_reason = gresize_job_skip_reason(job);
	struct gresize_request request;
	gresize_job_describe(job, submit_uid, skip_reason, &request);
	size_t frame_bytes = gresize_request_size(&request);
	if (frame_bytes == 0)
		return;

	enum gresize_ticket ticket = gresize_breaker_ask(&breaker, start_ns);
	if (ticket == GRESIZE_TICKET_NONE)
		return;

	uint8_t answer[GRESIZE_REPLY_FRAME_BYTES];
	struct gresize_reply reply;
	enum gresize_exchange_result result =
		ask(&request, frame_bytes, deadline_ns, answer, &reply);
	/* The breaker counts what gresized did wrong, and nothing of this submission or of slurmctld. */
	if (result == GRESIZE_EXCHANGE_NOT_ASKED)
		return;
	if (result != GRESIZE_EXCHANGE_OK) {
		report_failure(result, ticket);
		return;
	}
	if (gresize_breaker_success(&breaker))
		slurm_info("job_submit/gresize: gresized at %s answers again", config.socket_path);
	if (!skip_reason)
		gresize_job_apply(job, &reply, time(NULL));
}

int job_submit(job_desc_msg_t *job, uint32_t submit_uid, char **error_message)
{
	(void)error_message;
	if (job && config.enabled)
		consider(job, submit_uid);
	return SLURM_SUCCESS;
}

/* Called under slurmctld's write locks, for the daemon's own updates too. */
#if SLURM_VERSION_NUMBER >= 0x170200
int job_modify(job_desc_msg_t *job, void *record, uint32_t submit_uid, char **error_message)
{
	(void)error_message;
#else
int job_modify(job_desc_msg_t *job, void *record, uint32_t submit_uid)
{
#endif
	(void)job;
	(void)record;
	(void)submit_uid;
	return SLURM_SUCCESS;
}
