/* SPDX-License-Identifier: Apache-2.0 */
#include "cudnn_workspace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_workspace_key.h"
#include "cudnn_workspace_model.h"
#include "cudnn_workspace_planner.h"

enum {
	BUCKETS = 4096,
	/* Beyond this many distinct convolutions the answers are not kept. */
	ENTRIES_MAX = 65536
};

struct entry {
	struct entry *next;
	int plan_count;
	int64_t high_bytes;
	struct gv_plan plans[GV_CONV_MAX_PLANS];
	char key[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gv_cudnn_device device;
static int device_known;
static struct entry *buckets[BUCKETS];
static int entries;
static struct gv_workspace_report totals;

void gv_cudnn_workspace_setup(const struct gv_cudnn_device *described)
{
	pthread_mutex_lock(&lock);
	if (!device_known) {
		device = *described;
		device_known = 1;
	}
	pthread_mutex_unlock(&lock);
}

static unsigned bucket_of(const char *key)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	for (; *key != '\0'; key++)
		hash = (hash ^ (unsigned char)*key) * 1099511628211u;
	return (unsigned)(hash % BUCKETS);
}

static void count_in_report(const struct gv_plan *first, int64_t high_bytes)
{
	int64_t workspace = first->workspace_bytes;
	totals.planned += first->source == GV_WORKSPACE_PLANNED;
	totals.modelled += first->source == GV_WORKSPACE_MODELLED;
	totals.bounded += first->source == GV_WORKSPACE_BOUNDED;
	totals.sum_workspace_bytes += workspace;
	totals.sum_high_bytes += high_bytes;
	if (workspace > totals.max_workspace_bytes)
		totals.max_workspace_bytes = workspace;
	if (high_bytes > totals.max_high_bytes)
		totals.max_high_bytes = high_bytes;
}

static void work_out(const struct gv_conv *conv, const char *key, int key_length, struct entry *e)
{
	int room = GV_CONV_MAX_PLANS - 1;
	e->plan_count = gv_planner_plans(&device, key, key_length, e->plans, room);
	if (e->plan_count > 0)
		e->high_bytes = e->plans[0].workspace_bytes;
	else
		e->plan_count = gv_model_plans(&device, conv, e->plans, room, &e->high_bytes);
	if (e->plans[e->plan_count - 1].workspace_bytes > 0) {
		struct gv_plan *last = &e->plans[e->plan_count];
		*last = e->plans[e->plan_count - 1];
		last->workspace_bytes = 0;
		last->notes = 0;
		e->plan_count++;
	}
}

/* The entry of a convolution, made when it is new; the lock is held. */
static const struct entry *look_up(const struct gv_conv *conv)
{
	static struct entry malformed = {.plan_count = 1, .plans = {{.source = GV_WORKSPACE_BOUNDED}}};
	char key[GV_CONV_KEY_MAX_BYTES];
	int length = gv_conv_key(conv, key, sizeof key);
	unsigned bucket;
	struct entry *e;

	if (length == 0 || !device_known)
		return &malformed;
	bucket = bucket_of(key);
	for (e = buckets[bucket]; e != NULL; e = e->next)
		if (strcmp(e->key, key) == 0)
			return e;
	if (entries == ENTRIES_MAX)
		return &malformed;
	e = calloc(1, sizeof *e + (size_t)length + 1);
	if (e == NULL)
		return &malformed;
	memcpy(e->key, key, (size_t)length);
	work_out(conv, key, length, e);
	count_in_report(&e->plans[0], e->high_bytes);
	e->next = buckets[bucket];
	buckets[bucket] = e;
	entries++;
	return e;
}

int gv_cudnn_plans(const struct gv_conv *conv, struct gv_plan *plans, int max)
{
	int count;
	pthread_mutex_lock(&lock);
	const struct entry *e = look_up(conv);
	count = e->plan_count < max ? e->plan_count : max;
	memcpy(plans, e->plans, (size_t)count * sizeof *plans);
	pthread_mutex_unlock(&lock);
	return count;
}

int64_t gv_cudnn_workspace(const struct gv_conv *conv)
{
	pthread_mutex_lock(&lock);
	int64_t bytes = look_up(conv)->plans[0].workspace_bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

int64_t gv_cudnn_workspace_high(const struct gv_conv *conv)
{
	pthread_mutex_lock(&lock);
	int64_t bytes = look_up(conv)->high_bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

void gv_cudnn_workspace_report(struct gv_workspace_report *report)
{
	pthread_mutex_lock(&lock);
	*report = totals;
	pthread_mutex_unlock(&lock);
}
