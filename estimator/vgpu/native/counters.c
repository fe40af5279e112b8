/*
 * What this process asked of the virtual GPU, counted: the ground floor, which calls nobody. report.c reads it, and is
 * told of a first symbol without an answer.
 */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>
#include <string.h>

enum {
	MAX_LOOKUPS = 64,
	LOOKUP_BYTES = 96
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gv_counts counts;
static struct {
	struct gv_unanswered symbol;
	char name[LOOKUP_BYTES];
} lookups[MAX_LOOKUPS];
static unsigned lookup_count;

void (*gv_on_unanswered)(void);

static uint64_t load(uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void add(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

struct gv_counts gv_counts(void)
{
	struct gv_counts now;

	pthread_mutex_lock(&lock);
	now = counts;
	pthread_mutex_unlock(&lock);
	return now;
}

void gv_count_handle(enum gv_library library)
{
	add(&counts.handles[library]);
}

void gv_count_small_read(void)
{
	add(&counts.small_reads);
}

void gv_count_large_read(void)
{
	add(&counts.large_reads);
}

void gv_count_check(void)
{
	add(&counts.checks);
}

void gv_count_true_read(void)
{
	add(&counts.true_reads);
}

void gv_bounded(enum gv_bound bound, uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	counts.bounds[bound].calls++;
	if (bytes > counts.bounds[bound].largest)
		counts.bounds[bound].largest = bytes;
	pthread_mutex_unlock(&lock);
}

/* of_size is the entry for groups of that size; where there are too many sizes, the last entry holds the largest of them. */
static int of_size(int ranks)
{
	int i = 0;

	while (i < GV_COMMUNICATOR_SIZES - 1 && counts.communicators[i].made && counts.communicators[i].ranks != ranks)
		i++;
	if (ranks > counts.communicators[i].ranks)
		counts.communicators[i].ranks = ranks;
	return i;
}

void gv_communicator(int ranks)
{
	pthread_mutex_lock(&lock);
	counts.communicators[of_size(ranks)].made++;
	pthread_mutex_unlock(&lock);
}

void gv_communicator_peer(int ranks)
{
	pthread_mutex_lock(&lock);
	counts.communicators[of_size(ranks)].peers++;
	pthread_mutex_unlock(&lock);
}

GV_EXPORT uint64_t gresize_vgpu_values_read_back(void)
{
	return load(&counts.small_reads);
}

/* gresize_vgpu_arrays_read_back counts reads of more than a few numbers that a kernel would have computed. */
GV_EXPORT uint64_t gresize_vgpu_arrays_read_back(void)
{
	return load(&counts.large_reads);
}

/* gresize_vgpu_unknown_reads counts reads of any size that were not answered by what the host had put there. */
GV_EXPORT uint64_t gresize_vgpu_unknown_reads(void)
{
	return load(&counts.small_reads) + load(&counts.large_reads) + load(&counts.checks);
}

static void count_unanswered(struct gv_unanswered *symbol)
{
	bool first;

	pthread_mutex_lock(&lock);
	first = symbol->calls++ == 0;
	if (first) {
		symbol->next = counts.unanswered;
		counts.unanswered = symbol;
	}
	pthread_mutex_unlock(&lock);
	if (first && gv_on_unanswered)
		gv_on_unanswered();
}

void gv_unanswered(struct gv_unanswered *symbol)
{
	if (__atomic_load_n(&symbol->calls, __ATOMIC_RELAXED))
		add(&symbol->calls);
	else
		count_unanswered(symbol);
}

static bool plain(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < length; i++) {
		char c = name[i];
		if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
			return false;
	}
	return length > 0 && length < LOOKUP_BYTES;
}

void gv_unanswered_name(const char *name)
{
	struct gv_unanswered *symbol = NULL;

	if (!plain(name))
		return;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < lookup_count && !symbol; i++)
		symbol = strcmp(lookups[i].name, name) ? NULL : &lookups[i].symbol;
	if (!symbol && lookup_count < MAX_LOOKUPS) {
		memcpy(lookups[lookup_count].name, name, strlen(name) + 1);
		symbol = &lookups[lookup_count].symbol;
		symbol->name = lookups[lookup_count++].name;
	}
	pthread_mutex_unlock(&lock);
	if (symbol)
		gv_unanswered(symbol);
}

void gv_counters_fork(int stage)
{
	if (stage == GV_FORK_PREPARE) {
		pthread_mutex_lock(&lock);
		return;
	}
	if (stage == GV_FORK_CHILD) { /* what the parent did is in the parent's report */
		for (struct gv_unanswered *u = counts.unanswered, *next; u; u = next) {
			next = u->next;
			u->calls = 0;
			u->next = NULL;
		}
		memset(&counts, 0, sizeof counts);
	}
	pthread_mutex_unlock(&lock);
}
