/*
 * What JAX does with a card is seen at the table of functions by which it calls XLA's plugin: PJRT's C interface, whose places are fixed, as it grows at its
 * end only. Two of them are led by way of here: what executes a compiled program, and what copies an array to the host. All else is XLA's own, with
 * its own allocator, on the replaced driver.
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_COMPUTATIONS = 4096, KNOWN_MAJOR = 0 };

/* Places in the table. */
enum {
	ERROR_DESTROY = 0, EXECUTABLE_DESTROY = 40, EXECUTABLE_NAME = 41, LOADED_DESTROY = 50, LOADED_GET_EXECUTABLE = 51, LOADED_EXECUTE = 55,
	BUFFER_TO_HOST = 70, NEEDED, EXECUTABLE_MEMORY = 96, KNOWN
};

/* Every function takes a struct that begins with its own size and returns an error, or nothing. */
typedef void *function(void *arguments);

struct api {
	size_t struct_size;
	void *extensions;
	struct { size_t struct_size; void *extensions; int major, minor; } version;
	function *functions[KNOWN]; /* of an older release the last are not there */
};

struct error_arguments { size_t struct_size; void *extensions, *error; };
struct execute_arguments { size_t struct_size; void *extensions, *executable; };
struct executable_arguments { size_t struct_size; void *extensions, *loaded, *executable; };
struct destroy_arguments { size_t struct_size; void *extensions, *executable; };
struct name_arguments { size_t struct_size; void *extensions, *executable; const char *name; size_t length; };
struct memory_arguments { size_t struct_size; void *extensions, *executable; int64_t code, argument, output, alias, temporary, rest[27]; }; /* room for what newer releases add */
struct copy_arguments { size_t struct_size; void *extensions, *buffer, *layout, *to; size_t bytes; };

/* The Python layer reads these: report.py has the same. */
struct computation {
	const void *loaded; /* NULL: it is gone, and what XLA compiles next may have its place */
	uint64_t executions;
	int64_t code_bytes, argument_bytes, output_bytes, alias_bytes, temporary_bytes;
	char name[GV_MAX_NAME];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct api *table;
static function *execute, *to_host, *destroy;
static struct computation computations[MAX_COMPUTATIONS];
static unsigned computation_count;
static uint64_t small_reads, large_reads, executions;

static bool has(unsigned at)
{
	return table->struct_size >= offsetof(struct api, functions) + (at + 1) * sizeof(function *);
}

static bool succeeds(unsigned at, void *arguments)
{
	void *error = table->functions[at](arguments);

	if (error)
		table->functions[ERROR_DESTROY](&(struct error_arguments){sizeof(struct error_arguments), NULL, error});
	return !error;
}

static void describe(struct computation *c)
{
	struct executable_arguments get = {sizeof get, NULL, (void *)(uintptr_t)c->loaded, NULL};
	struct memory_arguments memory = {.struct_size = sizeof memory};
	struct name_arguments name = {.struct_size = sizeof name};

	if (!succeeds(LOADED_GET_EXECUTABLE, &get))
		return;
	memory.executable = name.executable = get.executable;
	if (has(EXECUTABLE_MEMORY) && succeeds(EXECUTABLE_MEMORY, &memory)) {
		c->code_bytes = memory.code;
		c->argument_bytes = memory.argument;
		c->output_bytes = memory.output;
		c->alias_bytes = memory.alias;
		c->temporary_bytes = memory.temporary;
	}
	if (succeeds(EXECUTABLE_NAME, &name) && name.name) {
		size_t length = name.length < sizeof c->name ? name.length : sizeof c->name - 1;
		memcpy(c->name, name.name, length);
	}
	succeeds(EXECUTABLE_DESTROY, &(struct destroy_arguments){sizeof(struct destroy_arguments), NULL, get.executable});
}

static struct computation *of_executable(const void *loaded)
{
	for (unsigned i = computation_count; i > 0; i--) {
		if (computations[i - 1].loaded == loaded)
			return &computations[i - 1];
	}
	return NULL;
}

static void *execute_here(void *arguments)
{
	const void *loaded = ((struct execute_arguments *)arguments)->executable;
	struct computation *c, seen = {.loaded = loaded};
	void *error;

	pthread_mutex_lock(&lock);
	c = of_executable(loaded);
	pthread_mutex_unlock(&lock);
	if (!c)
		describe(&seen);
	pthread_mutex_lock(&lock);
	c = of_executable(loaded);
	if (!c && computation_count < MAX_COMPUTATIONS) {
		c = &computations[computation_count++];
		*c = seen;
	}
	pthread_mutex_unlock(&lock);
	error = execute(arguments);
	pthread_mutex_lock(&lock);
	c = error ? NULL : of_executable(loaded); /* one that found no memory was none */
	if (c)
		c->executions++;
	executions += !error;
	pthread_mutex_unlock(&lock);
	return error;
}

static void *destroy_here(void *arguments)
{
	struct computation *c;

	pthread_mutex_lock(&lock);
	c = of_executable(((struct destroy_arguments *)arguments)->executable);
	if (c)
		c->loaded = NULL;
	pthread_mutex_unlock(&lock);
	return destroy(arguments);
}

static void *to_host_here(void *arguments)
{
	const struct copy_arguments *copy = arguments;

	if (copy->to) /* without one, only the size is asked for */
		__atomic_add_fetch(copy->bytes <= GV_SMALL_READ_BYTES ? &small_reads : &large_reads, 1, __ATOMIC_RELAXED);
	return to_host(arguments);
}

static int find_plugin(struct dl_phdr_info *info, size_t size, void *data)
{
	static const char tail[] = "/xla_cuda_plugin.so";
	size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;

	if (length < sizeof tail || length >= MAX_PATH || strcmp(info->dlpi_name + length - (sizeof tail - 1), tail))
		return 0;
	memcpy(data, info->dlpi_name, length + 1);
	return 1;
}

void gv_pjrt_watch(void)
{
	char path[MAX_PATH];
	void *plugin;
	struct api *(*get)(void), *api;

	if (table || !dl_iterate_phdr(find_plugin, path))
		return;
	plugin = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	if (!plugin)
		return;
	*(void **)&get = dlsym(plugin, "GetPjrtApi");
	api = get ? get() : NULL;
	pthread_mutex_lock(&lock);
	if (api && !table && api->version.major == KNOWN_MAJOR && api->struct_size >= offsetof(struct api, functions) + NEEDED * sizeof(function *)) {
		execute = api->functions[LOADED_EXECUTE];
		destroy = api->functions[LOADED_DESTROY];
		to_host = api->functions[BUFFER_TO_HOST];
		table = api;
		api->functions[LOADED_EXECUTE] = execute_here;
		api->functions[LOADED_DESTROY] = destroy_here;
		api->functions[BUFFER_TO_HOST] = to_host_here;
	}
	pthread_mutex_unlock(&lock);
}

/* ---- for the Python layer */

/* gresize_pjrt_computations copies up to room of them and returns how many there are. */
GV_EXPORT unsigned gresize_pjrt_computations(struct computation *to, unsigned room)
{
	unsigned count;

	pthread_mutex_lock(&lock);
	count = computation_count;
	memcpy(to, computations, (count < room ? count : room) * sizeof *to);
	pthread_mutex_unlock(&lock);
	return count;
}

/* gresize_pjrt_counts: executions of all, reads of single values and of arrays, and the minor version of the interface: minus one where it is none that is known. */
GV_EXPORT void gresize_pjrt_counts(int64_t to[4])
{
	pthread_mutex_lock(&lock);
	to[0] = (int64_t)executions;
	to[1] = (int64_t)__atomic_load_n(&small_reads, __ATOMIC_RELAXED);
	to[2] = (int64_t)__atomic_load_n(&large_reads, __ATOMIC_RELAXED);
	to[3] = table ? table->version.minor : -1;
	pthread_mutex_unlock(&lock);
}
