/*
 * libnccl: every rank sees its own data in place of the others'. Shapes and sizes that ranks exchange are then those of
 * this rank, which is what a memory estimate of equal ranks needs.
 */
#include "gv.h"

#include <stdlib.h>
#include <string.h>

struct communicator { int ranks, rank; };

enum { ID_BYTES = 128, MAX_GROUPED = 1024 };
struct unique_id { char bytes[ID_BYTES]; };

static size_t type_bytes(int type)
{
	/* int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 fp8 fp8 */
	static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

	return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 1;
}

static int new_communicator(struct communicator **out, int ranks, int rank)
{
	struct communicator *c = gv_new(sizeof *c);

	c->ranks = ranks;
	c->rank = rank;
	*out = c;
	gv_use(GV_LIB_NCCL);
	return 0;
}

GV_EXPORT int ncclGetVersion(int *version)
{
	*version = gv_nccl_version();
	return 0;
}

GV_EXPORT int ncclGetUniqueId(struct unique_id *id)
{
	memset(id, 7, sizeof *id);
	return 0;
}

GV_EXPORT int ncclCommGetUniqueId(struct communicator *c, struct unique_id *id)
{
	return ncclGetUniqueId(id);
}

GV_EXPORT int ncclCommInitRankConfig(struct communicator **out, int ranks, struct unique_id id, int rank, void *configuration)
{
	return new_communicator(out, ranks, rank);
}

GV_EXPORT int ncclCommInitRank(struct communicator **out, int ranks, struct unique_id id, int rank)
{
	return new_communicator(out, ranks, rank);
}

GV_EXPORT int ncclCommInitRankScalable(struct communicator **out, int ranks, int rank, int ids, struct unique_id *id, void *configuration)
{
	return new_communicator(out, ranks, rank);
}

GV_EXPORT int ncclCommInitAll(struct communicator **out, int devices, const int *list)
{
	for (int i = 0; i < devices; i++)
		new_communicator(&out[i], devices, i);
	return 0;
}

GV_EXPORT int ncclCommSplit(const struct communicator *parent, int color, int key, struct communicator **out, void *configuration)
{
	return new_communicator(out, parent->ranks, parent->rank);
}

GV_EXPORT int ncclCommShrink(const struct communicator *parent, int *excluded, int count, struct communicator **out, void *configuration, int flags)
{
	return new_communicator(out, parent->ranks, parent->rank);
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
	free(c);
	return 0;
}

GV_EXPORT int ncclCommAbort(struct communicator *c)
{
	free(c);
	return 0;
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

/* ---- collectives */

static void move(void *to, const void *from, size_t bytes)
{
	if (to != from)
		gv_copy(to, from, bytes);
}

GV_EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, struct communicator *c, void *stream)
{
	move(to, from, count * type_bytes(type));
	return 0;
}

GV_EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, struct communicator *c, void *stream)
{
	if (root == c->rank)
		move(to, from, count * type_bytes(type));
	return 0;
}

GV_EXPORT int ncclAllGather(const void *from, char *to, size_t count, int type, struct communicator *c, void *stream)
{
	size_t bytes = count * type_bytes(type);

	for (int r = 0; r < c->ranks; r++)
		move(to + (size_t)r * bytes, from, bytes);
	return 0;
}

GV_EXPORT int ncclReduceScatter(const char *from, void *to, size_t count, int type, int operation, struct communicator *c, void *stream)
{
	size_t bytes = count * type_bytes(type);

	move(to, from + (size_t)c->rank * bytes, bytes);
	return 0;
}

/* A group of broadcasts, one a root, is an all-gather of lists: own data then stands in for what others would send. */
static __thread struct { void *to; size_t bytes; } grouped[MAX_GROUPED];
static __thread int grouped_count, group_depth;
static __thread const void *own_data;
static __thread size_t own_bytes;

GV_EXPORT int ncclGroupStart(void)
{
	if (group_depth++ == 0) {
		grouped_count = 0;
		own_data = NULL;
	}
	return 0;
}

GV_EXPORT int ncclGroupEnd(void)
{
	if (group_depth == 0 || --group_depth > 0 || !own_data)
		return 0;
	for (int i = 0; i < grouped_count; i++)
		move(grouped[i].to, own_data, grouped[i].bytes < own_bytes ? grouped[i].bytes : own_bytes);
	return 0;
}

GV_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct communicator *c, void *stream)
{
	size_t bytes = count * type_bytes(type);

	if (root == c->rank) {
		move(to, from, bytes);
		own_data = from;
		own_bytes = bytes;
	} else if (group_depth > 0 && grouped_count < MAX_GROUPED) {
		grouped[grouped_count].to = to;
		grouped[grouped_count++].bytes = bytes;
	}
	return 0;
}

GV_EXPORT int ncclBcast(void *data, size_t count, int type, int root, struct communicator *c, void *stream)
{
	return ncclBroadcast(data, data, count, type, root, c, stream);
}
