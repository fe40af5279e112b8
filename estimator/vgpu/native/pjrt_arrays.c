/* Keeps which arrays of XLA live on a card and what happened to them. Where the record is full, it ends; which arrays live is known all the same. */
#define _GNU_SOURCE
#include "state.h"
#include "pjrt_arrays.h"

#include <pthread.h>
#include <string.h>

enum {
	MAX_EVENTS = 1 << 19,
	MAX_LIVE = 1 << 17
};

/* The Python layer reads these: arrays.py has the same. */
struct array_event {
	uint64_t address;
	int64_t bytes;
	uint32_t computation;
	uint16_t position, kind;
};

struct live_array {
	const void *handle; /* NULL: a free place */
	uint64_t address;
	int64_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct array_event events[MAX_EVENTS];
static unsigned event_count, lost;
static struct live_array live[MAX_LIVE]; /* open addressing; half of it is never filled */
static unsigned live_count;
static int64_t live_bytes, most_bytes;

static void note(enum gv_array_kind kind, uint64_t address, int64_t bytes, unsigned computation, unsigned position)
{
	if (event_count == MAX_EVENTS) {
		lost++;
		return;
	}
	events[event_count++] = (struct array_event){address, bytes, computation, (uint16_t)(position < UINT16_MAX ? position : UINT16_MAX), (uint16_t)kind};
}

static unsigned home(const void *handle)
{
	return (unsigned)(((uintptr_t)handle >> 4) * 0x9E3779B97F4A7C15u >> 32) % MAX_LIVE;
}

/* The place of a handle, or the free one where it would be. */
static unsigned place(const void *handle)
{
	unsigned at = home(handle);

	while (live[at].handle && live[at].handle != handle)
		at = (at + 1) % MAX_LIVE;
	return at;
}

static void born(enum gv_array_kind kind, const void *handle, uint64_t address, int64_t bytes, unsigned computation, unsigned position)
{
	unsigned at = place(handle);

	if (!live[at].handle && live_count < MAX_LIVE / 2) {
		live[at] = (struct live_array){handle, address, bytes};
		live_count++;
		live_bytes += bytes;
		note(kind, address, bytes, computation, position);
	}
}

void gv_array_moved(const void *handle, uint64_t address, int64_t bytes)
{
	pthread_mutex_lock(&lock);
	born(GV_ARRAY_MOVED, handle, address, bytes, 0, 0);
	pthread_mutex_unlock(&lock);
}

void gv_array_made(const void *handle, uint64_t address, int64_t bytes, unsigned computation, unsigned position)
{
	pthread_mutex_lock(&lock);
	born(GV_ARRAY_MADE, handle, address, bytes, computation, position);
	pthread_mutex_unlock(&lock);
}

void gv_array_used(const void *handle, uint64_t address, int64_t bytes, unsigned computation, unsigned position)
{
	pthread_mutex_lock(&lock);
	born(GV_ARRAY_MOVED, handle, address, bytes, 0, 0); /* one that came by a way that is not watched */
	note(GV_ARRAY_USED, address, bytes, computation, position);
	pthread_mutex_unlock(&lock);
}

int gv_array_known(const void *handle)
{
	int known;

	pthread_mutex_lock(&lock);
	known = live[place(handle)].handle != NULL;
	pthread_mutex_unlock(&lock);
	return known;
}

/* Takes a place out, and brings those that stand behind it and not at their own nearer to it. */
static void take_out(unsigned hole)
{
	unsigned at = hole;

	for (;;) {
		at = (at + 1) % MAX_LIVE;
		if (!live[at].handle)
			break;
		unsigned own = home(live[at].handle);
		if ((at - own) % MAX_LIVE >= (at - hole) % MAX_LIVE) {
			live[hole] = live[at];
			hole = at;
		}
	}
	live[hole] = (struct live_array){NULL, 0, 0};
	live_count--;
}

void gv_array_gone(const void *handle)
{
	unsigned at;

	pthread_mutex_lock(&lock);
	at = place(handle);
	if (live[at].handle) {
		note(GV_ARRAY_GONE, live[at].address, 0, 0, 0);
		live_bytes -= live[at].bytes;
		take_out(at);
	}
	pthread_mutex_unlock(&lock);
}

void gv_execution(enum gv_array_kind kind, unsigned computation, int64_t bytes, int64_t results)
{
	pthread_mutex_lock(&lock);
	note(kind, 0, bytes, computation, 0);
	if (kind == GV_EXECUTION_BEGINS && live_bytes + bytes + results > most_bytes)
		most_bytes = live_bytes + bytes + results;
	pthread_mutex_unlock(&lock);
}

int64_t gv_arrays_most(void)
{
	int64_t most;

	pthread_mutex_lock(&lock);
	most = most_bytes;
	pthread_mutex_unlock(&lock);
	return most;
}

/* ---- for the Python layer */

/* gresize_pjrt_events copies up to room of them, returns how many there are, and says how many had no room here. */
GV_EXPORT unsigned gresize_pjrt_events(struct array_event *to, unsigned room, unsigned *without_room)
{
	unsigned count;

	pthread_mutex_lock(&lock);
	count = event_count;
	*without_room = lost;
	memcpy(to, events, (count < room ? count : room) * sizeof *to);
	pthread_mutex_unlock(&lock);
	return count;
}
