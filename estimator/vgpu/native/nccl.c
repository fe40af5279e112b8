/* libnccl: communicators. What goes through them is in nccl_collective.c. */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	INVALID_ARGUMENT = 4,
	MOST_RANKS = 1 << 20
};
struct unique_id { char bytes[EXCHANGE_ID_BYTES]; };

/* ---- which ranks exist as processes */

static __thread struct {
	int ranks;
	bool *present;
} coming;

/*
 * Told by the Python layer before a communicator is made on this thread, where only some ranks of the job are run: 1 for each
 * rank of the communicator that is one of them. It holds for the next communicator of that size.
 */
GV_EXPORT void gresize_nccl_present(int ranks, const unsigned char *present)
{
	free(coming.present);
	coming.present = NULL;
	coming.ranks = 0;
	if (ranks < 1 || ranks > MOST_RANKS || !present)
		return;
	coming.present = malloc((size_t)ranks * sizeof *coming.present);
	if (!coming.present)
		return;
	coming.ranks = ranks;
	for (int r = 0; r < ranks; r++)
		coming.present[r] = present[r] != 0;
}

/* take_present is what was told for a communicator of that size. With nothing told, all come, unless only some ranks of the job are run. */
static bool *take_present(int ranks)
{
	const char *some = getenv("GRESIZE_VGPU_SOME_RANKS");
	bool *present = NULL;

	if (coming.present && coming.ranks == ranks) {
		present = coming.present;
		coming.present = NULL;
		coming.ranks = 0;
	} else if (some && *some == '1') {
		present = calloc((size_t)ranks, sizeof *present);
	}
	return present;
}

/* ---- communicators */

static int new_communicator(struct communicator **out, int ranks, const struct unique_id *id, int rank)
{
	struct communicator *c;
	bool *present;

	if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks)
		return INVALID_ARGUMENT;
	c = gv_new(sizeof *c);
	c->ranks = ranks;
	c->rank = rank;
	c->met = gv_new((size_t)ranks * sizeof *c->met);
	c->sent = gv_new((size_t)ranks * sizeof *c->sent);
	c->received = gv_new((size_t)ranks * sizeof *c->received);
	memcpy(c->id, id->bytes, sizeof c->id);
	present = take_present(ranks);
	c->exchange = exchange_open(c->id, ranks, rank, present);
	free(present);
	*out = c;
	gv_use(GV_LIB_NCCL);
	gv_communicator(ranks);
	return 0;
}

static int free_communicator(struct communicator *c)
{
	if (!c)
		return 0;
	exchange_close(c->exchange);
	free(c->met);
	free(c->sent);
	free(c->received);
	free(c);
	return 0;
}

GV_EXPORT int ncclGetVersion(int *version)
{
	*version = gv_nccl_version();
	return 0;
}

GV_EXPORT int ncclGetUniqueId(struct unique_id *id)
{
	static unsigned made;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	memset(id, 0, sizeof *id);
	snprintf(id->bytes, sizeof id->bytes, "gresize-%d-%u-%lld.%09ld", (int)getpid(), __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED),
		 (long long)t.tv_sec, t.tv_nsec);
	return 0;
}

GV_EXPORT int ncclCommGetUniqueId(struct communicator *c, struct unique_id *id)
{
	memcpy(id->bytes, c->id, sizeof id->bytes);
	return 0;
}

GV_EXPORT int ncclCommInitRankConfig(struct communicator **out, int ranks, struct unique_id id, int rank, void *configuration)
{
	return new_communicator(out, ranks, &id, rank);
}

GV_EXPORT int ncclCommInitRank(struct communicator **out, int ranks, struct unique_id id, int rank)
{
	return new_communicator(out, ranks, &id, rank);
}

GV_EXPORT int ncclCommInitRankScalable(struct communicator **out, int ranks, int rank, int ids, struct unique_id *id, void *configuration)
{
	return new_communicator(out, ranks, id, rank);
}

/* The communicators of one process: its threads or its one thread drive all cards, so none can wait for another. */
GV_EXPORT int ncclCommInitAll(struct communicator **out, int devices, const int *list)
{
	for (int i = 0; i < devices; i++) {
		struct unique_id id;
		unsigned char alone[GV_MAX_DEVICES] = {0};
		int status;

		ncclGetUniqueId(&id);
		gresize_nccl_present(devices < GV_MAX_DEVICES ? devices : GV_MAX_DEVICES, alone);
		status = new_communicator(&out[i], devices, &id, i);
		if (status)
			return status;
	}
	return 0;
}

enum { NO_COLOR = -1 };
struct split_call { int color, key; };
struct split_result {
	const struct communicator *parent;
	struct split_call mine;
	int ranks, rank;
};

static void take_split(void *context, int rank, const void *data)
{
	struct split_result *s = context;
	struct split_call other;

	memcpy(&other, data, sizeof other);
	if (other.color != s->mine.color)
		return;
	if (other.key < s->mine.key || (other.key == s->mine.key && rank < s->parent->rank))
		s->rank++;
	s->ranks++;
}

GV_EXPORT int ncclCommSplit(struct communicator *parent, int color, int key, struct communicator **out, void *configuration)
{
	struct split_result s = {.parent = parent, .mine = {color, key}};
	struct unique_id id;

	parent->splits++;
	nccl_exchange_host(parent, &s.mine, sizeof s.mine, take_split, &s);
	*out = NULL;
	if (color == NO_COLOR)
		return 0;
	memcpy(id.bytes, parent->id, sizeof id.bytes);
	snprintf(id.bytes + EXCHANGE_ID_BYTES / 2, EXCHANGE_ID_BYTES / 2, "%.20s/%llu/%d", parent->id + EXCHANGE_ID_BYTES / 2,
		 (unsigned long long)parent->splits, color);
	return new_communicator(out, s.ranks, &id, s.rank);
}

GV_EXPORT int ncclCommShrink(struct communicator *parent, int *excluded, int count, struct communicator **out, void *configuration, int flags)
{
	struct unique_id id;
	int before = 0;

	parent->splits++;
	for (int i = 0; i < count; i++)
		before += excluded[i] < parent->rank;
	memcpy(id.bytes, parent->id, sizeof id.bytes);
	snprintf(id.bytes + EXCHANGE_ID_BYTES / 2, EXCHANGE_ID_BYTES / 2, "%.20s/%llu/shrunk", parent->id + EXCHANGE_ID_BYTES / 2,
		 (unsigned long long)parent->splits);
	return new_communicator(out, parent->ranks - count, &id, parent->rank - before);
}

GV_EXPORT int ncclCommCount(const struct communicator *c, int *ranks)
{
	*ranks = c->ranks;
	return 0;
}

GV_EXPORT int ncclCommUserRank(const struct communicator *c, int *rank)
{
	*rank = c->rank;
	return 0;
}

GV_EXPORT int ncclCommGetAsyncError(struct communicator *c, int *error)
{
	*error = 0;
	return 0;
}

GV_EXPORT int ncclCommDestroy(struct communicator *c)
{
	return free_communicator(c);
}

GV_EXPORT int ncclCommAbort(struct communicator *c)
{
	return free_communicator(c);
}

GV_EXPORT int ncclCommRegister(struct communicator *c, void *p, size_t bytes, void **handle)
{
	*handle = gv_new(0);
	return 0;
}

GV_EXPORT const char *ncclGetErrorString(int status)
{
	return status ? "internal error" : "no error";
}

GV_EXPORT const char *ncclGetLastError(struct communicator *c)
{
	return "";
}

GV_EXPORT int ncclMemAlloc(void **p, size_t bytes)
{
	enum { UNHANDLED_CUDA_ERROR = 1 };

	*p = gv_alloc(bytes, gv_device(), GV_DEVICE);
	return *p ? 0 : UNHANDLED_CUDA_ERROR;
}

GV_EXPORT int ncclMemFree(void *p)
{
	return gv_free(p);
}

GV_EXPORT int ncclRedOpCreatePreMulSum(int *operation, void *scalar, int type, int residence, struct communicator *c)
{
	enum { FIRST_FREE_OPERATION = 5 };

	*operation = FIRST_FREE_OPERATION;
	return 0;
}
