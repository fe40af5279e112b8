/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <string.h>

#include "job.h"

/* The texts that a reply may replace, and where they stand on both sides. */
static const struct {
	size_t in_reply;
	size_t in_job;
} rewritable[] = {
#define REWRITABLE(member) \
	{offsetof(struct gresize_reply, member), offsetof(job_desc_msg_t, member)}
	/* clang-format off */
	REWRITABLE(features),        REWRITABLE(tres_per_job),  REWRITABLE(tres_per_node),
	REWRITABLE(tres_per_socket), REWRITABLE(tres_per_task), REWRITABLE(cpus_per_tres),
	REWRITABLE(mem_per_tres),
/* clang-format on */
#undef REWRITABLE
};

#define REWRITABLE_TEXTS (sizeof(rewritable) / sizeof(rewritable[0]))

/* New values, complete before the first is put into the job. */
struct staged {
	char *texts[REWRITABLE_TEXTS];
	char *admin_comment;
};

static char *slurm_string(size_t length)
{
	return slurm_xcalloc(length + 1, 1, true, true, __FILE__, __LINE__, __func__);
}

static void release(char **string)
{
	slurm_xfree((void **)string);
}

static const struct gresize_text *reply_text(const struct gresize_reply *reply, size_t i)
{
	return (const struct gresize_text *)((const char *)reply + rewritable[i].in_reply);
}

static char **job_text(job_desc_msg_t *job, size_t i)
{
	return (char **)((char *)job + rewritable[i].in_job);
}

static bool stage_texts(const struct gresize_reply *reply, struct staged *staged)
{
	for (size_t i = 0; i < REWRITABLE_TEXTS; i++) {
		const struct gresize_text *text = reply_text(reply, i);

		if (!text->bytes || text->length == 0)
			continue;
		staged->texts[i] = slurm_string(text->length);
		if (!staged->texts[i])
			return false;
		memcpy(staged->texts[i], text->bytes, text->length);
	}
	return true;
}

/* What the site wrote there stays, before a comma. */
static bool stage_admin_comment(const job_desc_msg_t *job, const struct gresize_reply *reply,
				struct staged *staged)
{
	const char *old = job->admin_comment ? job->admin_comment : "";
	const char *separator = *old ? "," : "";
	size_t before = strlen(old) + strlen(separator) + strlen(GRESIZE_TOKEN_PREFIX);

	staged->admin_comment = slurm_string(before + reply->token.length);
	if (!staged->admin_comment)
		return false;
	strcat(strcat(strcpy(staged->admin_comment, old), separator), GRESIZE_TOKEN_PREFIX);
	memcpy(staged->admin_comment + before, reply->token.bytes, reply->token.length);
	return true;
}

static void discard(struct staged *staged)
{
	for (size_t i = 0; i < REWRITABLE_TEXTS; i++)
		release(&staged->texts[i]);
	release(&staged->admin_comment);
}

static bool dropped(const char *variable, const struct gresize_reply *reply)
{
	for (uint32_t i = 0; i < reply->env_drop_count; i++) {
		const struct gresize_text *name = &reply->env_drop[i];

		if (strncmp(variable, name->bytes, name->length) == 0 &&
		    variable[name->length] == '=')
			return true;
	}
	return false;
}

static uint32_t variables_left(const job_desc_msg_t *job, const struct gresize_reply *reply)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < job->env_size; i++)
		if (!dropped(job->environment[i], reply))
			left++;
	return left;
}

/* slurmctld refuses a batch job without any environment. */
static bool can_drop_variables(const job_desc_msg_t *job, const struct gresize_reply *reply)
{
	if (reply->env_drop_count == 0)
		return true;
	if (!job->environment)
		return false;
	for (uint32_t i = 0; i < job->env_size; i++)
		if (!job->environment[i])
			return false;
	return variables_left(job, reply) > 0;
}

static void drop_variables(job_desc_msg_t *job, const struct gresize_reply *reply)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < job->env_size; i++) {
		char *variable = job->environment[i];

		job->environment[i] = NULL;
		if (dropped(variable, reply))
			release(&variable);
		else
			job->environment[kept++] = variable;
	}
	job->env_size = kept;
}

static void commit(job_desc_msg_t *job, const struct gresize_reply *reply, struct staged *staged,
		   time_t now)
{
	for (size_t i = 0; i < REWRITABLE_TEXTS; i++) {
		if (!reply_text(reply, i)->bytes)
			continue;
		release(job_text(job, i));
		*job_text(job, i) = staged->texts[i];
	}
	if (reply->pn_min_memory.set)
		job->pn_min_memory = reply->pn_min_memory.value;
	if (reply->pn_min_cpus.set)
		job->pn_min_cpus = (uint16_t)reply->pn_min_cpus.value;
	if (reply->min_cpus.set)
		job->min_cpus = (uint32_t)reply->min_cpus.value;

	if (reply->verdict != GRESIZE_VERDICT_HOLD)
		return;
	release(&job->admin_comment);
	job->admin_comment = staged->admin_comment;
	if (reply->env_drop_count > 0)
		drop_variables(job, reply);
	time_t until = now + (time_t)reply->hold_seconds;
	if (reply->hold_seconds > 0 && job->begin_time < until)
		job->begin_time = until;
}

bool gresize_job_apply(job_desc_msg_t *job, const struct gresize_reply *reply, time_t now)
{
	struct staged staged = {0};
	bool hold = reply->verdict == GRESIZE_VERDICT_HOLD;

	if (reply->verdict == GRESIZE_VERDICT_PASS)
		return true;
	if ((hold && !can_drop_variables(job, reply)) || !stage_texts(reply, &staged) ||
	    (hold && !stage_admin_comment(job, reply, &staged))) {
		discard(&staged);
		return false;
	}
	commit(job, reply, &staged, now);
	return true;
}
