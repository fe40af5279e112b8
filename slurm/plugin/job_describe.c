/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <string.h>

#include "job.h"

static struct gresize_number number(uint64_t value)
{
	return (struct gresize_number){.set = true, .value = value};
}

static struct gresize_number unless(uint64_t value, uint64_t unset)
{
	return (struct gresize_number){.set = value != unset, .value = value};
}

/* A time: "not given" travels as 0. */
static struct gresize_number unix_time(time_t value)
{
	return number(value > 0 && value != (time_t)NO_VAL ? (uint64_t)value : 0);
}

static struct gresize_text text(const char *bytes)
{
	return (struct gresize_text){.bytes = bytes, .length = bytes ? strlen(bytes) : 0};
}

/* The leading entries that fit, cut between two entries. */
static struct gresize_list leading(char **entries, uint32_t count, size_t max_bytes)
{
	size_t bytes = 0;
	uint32_t fit = 0;

	if (!entries)
		return (struct gresize_list){0};
	while (fit < count && fit < GRESIZE_MAX_LIST_ENTRIES && entries[fit]) {
		bytes += 4 + strlen(entries[fit]);
		if (bytes > max_bytes)
			break;
		fit++;
	}
	return (struct gresize_list){.entries = entries, .count = fit};
}

static uint64_t flags(const job_desc_msg_t *job)
{
	uint64_t bits = 0;

	if (job->shared == JOB_SHARED_NONE)
		bits |= GRESIZE_FLAG_EXCLUSIVE;
	if (job->shared == JOB_SHARED_OK)
		bits |= GRESIZE_FLAG_OVERSUBSCRIBE;
	if (job->requeue == 1)
		bits |= GRESIZE_FLAG_REQUEUE;
	if (job->requeue == 0)
		bits |= GRESIZE_FLAG_NO_REQUEUE;
	if (job->overcommit == 1)
		bits |= GRESIZE_FLAG_OVERCOMMIT;
	if (job->contiguous == 1)
		bits |= GRESIZE_FLAG_CONTIGUOUS;
	return bits;
}

static void describe_texts(const job_desc_msg_t *job, struct gresize_request *request)
{
	request->name = text(job->name);
	request->partition = text(job->partition);
	request->account = text(job->account);
	request->qos = text(job->qos);
	request->reservation = text(job->reservation);
	request->features = text(job->features);
#if SLURM_VERSION_NUMBER >= 0x160500 /* 22.05 */
	request->prefer = text(job->prefer);
#endif
	request->tres_per_job = text(job->tres_per_job);
	request->tres_per_node = text(job->tres_per_node);
	request->tres_per_socket = text(job->tres_per_socket);
	request->tres_per_task = text(job->tres_per_task);
	request->cpus_per_tres = text(job->cpus_per_tres);
	request->mem_per_tres = text(job->mem_per_tres);
	request->array_inx = text(job->array_inx);
	request->comment = text(job->comment);
	request->admin_comment = text(job->admin_comment);
	request->dependency = text(job->dependency);
	request->licenses = text(job->licenses);
	request->work_dir = text(job->work_dir);
	request->req_nodes = text(job->req_nodes);
	request->exc_nodes = text(job->exc_nodes);
}

static void describe_numbers(const job_desc_msg_t *job, struct gresize_request *request)
{
	request->begin_time = unix_time(job->begin_time);
	request->deadline = unix_time(job->deadline);
	request->pn_min_memory = unless(job->pn_min_memory, NO_VAL64);
	request->pn_min_cpus = unless(job->pn_min_cpus, NO_VAL16);
	request->min_cpus = unless(job->min_cpus, NO_VAL);
	request->min_nodes = unless(job->min_nodes, NO_VAL);
	request->max_nodes = unless(job->max_nodes, NO_VAL);
	request->num_tasks = unless(job->num_tasks, NO_VAL);
	request->cpus_per_task = unless(job->cpus_per_task, NO_VAL16);
	request->ntasks_per_node = unless(job->ntasks_per_node, NO_VAL16);
	request->ntasks_per_tres = unless(job->ntasks_per_tres, NO_VAL16);
	request->time_limit = unless(job->time_limit, NO_VAL);
	request->priority = unless(job->priority, NO_VAL);
}

static void describe_contents(const job_desc_msg_t *job, struct gresize_request *request)
{
	uint32_t argc = job->argv ? job->argc : 0;
	uint32_t env_size = job->environment ? job->env_size : 0;

	request->argv_total = number(argc);
	request->environment_total = number(env_size);
	request->script_total = number(job->script ? strlen(job->script) : 0);
	if (request->skip_reason.bytes)
		return;

	request->argv = leading(job->argv, argc, GRESIZE_MAX_ARGV_BYTES);
	request->script = text(job->script);
	if (request->script.length > GRESIZE_MAX_SCRIPT_BYTES)
		request->script.length = GRESIZE_MAX_SCRIPT_BYTES;

	request->environment = leading(job->environment, env_size, GRESIZE_MAX_ENVIRONMENT_BYTES);
}

void gresize_job_describe(const job_desc_msg_t *job, uint32_t submit_uid, const char *skip_reason,
			  struct gresize_request *request)
{
	memset(request, 0, sizeof(*request));
	request->slurm_version = number(plugin_version);
	request->submit_uid = number(submit_uid);
	request->user_id = number(job->user_id);
	request->group_id = number(job->group_id);
	request->flags = number(flags(job));
	request->skip_reason = text(skip_reason);
	describe_texts(job, request);
	describe_numbers(job, request);
	describe_contents(job, request);
}
