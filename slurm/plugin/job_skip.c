/* SPDX-License-Identifier: GPL-2.0-or-later */
#define _GNU_SOURCE /* memmem */
#include <string.h>
#include <strings.h>

#include "job.h"

static const char *const gpu_names[] = {"gpu", "shard", "mps"};

/*
 * Does a list of TRES name a GPU? Clients of different releases write gpu:2,
 * gres:gpu:2, gres/gpu:2 and gres/gpu=2.
 */
static bool names_gpu(const char *list)
{
	while (list && *list) {
		if (strncasecmp(list, "gres", 4) == 0 && (list[4] == ':' || list[4] == '/'))
			list += 5;
		size_t length = strcspn(list, ":=,;(");
		for (size_t i = 0; i < sizeof(gpu_names) / sizeof(gpu_names[0]); i++)
			if (length == strlen(gpu_names[i]) &&
			    strncasecmp(list, gpu_names[i], length) == 0)
				return true;
		list += strcspn(list, ",;");
		list += strspn(list, ",;");
	}
	return false;
}

bool gresize_job_asks_for_gpu(const job_desc_msg_t *job)
{
	return names_gpu(job->tres_per_job) || names_gpu(job->tres_per_node) ||
	       names_gpu(job->tres_per_socket) || names_gpu(job->tres_per_task);
}

bool gresize_job_is_probe(const job_desc_msg_t *job)
{
	return !gresize_job_asks_for_gpu(job) && job->name &&
	       strncmp(job->name, GRESIZE_PROBE_NAME_PREFIX, strlen(GRESIZE_PROBE_NAME_PREFIX)) == 0;
}

/* --comment="... gresize:off ...", as a word of its own. */
static bool comment_opts_out(const char *comment)
{
	static const char separators[] = " \t\n,;";
	static const char word[] = "gresize:off";

	while (comment && *comment) {
		size_t length = strcspn(comment, separators);
		if (length == strlen(word) && strncasecmp(comment, word, length) == 0)
			return true;
		comment += length;
		comment += strspn(comment, separators);
	}
	return false;
}

static bool environment_opts_out(const job_desc_msg_t *job)
{
	for (uint32_t i = 0; job->environment && i < job->env_size; i++)
		if (job->environment[i] && strcasecmp(job->environment[i], "GRESIZE=off") == 0)
			return true;
	return false;
}

/* A line "#GRESIZE off", with anything after it. */
static bool script_opts_out(const char *script, size_t length)
{
	static const char directive[] = "#GRESIZE";
	const char *end = script + length;
	const char *at = script;

	while ((at = memmem(at, (size_t)(end - at), directive, strlen(directive)))) {
		bool starts_line = at == script || at[-1] == '\n';
		at += strlen(directive);
		const char *word = at + strspn(at, " \t");
		/* The script ends in a NUL, so these compares stay inside it. */
		if (starts_line && word > at && strncasecmp(word, "off", 3) == 0 &&
		    strchr(" \t\r\n", word[3]))
			return true;
	}
	return false;
}

static bool has_text(const char *text)
{
	return text && *text;
}

const char *gresize_job_skip_reason(const job_desc_msg_t *job)
{
	if (!gresize_job_asks_for_gpu(job))
		return "no_gpu";
	/* First: scrontab leaves the offset of a heterogeneous job at 0. */
	if (job->bitflags & CRON_JOB)
		return "cron";
	/* Before the script: of a heterogeneous batch job only component 0 has it. */
	if (job->het_job_offset != NO_VAL)
		return "het";
	if (!job->script)
		return "no_script";
	if (job->immediate)
		return "immediate";
	if (job->deadline != 0 && job->deadline != (time_t)NO_VAL)
		return "deadline";
	if (has_text(job->clusters) || job->fed_siblings_active || job->fed_siblings_viable)
		return "other_cluster";
	if (has_text(job->burst_buffer))
		return "burst_buffer";
	if (job->priority == 0)
		return "on_hold";
	if (has_text(job->admin_comment) && strstr(job->admin_comment, GRESIZE_TOKEN_PREFIX))
		return "token_present";
	if (comment_opts_out(job->comment) || environment_opts_out(job))
		return "opt_out";

	size_t length = strnlen(job->script, GRESIZE_LOCAL_MAX_SCAN_BYTES + 1);
	if (length > GRESIZE_LOCAL_MAX_SCAN_BYTES)
		return "script_too_large";
	if (script_opts_out(job->script, length))
		return "opt_out";
	return NULL;
}
