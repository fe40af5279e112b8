/* Keeps the values of arrays of few whole numbers. There are seldom more than some tens, so they are looked for one by one. */
#define _GNU_SOURCE
#include "state.h"
#include "pjrt_known.h"

#include <pthread.h>
#include <string.h>

enum { MAX_KNOWN = 4096 };

struct known {
	const void *handle;
	uint64_t address;
	size_t bytes;
	uint32_t age;
	struct gv_origin origin;
	unsigned char value[GV_KNOWN_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known known[MAX_KNOWN];
static unsigned count;
static uint32_t age_now;

uint32_t gv_known_age(void)
{
	return __atomic_load_n(&age_now, __ATOMIC_RELAXED);
}

static struct known *of_handle(const void *handle)
{
	for (unsigned i = 0; i < count; i++) {
		if (known[i].handle == handle)
			return &known[i];
	}
	return NULL;
}

void gv_known_put(const void *handle, uint64_t address, const void *value, size_t bytes, uint32_t age, struct gv_origin origin)
{
	struct known *k;

	if (!bytes || bytes > GV_KNOWN_BYTES)
		return;
	pthread_mutex_lock(&lock);
	k = of_handle(handle);
	if (!k && count < MAX_KNOWN)
		k = &known[count++];
	if (k) {
		k->handle = handle;
		k->address = address;
		k->bytes = bytes;
		k->age = age;
		k->origin = origin;
		memcpy(k->value, value, bytes);
	}
	pthread_mutex_unlock(&lock);
}

void gv_known_gone(const void *handle)
{
	struct known *k;

	pthread_mutex_lock(&lock);
	k = of_handle(handle);
	if (k)
		*k = known[--count];
	pthread_mutex_unlock(&lock);
}

/* ---- for the Python layer */

/*
 * gresize_pjrt_known copies the value of an array, and its age, and returns its bytes: none where it is not known. It is found by its handle or, where that
 * is NULL, by its address and only if no turns were left out since.
 */
GV_EXPORT size_t gresize_pjrt_known(const void *handle, uint64_t address, unsigned char to[GV_KNOWN_BYTES], uint32_t *age)
{
	size_t bytes = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count && !bytes; i++) {
		const struct known *k = &known[i];
		if (handle ? k->handle == handle : k->address == address && k->age == gv_known_age()) {
			bytes = k->bytes;
			*age = k->age;
			memcpy(to, k->value, bytes);
		}
	}
	pthread_mutex_unlock(&lock);
	return bytes;
}

/* gresize_pjrt_left_out says that turns of the program were left out. */
GV_EXPORT void gresize_pjrt_left_out(void)
{
	__atomic_add_fetch(&age_now, 1, __ATOMIC_RELAXED);
}

/*
 * gresize_pjrt_set_forward gives the arrays of an origin that have one value another one: what they would have if the turns had been run that were said to be
 * left out just now. What was too low before them stays so.
 */
GV_EXPORT void gresize_pjrt_set_forward(uint32_t plan, uint32_t output, const unsigned char *from, const unsigned char *to, size_t bytes)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++) {
		struct known *k = &known[i];
		if (k->age + 1 == gv_known_age() && k->origin.plan == plan && k->origin.output == output && k->bytes == bytes && !memcmp(k->value, from, bytes)) {
			memcpy(k->value, to, bytes);
			k->age = gv_known_age();
		}
	}
	pthread_mutex_unlock(&lock);
}

/* gresize_pjrt_age is the age of what the host puts on a card now. */
GV_EXPORT uint32_t gresize_pjrt_age(void)
{
	return gv_known_age();
}
