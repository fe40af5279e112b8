/*
 * What goes through a communicator. Small data whose value is known goes to the other ranks for true, so that sizes, counts
 * and objects that ranks tell each other are what they would be. For a rank that is not run as a process, the lowest rank
 * that is stands in: equal ranks see equal data. Everything larger, and all that a kernel would have computed, is not known.
 */
#include "nccl.h"

#include <stdlib.h>
#include <string.h>

enum {
	INT8,
	UINT8,
	INT32,
	UINT32,
	INT64,
	UINT64,
	HALF,
	FLOAT,
	DOUBLE,
	BFLOAT16,
	FP8_E4M3,
	FP8_E5M2,
	TYPES
};
enum {
	SUM,
	PRODUCT,
	MAXIMUM,
	MINIMUM,
	AVERAGE,
	OPERATIONS
};
enum {
	INVALID_ARGUMENT = 4,
	ALWAYS_MEET_BYTES = GV_SMALL_READ_BYTES
};

static size_t type_bytes(int type)
{
	static const unsigned char bytes[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

	return type >= 0 && type < TYPES ? bytes[type] : 1;
}

/* ---- arithmetic on values that are known */

#define REDUCE(name, type)                                                                   \
	static void reduce_##name(void *into, const void *from, size_t count, int operation) \
	{                                                                                    \
		type *a = into;                                                              \
		const type *b = from;                                                        \
		for (size_t i = 0; i < count; i++) {                                         \
			switch (operation) {                                                 \
			case PRODUCT: a[i] = (type)(a[i] * b[i]); break;                     \
			case MAXIMUM: a[i] = a[i] > b[i] ? a[i] : b[i]; break;               \
			case MINIMUM: a[i] = a[i] < b[i] ? a[i] : b[i]; break;               \
			default: a[i] = (type)(a[i] + b[i]); break;                          \
			}                                                                    \
		}                                                                            \
	}                                                                                    \
	static void divide_##name(void *into, size_t count, int ranks)                       \
	{                                                                                    \
		type *a = into;                                                              \
		for (size_t i = 0; i < count; i++)                                           \
			a[i] = (type)(a[i] / (type)ranks);                                   \
	}

REDUCE(int8, int8_t)
REDUCE(uint8, uint8_t)
REDUCE(int32, int32_t)
REDUCE(uint32, uint32_t)
REDUCE(int64, int64_t)
REDUCE(uint64, uint64_t)
REDUCE(float, float)
REDUCE(double, double)

static const struct {
	void (*reduce)(void *, const void *, size_t, int);
	void (*divide)(void *, size_t, int);
} arithmetic[TYPES] = {
	[INT8] = {reduce_int8, divide_int8},
	[UINT8] = {reduce_uint8, divide_uint8},
	[INT32] = {reduce_int32, divide_int32},
	[UINT32] = {reduce_uint32, divide_uint32},
	[INT64] = {reduce_int64, divide_int64},
	[UINT64] = {reduce_uint64, divide_uint64},
	[FLOAT] = {reduce_float, divide_float},
	[DOUBLE] = {reduce_double, divide_double},
};

/* ---- one call */

enum kind {
	ALL_REDUCE,
	REDUCE_TO_ROOT,
	ALL_GATHER,
	REDUCE_SCATTER,
	BROADCAST,
	GATHER,
	ALL_TO_ALL,
	SEND,
	RECEIVE
};

struct call {
	enum kind kind;
	struct communicator *c;
	char *to;
	size_t bytes; /* of what this rank gives, or receives */
	int type, operation, peer;
	uint64_t number;
	char *mine; /* a copy of what this rank gives; NULL: too large, or not known */
	bool meets; /* ranks wait for each other */
};

static char *known_copy(const void *from, size_t bytes)
{
	char *copy;

	if (bytes == 0 || bytes > EXCHANGE_MOST_BYTES)
		return NULL;
	copy = malloc(bytes);
	if (copy && !gv_peek(copy, from, bytes)) {
		free(copy);
		copy = NULL;
	}
	return copy;
}

static void begin(struct call *call, const char *from)
{
	struct communicator *c = call->c;

	if ((call->kind == SEND || call->kind == RECEIVE) && call->peer != c->rank && !c->met[call->peer]) {
		c->met[call->peer] = true;
		gv_communicator_peer(c->ranks);
	}
	if (call->kind == SEND) {
		call->mine = known_copy(from, call->bytes);
		if (call->bytes <= EXCHANGE_MOST_BYTES)
			exchange_send(c->exchange, call->peer, ++c->sent[call->peer], call->mine, call->bytes);
		return;
	}
	if (call->kind == RECEIVE) {
		if (call->bytes <= EXCHANGE_MOST_BYTES)
			call->number = ++c->received[call->peer];
		return;
	}
	call->meets = call->bytes <= EXCHANGE_MOST_BYTES; /* the same on every rank: the counts of a collective are */
	if (!call->meets)
		return;
	call->number = ++c->posted;
	if (from)
		call->mine = known_copy(from, call->bytes);
	exchange_post(c->exchange, call->number, call->mine, call->bytes);
}

/* fetch is what a rank gave to this call; a rank that is not there has the lowest that is as its stand-in. */
struct answers {
	int stand_in;
	bool stand_in_known;
	char *stand_in_data, *scratch;
};

static bool fetch(const struct call *call, struct answers *a, int rank, const char **data)
{
	enum exchange_answer answer;

	if (rank == call->c->rank) {
		*data = call->mine;
		answer = call->mine ? EXCHANGE_KNOWN : EXCHANGE_NOT_KNOWN;
	} else {
		*data = a->scratch;
		answer = exchange_fetch(call->c->exchange, rank, call->number, a->scratch, call->bytes);
	}
	if (answer == EXCHANGE_ABSENT) {
		*data = a->stand_in_data;
		return a->stand_in_known;
	}
	return answer == EXCHANGE_KNOWN;
}

static bool find_stand_in(const struct call *call, struct answers *a)
{
	memset(a, 0, sizeof *a);
	a->scratch = malloc(call->bytes ? call->bytes : 1);
	a->stand_in_data = malloc(call->bytes ? call->bytes : 1);
	if (!a->scratch || !a->stand_in_data)
		return false;
	for (int r = 0; r < call->c->ranks; r++) {
		enum exchange_answer answer = EXCHANGE_ABSENT;
		if (r == call->c->rank) {
			answer = call->mine ? EXCHANGE_KNOWN : EXCHANGE_NOT_KNOWN;
			if (call->mine)
				memcpy(a->stand_in_data, call->mine, call->bytes);
		} else {
			answer = exchange_fetch(call->c->exchange, r, call->number, a->stand_in_data, call->bytes);
		}
		if (answer != EXCHANGE_ABSENT) {
			a->stand_in = r;
			a->stand_in_known = answer == EXCHANGE_KNOWN;
			return true;
		}
	}
	return false;
}

static void end_answers(struct answers *a)
{
	free(a->scratch);
	free(a->stand_in_data);
}

/* reduced leaves the sum, or what the operation makes, of what all ranks gave in sum. */
static bool reduced(const struct call *call, struct answers *a, char *sum)
{
	const char *data;
	bool known = call->type >= 0 && call->type < TYPES && arithmetic[call->type].reduce && call->operation >= 0 && call->operation < OPERATIONS;

	for (int r = 0; r < call->c->ranks; r++) {
		bool this_one = fetch(call, a, r, &data);
		known = known && this_one;
		if (!known)
			return false;
		if (r == 0)
			memcpy(sum, data, call->bytes);
		else
			arithmetic[call->type].reduce(sum, data, call->bytes / type_bytes(call->type), call->operation);
	}
	if (call->operation == AVERAGE)
		arithmetic[call->type].divide(sum, call->bytes / type_bytes(call->type), call->c->ranks);
	return true;
}

static void put(char *to, const char *data, size_t bytes, bool known)
{
	if (known)
		gv_copy(to, data, bytes);
	else
		gv_forget(to, bytes);
}

static void finish_reduction(struct call *call, struct answers *a)
{
	int ranks = call->c->ranks, rank = call->c->rank;
	size_t part = call->kind == REDUCE_SCATTER ? call->bytes / (size_t)ranks : call->bytes;
	char *sum = malloc(call->bytes ? call->bytes : 1);
	/* What is not known here is known nowhere. Only tiny data is waited for all the same: that is how a barrier is made. */
	bool known = sum && (call->mine || call->bytes <= ALWAYS_MEET_BYTES) && reduced(call, a, sum);

	if (call->kind == REDUCE_TO_ROOT ? call->peer == rank : true)
		put(call->to, known ? sum + (call->kind == REDUCE_SCATTER ? (size_t)rank * part : 0) : NULL, part, known);
	free(sum);
}

static void finish_parts(struct call *call, struct answers *a)
{
	int ranks = call->c->ranks, rank = call->c->rank;
	size_t part = call->kind == ALL_TO_ALL ? call->bytes / (size_t)ranks : call->bytes;
	const char *data;

	if (call->kind == GATHER && call->peer != rank)
		return;
	for (int r = 0; r < ranks; r++) {
		bool known = fetch(call, a, r, &data);
		put(call->to + (size_t)r * part, known ? data + (call->kind == ALL_TO_ALL ? (size_t)rank * part : 0) : NULL, part, known);
	}
}

static void finish_broadcast(struct call *call, struct answers *a)
{
	const char *data;
	bool known;

	if (call->peer == call->c->rank) {
		put(call->to, call->mine, call->bytes, call->mine != NULL);
		return;
	}
	if (exchange_fetch(call->c->exchange, call->peer, call->number, a->scratch, call->bytes) == EXCHANGE_ABSENT)
		return; /* what the program put there before stands in for what would have come */
	known = fetch(call, a, call->peer, &data);
	put(call->to, data, call->bytes, known);
}

static void finish_receive(struct call *call)
{
	struct communicator *c = call->c;
	char *data = NULL;
	enum exchange_answer answer = EXCHANGE_NOT_KNOWN;

	if (call->number && (data = malloc(call->bytes ? call->bytes : 1))) {
		answer = exchange_receive(c->exchange, call->peer, call->number, data, call->bytes);
		/* A rank that is not there sends what this rank would have sent itself: in an exchange of sizes, equal shares. */
		if (answer == EXCHANGE_ABSENT && c->sent[c->rank] > 0)
			answer = exchange_receive(c->exchange, c->rank, c->sent[c->rank], data, call->bytes);
	}
	put(call->to, data, call->bytes, answer == EXCHANGE_KNOWN);
	free(data);
}

/* forget_outputs is for data that no rank will be asked for. */
static void forget_outputs(const struct call *call)
{
	size_t ranks = (size_t)call->c->ranks;
	size_t bytes = call->bytes;

	switch (call->kind) {
	case ALL_GATHER:
		bytes *= ranks;
		break;
	case GATHER:
		bytes = call->peer == call->c->rank ? bytes * ranks : 0;
		break;
	case REDUCE_SCATTER:
		bytes /= ranks;
		break;
	case REDUCE_TO_ROOT:
		bytes = call->peer == call->c->rank ? bytes : 0;
		break;
	default:
		break;
	}
	gv_forget(call->to, bytes);
}

static void finish(struct call *call)
{
	struct answers a;

	if (call->kind == RECEIVE) {
		finish_receive(call);
	} else if (call->kind != SEND && !call->meets) {
		forget_outputs(call);
	} else if (call->kind != SEND) {
		if (!find_stand_in(call, &a)) {
			forget_outputs(call);
		} else if (call->kind == ALL_GATHER || call->kind == GATHER || call->kind == ALL_TO_ALL) {
			finish_parts(call, &a);
		} else if (call->kind == BROADCAST) {
			finish_broadcast(call, &a);
		} else {
			finish_reduction(call, &a);
		}
		end_answers(&a);
	}
	free(call->mine);
}

/* ---- groups: all calls of a group are posted before any is waited for */

static __thread struct call *grouped;
static __thread size_t grouped_count, grouped_room;
static __thread int group_depth;

static bool put_off(const struct call *call)
{
	if (grouped_count == grouped_room) {
		size_t room = grouped_room ? 2 * grouped_room : 64;
		struct call *grown = realloc(grouped, room * sizeof *grown);
		if (!grown)
			return false;
		grouped = grown;
		grouped_room = room;
	}
	grouped[grouped_count++] = *call;
	return true;
}

static int run(struct call call, const char *from)
{
	if (!call.c || call.peer < 0 || call.peer >= call.c->ranks)
		return INVALID_ARGUMENT;
	begin(&call, from);
	if (group_depth == 0 || !put_off(&call))
		finish(&call);
	return 0;
}

GV_EXPORT int ncclGroupStart(void)
{
	group_depth++;
	return 0;
}

GV_EXPORT int ncclGroupEnd(void)
{
	if (group_depth == 0)
		return INVALID_ARGUMENT;
	if (--group_depth > 0)
		return 0;
	for (size_t i = 0; i < grouped_count; i++)
		finish(&grouped[i]);
	grouped_count = 0;
	return 0;
}

/* ---- the calls */

GV_EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, struct communicator *c, void *stream)
{
	return run((struct call){.kind = ALL_REDUCE, .c = c, .to = to, .bytes = count * type_bytes(type), .type = type, .operation = operation}, from);
}

GV_EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, struct communicator *c, void *stream)
{
	return run((struct call){.kind = REDUCE_TO_ROOT, .c = c, .to = to, .bytes = count * type_bytes(type), .type = type, .operation = operation, .peer = root}, from);
}

GV_EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, struct communicator *c, void *stream)
{
	return run((struct call){.kind = ALL_GATHER, .c = c, .to = to, .bytes = count * type_bytes(type)}, from);
}

GV_EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, struct communicator *c, void *stream)
{
	size_t bytes = count * type_bytes(type) * (size_t)(c ? c->ranks : 1);

	return run((struct call){.kind = REDUCE_SCATTER, .c = c, .to = to, .bytes = bytes, .type = type, .operation = operation}, from);
}

GV_EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, struct communicator *c, void *stream)
{
	return run((struct call){.kind = BROADCAST, .c = c, .to = to, .bytes = count * type_bytes(type), .peer = root}, c && root == c->rank ? from : NULL);
}

GV_EXPORT int ncclBcast(void *data, size_t count, int type, int root, struct communicator *c, void *stream)
{
	return ncclBroadcast(data, data, count, type, root, c, stream);
}

GV_EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int type, struct communicator *c, void *stream)
{
	size_t bytes = count * type_bytes(type) * (size_t)(c ? c->ranks : 1);

	return run((struct call){.kind = ALL_TO_ALL, .c = c, .to = to, .bytes = bytes}, from);
}

GV_EXPORT int ncclGather(const void *from, void *to, size_t count, int type, int root, struct communicator *c, void *stream)
{
	return run((struct call){.kind = GATHER, .c = c, .to = to, .bytes = count * type_bytes(type), .peer = root}, from);
}

GV_EXPORT int ncclSend(const void *from, size_t count, int type, int peer, struct communicator *c, void *stream)
{
	return run((struct call){.kind = SEND, .c = c, .bytes = count * type_bytes(type), .peer = peer}, from);
}

GV_EXPORT int ncclRecv(void *to, size_t count, int type, int peer, struct communicator *c, void *stream)
{
	return run((struct call){.kind = RECEIVE, .c = c, .to = to, .bytes = count * type_bytes(type), .peer = peer}, NULL);
}

/* ---- host memory, for the making of communicators */

void nccl_exchange_host(struct communicator *c, const void *mine, size_t bytes, void (*take)(void *context, int rank, const void *data), void *context)
{
	struct call call = {.kind = ALL_GATHER, .c = c, .bytes = bytes};
	struct answers a;
	const char *data;

	begin(&call, mine);
	if (call.meets) {
		bool found = find_stand_in(&call, &a);

		for (int r = 0; found && r < c->ranks; r++) {
			if (fetch(&call, &a, r, &data))
				take(context, r, data);
		}
		end_answers(&a);
	}
	free(call.mine);
}
