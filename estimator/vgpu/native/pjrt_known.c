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
	unsigned char value[GV_KNOWN_BYTES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known known[MAX_KNOWN];
static unsigned count;

static struct known *of_handle(const void *handle)
{
	for (unsigned i = 0; i < count; i++) {
		if (known[i].handle == handle)
			return &known[i];
	}
	return NULL;
}

void gv_known_put(const void *handle, uint64_t address, const void *value, size_t bytes)
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

/* gresize_pjrt_known copies the value of an array, by its handle or, where that is NULL, by its address, and returns its bytes: none where it is not known. */
GV_EXPORT size_t gresize_pjrt_known(const void *handle, uint64_t address, unsigned char to[GV_KNOWN_BYTES])
{
	size_t bytes = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count && !bytes; i++) {
		if (handle ? known[i].handle == handle : known[i].address == address) {
			bytes = known[i].bytes;
			memcpy(to, known[i].value, bytes);
		}
	}
	pthread_mutex_unlock(&lock);
	return bytes;
}
