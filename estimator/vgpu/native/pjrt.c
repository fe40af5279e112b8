/*
 * What JAX does with a card is seen at the table of functions by which it calls XLA's plugin: PJRT's C interface, whose places are fixed, as it grows at its
 * end only. Some of them are led by way of here: what compiles and executes a program, and what makes, copies and gives back an array. All else is XLA's
 * own, with its own allocator, on the replaced driver.
 */
#define _GNU_SOURCE
#include "state.h"
#include "pjrt_arrays.h"
#include "pjrt_compiled.h"
#include "pjrt_known.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	MAX_PATH = 4096,
	MAX_COMPUTATIONS = 4096,
	KNOWN_MAJOR = 0
};

/* Places in the table. */
enum {
	ERROR_DESTROY = 0,
	CLIENT_COMPILE = 20,
	BUFFER_FROM_HOST = 22,
	EXECUTABLE_DESTROY = 40,
	EXECUTABLE_NAME = 41,
	EXECUTABLE_OUTPUTS = 44,
	EXECUTABLE_SERIALIZE = 49,
	LOADED_DESTROY = 50,
	LOADED_GET_EXECUTABLE = 51,
	LOADED_EXECUTE = 55,
	DESERIALIZE = 56,
	BUFFER_DESTROY = 58,
	BUFFER_BYTES = 64,
	BUFFER_DEVICE = 65,
	BUFFER_DELETE = 67,
	BUFFER_IS_DELETED = 68,
	BUFFER_TO_HOST = 70,
	BUFFER_ON_CPU = 71,
	BUFFER_ADDRESS = 73,
	NEEDED,
	EXECUTABLE_MEMORY = 96,
	KNOWN
};

/* Types of arrays: those between are of whole numbers, from bool to the unsigned ones of 64 bits. */
enum {
	TYPE_BOOL = 1,
	TYPE_U64 = 9
};

/* Every function takes a struct that begins with its own size and returns an error, or nothing. */
typedef void *function(void *arguments);

struct api {
	size_t struct_size;
	void *extensions;
	struct {
		size_t struct_size;
		void *extensions;
		int major, minor;
	} version;
	function *functions[KNOWN]; /* of an older release the last are not there */
};

struct error_arguments {
	size_t struct_size;
	void *extensions, *error;
};
struct execute_arguments {
	size_t struct_size;
	void *extensions, *executable, *options, ***arguments;
	size_t devices, count;
	void ***outputs;
};
struct outputs_arguments {
	size_t struct_size;
	void *extensions, *executable;
	size_t count;
};
struct from_host_arguments {
	size_t struct_size;
	void *extensions, *client;
	const void *data;
	int type;
	const int64_t *dims;
	size_t dim_count;
	const int64_t *byte_strides;
	size_t stride_count;
	int semantics;
	void *before[4], *buffer;
};
struct buffer_arguments {
	size_t struct_size;
	void *extensions, *buffer;
	union {
		size_t bytes;
		void *device;
		bool is;
		uintptr_t address;
	} out;
};
struct executable_arguments {
	size_t struct_size;
	void *extensions, *loaded, *executable;
};
struct destroy_arguments {
	size_t struct_size;
	void *extensions, *executable;
};
struct name_arguments {
	size_t struct_size;
	void *extensions, *executable;
	const char *name;
	size_t length;
};
struct memory_arguments {
	size_t struct_size;
	void *extensions, *executable;
	int64_t code, argument, output, alias, temporary, rest[27];
}; /* room for what newer releases add */
struct program {
	size_t struct_size;
	void *extensions;
	const char *code;
	size_t code_size;
};
struct compile_arguments {
	size_t struct_size;
	void *extensions, *client;
	const struct program *program;
	const char *options;
	size_t options_size;
	void *loaded;
};
struct serialize_arguments {
	size_t struct_size;
	void *extensions, *executable;
	const char *bytes;
	size_t size;
	void *owner;
	void (*release)(void *owner);
};
struct deserialize_arguments {
	size_t struct_size;
	void *extensions, *client;
	const char *bytes;
	size_t size;
	void *loaded, *options;
	size_t options_size;
};
struct copy_arguments {
	size_t struct_size;
	void *extensions, *buffer, *layout, *to;
	size_t bytes;
};

/* The Python layer reads these: report.py has the same. */
struct computation {
	const void *loaded; /* NULL: it is gone, and what XLA compiles next may have its place */
	uint64_t executions;
	int64_t code_bytes, argument_bytes, output_bytes, alias_bytes, temporary_bytes;
	uint64_t outputs;
	char name[GV_MAX_NAME];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct api *table;
static function *execute, *to_host, *destroy, *compile, *from_host, *buffer_destroy, *buffer_delete;
static void *card; /* the first that has an array: its arrays are recorded */
static struct computation computations[MAX_COMPUTATIONS];
static unsigned plans[MAX_COMPUTATIONS]; /* of each computation, where the Python layer follows its whole numbers */
static unsigned computation_count;
static char plugin_path[MAX_PATH];
static void (*tell_of)(unsigned); /* the Python layer, once it follows the program in time-lapse: an execution of so many bytes has come */
static int64_t tell_from_bytes;
/* The Python layer: what is known of the results of an execution, of a computation that it has given a number. */
static unsigned (*follow)(unsigned plan, void *const *arguments, size_t count, struct gv_result *to, unsigned room);
static __thread unsigned next_plan; /* of what this thread compiles */
static struct {
	const void *loaded;
	unsigned plan;
} planned[MAX_COMPUTATIONS];
static unsigned planned_count;
static uint64_t small_reads, large_reads, executions, compile_nanos;

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
	struct outputs_arguments outputs = {.struct_size = sizeof outputs};

	if (!succeeds(LOADED_GET_EXECUTABLE, &get))
		return;
	memory.executable = name.executable = outputs.executable = get.executable;
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
	if (succeeds(EXECUTABLE_OUTPUTS, &outputs))
		c->outputs = outputs.count;
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

/* ---- arrays */

static bool asked(unsigned at, const void *buffer, struct buffer_arguments *answer)
{
	*answer = (struct buffer_arguments){.struct_size = sizeof *answer, .buffer = (void *)(uintptr_t)buffer};
	return succeeds(at, answer);
}

struct array {
	uint64_t address;
	int64_t bytes;
};

/* Whether an array has memory of the card whose arrays are recorded, and where. */
static bool on_card(const void *buffer, struct array *a)
{
	struct buffer_arguments answer;
	void *nobody = NULL;

	if (!buffer || !asked(BUFFER_ON_CPU, buffer, &answer) || answer.out.is || !asked(BUFFER_DEVICE, buffer, &answer))
		return false;
	if (!__atomic_compare_exchange_n(&card, &nobody, answer.out.device, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && nobody != answer.out.device)
		return false;
	if (!asked(BUFFER_ADDRESS, buffer, &answer) || !answer.out.address)
		return false;
	a->address = answer.out.address;
	if (!asked(BUFFER_BYTES, buffer, &answer))
		return false;
	a->bytes = (int64_t)answer.out.bytes;
	return a->bytes > 0;
}

/* Copies few whole numbers as they lie one behind another; none where they lie otherwise, or are something else. */
static size_t few_numbers(const struct from_host_arguments *from, int64_t array_bytes, unsigned char to[GV_KNOWN_BYTES])
{
	int64_t count = 1, step;

	if (from->type < TYPE_BOOL || from->type > TYPE_U64 || array_bytes > GV_KNOWN_BYTES)
		return 0;
	for (size_t i = 0; i < from->dim_count; i++)
		count *= from->dims[i];
	if (count < 1 || array_bytes % count)
		return 0;
	step = array_bytes / count;
	for (size_t i = from->stride_count; i > 0; i--) {
		if (from->dims[i - 1] > 1 && from->byte_strides[i - 1] != step)
			return 0;
		step *= from->dims[i - 1];
	}
	memcpy(to, from->data, (size_t)array_bytes);
	return (size_t)array_bytes;
}

static void *from_host_here(void *arguments)
{
	unsigned char value[GV_KNOWN_BYTES];
	void *error = from_host(arguments);
	const struct from_host_arguments *from = arguments;
	struct array a;

	if (!error && on_card(from->buffer, &a)) {
		gv_array_moved(from->buffer, a.address, a.bytes);
		gv_known_put(from->buffer, a.address, value, few_numbers(from, a.bytes, value), gv_known_age(), (struct gv_origin){0, 0});
	}
	return error;
}

static void gone(const void *buffer)
{
	gv_array_gone(buffer);
	gv_known_gone(buffer);
}

static void *buffer_destroy_here(void *arguments)
{
	gone(((struct destroy_arguments *)arguments)->executable); /* every such struct has what it is about in this place */
	return buffer_destroy(arguments);
}

static void *buffer_delete_here(void *arguments)
{
	gone(((struct destroy_arguments *)arguments)->executable);
	return buffer_delete(arguments);
}

static void note_arguments(const struct execute_arguments *e, unsigned number)
{
	struct array a;

	for (size_t d = 0; d < e->devices; d++) {
		for (size_t i = 0; i < e->count; i++) {
			if (on_card(e->arguments[d][i], &a))
				gv_array_used(e->arguments[d][i], a.address, a.bytes, number, (unsigned)i);
		}
	}
}

static void note_results(const struct execute_arguments *e, unsigned number, uint64_t outputs)
{
	struct array a;
	struct buffer_arguments answer;

	for (size_t d = 0; e->outputs && d < e->devices; d++) {
		for (size_t i = 0; i < outputs; i++) {
			if (on_card(e->outputs[d][i], &a))
				gv_array_made(e->outputs[d][i], a.address, a.bytes, number, (unsigned)i);
		}
	}
	for (size_t d = 0; d < e->devices; d++) {
		for (size_t i = 0; i < e->count; i++) {
			const void *given = e->arguments[d][i];
			if (given && gv_array_known(given) && asked(BUFFER_IS_DELETED, given, &answer) && answer.out.is)
				gone(given); /* donated */
		}
	}
}

static void note_known(const struct execute_arguments *e, uint64_t outputs, unsigned plan, const struct gv_result *results, unsigned count)
{
	struct array a;

	for (unsigned i = 0; e->outputs && i < count; i++) {
		const void *made = results[i].output < outputs ? e->outputs[0][results[i].output] : NULL;
		if (on_card(made, &a) && a.bytes == (int64_t)results[i].bytes)
			gv_known_put(made, a.address, results[i].value, results[i].bytes, results[i].age, (struct gv_origin){plan, results[i].output});
	}
}

/* ---- computations */

/* So many executions of a computation tell which of its arguments come from where; so many results may be followed. */
enum {
	ARGUMENTS_SEEN = 3,
	RESULTS_FOLLOWED = 64
};

static unsigned *plan_of(const void *loaded)
{
	for (unsigned i = planned_count; i > 0; i--) {
		if (planned[i - 1].loaded == loaded)
			return &planned[i - 1].plan;
	}
	return NULL;
}

/* What is compiled may have the place of something that is gone. */
static void plan_for(const void *loaded)
{
	unsigned *plan;

	pthread_mutex_lock(&lock);
	plan = plan_of(loaded);
	if (!plan && next_plan && planned_count < MAX_COMPUTATIONS) {
		planned[planned_count].loaded = loaded;
		plan = &planned[planned_count++].plan;
	}
	if (plan)
		*plan = next_plan;
	pthread_mutex_unlock(&lock);
}

static unsigned results_known(unsigned plan, const struct execute_arguments *e, struct gv_result *to)
{
	unsigned (*ask)(unsigned, void *const *, size_t, struct gv_result *, unsigned) = __atomic_load_n(&follow, __ATOMIC_ACQUIRE);

	return plan && ask && e->devices ? ask(plan, e->arguments[0], e->count, to, RESULTS_FOLLOWED) : 0;
}

static void *execute_here(void *arguments)
{
	const struct execute_arguments *e = arguments;
	const void *loaded = e->executable;
	struct computation *c, seen = {.loaded = loaded};
	struct gv_result results[RESULTS_FOLLOWED];
	void (*tell)(unsigned);
	unsigned number, plan = 0, known;
	void *error;

	pthread_mutex_lock(&lock);
	c = of_executable(loaded);
	pthread_mutex_unlock(&lock);
	if (!c)
		describe(&seen);
	pthread_mutex_lock(&lock);
	c = of_executable(loaded);
	if (!c && computation_count < MAX_COMPUTATIONS) {
		const unsigned *found = plan_of(loaded);
		plans[computation_count] = found ? *found : 0;
		c = &computations[computation_count++];
		*c = seen;
	}
	if (c) {
		seen = *c;
		plan = plans[c - computations];
	}
	number = c ? (unsigned)(c - computations) : MAX_COMPUTATIONS;
	pthread_mutex_unlock(&lock);
	if (seen.executions < ARGUMENTS_SEEN)
		note_arguments(e, number);
	known = results_known(plan, e, results);
	gv_execution(GV_EXECUTION_BEGINS, number, seen.temporary_bytes, seen.output_bytes - seen.alias_bytes);
	error = execute(arguments);
	if (!error) {
		note_results(e, number, seen.outputs);
		note_known(e, seen.outputs, plan, results, known);
	}
	gv_execution(GV_EXECUTION_ENDS, number, seen.temporary_bytes, 0);
	pthread_mutex_lock(&lock);
	c = error ? NULL : of_executable(loaded); /* one that found no memory was none */
	if (c)
		c->executions++;
	executions += !error;
	pthread_mutex_unlock(&lock);
	tell = __atomic_load_n(&tell_of, __ATOMIC_ACQUIRE);
	if (!error && tell && seen.argument_bytes + seen.output_bytes - seen.alias_bytes + seen.temporary_bytes >= __atomic_load_n(&tell_from_bytes, __ATOMIC_RELAXED))
		tell(number);
	return error;
}

/* The processor's time of this process and of those that it has started and waited for, ptxas among them. */
static uint64_t processor_nanos(void)
{
	struct rusage used[2];
	uint64_t nanos = 0;

	if (getrusage(RUSAGE_SELF, &used[0]) || getrusage(RUSAGE_CHILDREN, &used[1]))
		return 0;
	for (int i = 0; i < 2; i++)
		nanos += ((uint64_t)used[i].ru_utime.tv_sec + (uint64_t)used[i].ru_stime.tv_sec) * 1000000000u + ((uint64_t)used[i].ru_utime.tv_usec + (uint64_t)used[i].ru_stime.tv_usec) * 1000u;
	return nanos;
}

/* What took less is compiled again sooner than found. */
static const uint64_t worth_keeping_nanos = 20000000;

static void keep(const struct gv_source *source, void *loaded)
{
	struct executable_arguments get = {sizeof get, NULL, loaded, NULL};
	struct serialize_arguments written = {.struct_size = sizeof written};

	if (!succeeds(LOADED_GET_EXECUTABLE, &get))
		return;
	written.executable = get.executable;
	if (succeeds(EXECUTABLE_SERIALIZE, &written)) {
		gv_compiled_keep(source, written.bytes, written.size);
		if (written.release)
			written.release(written.owner);
	}
	succeeds(EXECUTABLE_DESTROY, &(struct destroy_arguments){sizeof(struct destroy_arguments), NULL, get.executable});
}

/* A program that calls Python has the address of what it calls, which is another one in another process. */
static bool calls_python(const struct program *program)
{
	static const char word[] = "callback";

	return memmem(program->code, program->code_size, word, sizeof word - 1) != NULL;
}

static void *compiled(void *arguments)
{
	struct compile_arguments *c = arguments;
	const char *flags = getenv("XLA_FLAGS");
	uint64_t options[2];
	struct gv_source source = {{
		{c->program->code, c->program->code_size},
		{options, sizeof options},
		{flags, flags ? strlen(flags) : 0},
		{plugin_path, strlen(plugin_path)},
	}};
	bool keeps = !calls_python(c->program);
	struct deserialize_arguments found = {.struct_size = sizeof found, .client = c->client};
	void *bytes, *error;
	uint64_t took;

	gv_compiled_options(c->options, c->options_size, options);
	bytes = keeps ? gv_compiled_kept(&source, &found.size) : NULL;
	if (bytes) {
		found.bytes = bytes;
		bool loads = succeeds(DESERIALIZE, &found);
		free(bytes);
		if (loads) {
			c->loaded = found.loaded;
			return NULL;
		}
	}
	took = processor_nanos();
	error = compile(arguments);
	took = processor_nanos() - took;
	__atomic_add_fetch(&compile_nanos, took, __ATOMIC_RELAXED);
	if (!error && keeps && took >= worth_keeping_nanos)
		keep(&source, c->loaded);
	return error;
}

static void *compile_here(void *arguments)
{
	void *error = compiled(arguments);

	if (!error)
		plan_for(((struct compile_arguments *)arguments)->loaded);
	return error;
}

static void *destroy_here(void *arguments)
{
	const void *loaded = ((struct destroy_arguments *)arguments)->executable;
	struct computation *c;
	unsigned *plan;

	pthread_mutex_lock(&lock);
	c = of_executable(loaded);
	if (c)
		c->loaded = NULL;
	plan = plan_of(loaded);
	if (plan)
		*plan = 0;
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
		compile = api->functions[CLIENT_COMPILE];
		from_host = api->functions[BUFFER_FROM_HOST];
		buffer_destroy = api->functions[BUFFER_DESTROY];
		buffer_delete = api->functions[BUFFER_DELETE];
		memcpy(plugin_path, path, sizeof path);
		table = api;
		api->functions[CLIENT_COMPILE] = compile_here;
		api->functions[BUFFER_FROM_HOST] = from_host_here;
		api->functions[BUFFER_DESTROY] = buffer_destroy_here;
		api->functions[BUFFER_DELETE] = buffer_delete_here;
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

/*
 * gresize_pjrt_counts: executions of all, reads of single values and of arrays, the minor version of the interface (minus one where it is none that is
 * known), the nanoseconds of the processor for which XLA compiled, and the most bytes that the program asked for at once.
 */
GV_EXPORT void gresize_pjrt_counts(int64_t to[6])
{
	pthread_mutex_lock(&lock);
	to[0] = (int64_t)executions;
	to[1] = (int64_t)__atomic_load_n(&small_reads, __ATOMIC_RELAXED);
	to[2] = (int64_t)__atomic_load_n(&large_reads, __ATOMIC_RELAXED);
	to[3] = table ? table->version.minor : -1;
	to[4] = (int64_t)__atomic_load_n(&compile_nanos, __ATOMIC_RELAXED);
	to[5] = gv_arrays_most();
	pthread_mutex_unlock(&lock);
}

/* gresize_pjrt_tell has a function called, in the thread that asked for it, behind each execution of at least so many bytes; none any more where it is NULL. */
GV_EXPORT void gresize_pjrt_tell(void (*function)(unsigned), int64_t from_bytes)
{
	__atomic_store_n(&tell_from_bytes, from_bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&tell_of, function, __ATOMIC_RELEASE);
}

/*
 * gresize_pjrt_follow has a function called before each execution of a computation that has a plan, in the thread that asks for it. It is given the
 * plan, the arguments on the first card and their count, and puts down up to room results that it knows; it returns how many.
 */
GV_EXPORT void gresize_pjrt_follow(unsigned (*function)(unsigned plan, void *const *arguments, size_t count, struct gv_result *to, unsigned room))
{
	__atomic_store_n(&follow, function, __ATOMIC_RELEASE);
}

/* gresize_pjrt_compiles says the plan of what this thread compiles next; 0: it has none. */
GV_EXPORT void gresize_pjrt_compiles(unsigned plan)
{
	next_plan = plan;
}
