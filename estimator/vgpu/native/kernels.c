/*
 * The names of PyTorch's kernels, for one question: whether the byte that this thread reads next is one that is true in a program that works. PyTorch's own
 * code asks so whether its arguments are fit, such as after all(isfinite) or a comparison with zero; after any() it asks whether something went wrong.
 */
#include "gv.h"
#include "state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIRST_NAMES = 1 << 14,
	MAX_NAMES = 1 << 19
};

/* What the mangled name of a kernel has in it that compares, or that holds for all. */
static const char *const true_kernels[] = {"15and_kernel_cuda", "ompare", "itwise_and", "itwiseAnd", "logical_and", "MulFunctorIb"};
/* All of those are instances of PyTorch's templates for reductions and for work on each element. */
static const char prefix[] = "_ZN2at6native";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	const void *function;
	const char *name;
} *names;
static size_t count, room;
static _Thread_local const void *last;
static bool checks_pass;

void gv_kernel_named(const void *function, const char *name)
{
	if (!name || strncmp(name, prefix, sizeof prefix - 1) != 0)
		return;
	pthread_mutex_lock(&lock);
	if (count == room && room < MAX_NAMES) {
		size_t more = room ? 2 * room : FIRST_NAMES;
		void *grown = realloc(names, more * sizeof *names);

		if (grown) {
			names = grown;
			room = more;
		}
	}
	if (count < room) {
		names[count].function = function;
		names[count++].name = name;
	}
	pthread_mutex_unlock(&lock);
}

void gv_launched_kernel(const void *function)
{
	last = function;
}

GV_EXPORT void gresize_vgpu_checks_pass(bool pass)
{
	__atomic_store_n(&checks_pass, pass, __ATOMIC_RELAXED);
}

/* gv_check_passes is for a byte that a kernel would have computed. */
bool gv_check_passes(void)
{
	const char *name = NULL;
	bool passes = false;

	if (!last || !__atomic_load_n(&checks_pass, __ATOMIC_RELAXED))
		return false;
	pthread_mutex_lock(&lock);
	for (size_t i = count; i > 0 && !name; i--) /* a library that was loaded later may be in the place of one that is gone */
		if (names[i - 1].function == last)
			name = names[i - 1].name;
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; name && i < sizeof true_kernels / sizeof *true_kernels; i++)
		passes = passes || strstr(name, true_kernels[i]);
	return passes;
}
