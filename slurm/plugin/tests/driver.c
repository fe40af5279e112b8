/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A stand-in for slurmctld: loads job_submit_gresize.so, gives it Slurm's
 * allocator and log, and submits jobs to it as commands on standard input say.
 * Its allocator puts a mark before each block as Slurm's does, and aborts on a
 * pointer that did not come from it.
 *
 *   load                    load the plugin anew, with a fresh breaker
 *   job                     a fresh job as sbatch makes it, without a request
 *   text FIELD HEX          number FIELD N       env HEX...       argv HEX...
 *   big FIELD BYTES         a text of so many bytes
 *   submit UID              calls job_submit: "submit RC NANOSECONDS MESSAGE"
 *   modify                  calls job_modify: "modify RC"
 *   dump                    "job FIELD=VALUE ..." with texts in hex
 *   storm THREADS CALLS     many jobs at once: "storm NANOSECONDS..."
 *   descriptors N           opens no more than N from here on
 *   memory BYTES            the next submissions find no block of so many bytes or more; 0: all they want
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "../slurmapi.h"

#define MARK UINT64_C(0x42c7e1f00d15ea5e)
#define MARK_BYTES 16 /* as Slurm's own header */

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "driver: %s\n", why);
	abort();
}

void *slurm_xcalloc(size_t count, size_t size, bool clear, bool try, const char *file, int line,
		    const char *function)
{
	(void)clear, (void)try, (void)file, (void)line, (void)function;
	char *block = calloc(1, MARK_BYTES + count * size);
	if (!block)
		return NULL;
	memcpy(block, &(uint64_t){MARK}, sizeof(uint64_t));
	return block + MARK_BYTES;
}

void slurm_xfree(void **pointer)
{
	if (!*pointer)
		return;
	char *block = (char *)*pointer - MARK_BYTES;
	if (memcmp(block, &(uint64_t){MARK}, sizeof(uint64_t)) != 0)
		die("slurm_xfree of a pointer that is not Slurm's");
	memset(block, 0, sizeof(uint64_t));
	free(block);
	*pointer = NULL;
}

void slurm_info(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("info: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
}

int slurm_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("error: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	return -1;
}

/* ---- the plugin ---- */

static struct {
	void *handle;
	int (*init)(void);
	int (*fini)(void);
	int (*submit)(job_desc_msg_t *, uint32_t, char **);
#if SLURM_VERSION_NUMBER >= 0x170200
	int (*modify)(job_desc_msg_t *, void *, uint32_t, char **);
#else
	int (*modify)(job_desc_msg_t *, void *, uint32_t);
#endif
} plugin;

static void *symbol(const char *name)
{
	void *address = dlsym(plugin.handle, name);
	if (!address)
		die(name);
	return address;
}

static void load(const char *path)
{
	if (plugin.handle) {
		plugin.fini();
		dlclose(plugin.handle);
	}
	plugin.handle = dlopen(path, RTLD_LAZY);
	if (!plugin.handle)
		die(dlerror());
	*(void **)&plugin.init = symbol("init");
	*(void **)&plugin.fini = symbol("fini");
	*(void **)&plugin.submit = symbol("job_submit");
	*(void **)&plugin.modify = symbol("job_modify");
	if (plugin.init() != SLURM_SUCCESS)
		die("init failed");
}

/* ---- the job ---- */

enum type {
	TEXT,
	U16,
	U32,
	U64,
	TIME,
	U8
};

static const struct {
	const char *name;
	enum type type;
	size_t offset;
} fields[] = {
#define F(type, member) {#member, type, offsetof(job_desc_msg_t, member)}
	/* clang-format off */
	F(TEXT, account),         F(TEXT, admin_comment), F(TEXT, array_inx),
	F(TIME, begin_time),      F(U64, bitflags),       F(TEXT, burst_buffer),
	F(TEXT, clusters),        F(TEXT, comment),       F(U16, contiguous),
	F(TEXT, cpus_per_tres),   F(TIME, deadline),      F(TEXT, dependency),
	F(TEXT, exc_nodes),       F(TEXT, features),      F(U64, fed_siblings_active),
	F(U64, fed_siblings_viable), F(U32, group_id),    F(U32, het_job_offset),
	F(U16, immediate),        F(TEXT, licenses),      F(TEXT, mem_per_tres),
	F(TEXT, name),            F(U32, num_tasks),      F(U8, overcommit),
	F(TEXT, partition),       F(U32, priority),       F(TEXT, qos),
	F(TEXT, req_nodes),       F(U16, requeue),        F(TEXT, reservation),
	F(TEXT, script),          F(U16, shared),         F(U32, time_limit),
	F(TEXT, tres_per_job),    F(TEXT, tres_per_node), F(TEXT, tres_per_socket),
	F(TEXT, tres_per_task),   F(U32, user_id),        F(TEXT, work_dir),
	F(U16, cpus_per_task),    F(U32, min_cpus),       F(U32, min_nodes),
	F(U32, max_nodes),        F(U16, ntasks_per_node), F(U16, ntasks_per_tres),
	F(U16, pn_min_cpus),      F(U64, pn_min_memory),  F(U32, site_factor),
/* clang-format on */
#if SLURM_VERSION_NUMBER >= 0x160500
	F(TEXT, prefer),
#endif
#undef F
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static job_desc_msg_t *job;

static char *string(const char *bytes, size_t length)
{
	char *copy = slurm_xcalloc(length + 1, 1, true, false, "", 0, "");

	if (bytes)
		memcpy(copy, bytes, length);
	return copy;
}

static char *from_hex(const char *hex)
{
	size_t length = strlen(hex) / 2;
	char *bytes = string(NULL, length);

	for (size_t i = 0; i < length; i++) {
		unsigned byte;
		if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
			die("bad hex");
		bytes[i] = (char)byte;
	}
	return bytes;
}

static void free_list(char ***list, uint32_t *count)
{
	for (uint32_t i = 0; *list && i < *count; i++)
		slurm_xfree((void **)&(*list)[i]);
	slurm_xfree((void **)list);
	*count = 0;
}

static void free_job(job_desc_msg_t *old)
{
	if (!old)
		return;
	for (size_t i = 0; i < FIELDS; i++)
		if (fields[i].type == TEXT)
			slurm_xfree((void **)((char *)old + fields[i].offset));
	free_list(&old->environment, &old->env_size);
	free_list(&old->argv, &old->argc);
	free(old);
}

static job_desc_msg_t *new_job(void)
{
	job_desc_msg_t *fresh = calloc(1, sizeof(*fresh));

	/* What slurm_init_job_desc_msg() sets and the plugin looks at. */
	fresh->bitflags = 0;
	fresh->contiguous = NO_VAL16;
	fresh->het_job_offset = NO_VAL;
	fresh->num_tasks = NO_VAL;
	fresh->overcommit = NO_VAL8;
	fresh->priority = NO_VAL;
	fresh->requeue = NO_VAL16;
	fresh->shared = NO_VAL16;
	fresh->site_factor = NO_VAL;
	fresh->time_limit = NO_VAL;
	fresh->cpus_per_task = NO_VAL16;
	fresh->min_cpus = NO_VAL;
	fresh->min_nodes = NO_VAL;
	fresh->max_nodes = NO_VAL;
	fresh->ntasks_per_node = NO_VAL16;
	fresh->ntasks_per_tres = NO_VAL16;
	fresh->pn_min_cpus = NO_VAL16;
	fresh->pn_min_memory = NO_VAL64;
	fresh->user_id = 1000;
	fresh->group_id = 1000;
	return fresh;
}

static void *member(job_desc_msg_t *of, const char *name, enum type *type)
{
	for (size_t i = 0; i < FIELDS; i++)
		if (strcmp(fields[i].name, name) == 0) {
			*type = fields[i].type;
			return (char *)of + fields[i].offset;
		}
	fprintf(stderr, "driver: no field %s\n", name);
	abort();
}

static void set_text(const char *name, char *value)
{
	enum type type;
	char **at = member(job, name, &type);

	if (type != TEXT)
		die("not a text");
	slurm_xfree((void **)at);
	*at = value;
}

static void set_number(const char *name, uint64_t value)
{
	enum type type;
	void *at = member(job, name, &type);

	switch (type) {
	case TEXT: die("not a number");
	case U8: *(uint8_t *)at = (uint8_t)value; break;
	case U16: *(uint16_t *)at = (uint16_t)value; break;
	case U32: *(uint32_t *)at = (uint32_t)value; break;
	case U64: *(uint64_t *)at = value; break;
	case TIME: *(time_t *)at = (time_t)value; break;
	}
}

static void set_list(char ***list, uint32_t *count, char *words)
{
	uint32_t most = 1;

	for (const char *at = words; *at; at++)
		most += *at == ' ';
	free_list(list, count);
	*list = slurm_xcalloc(most + 1, sizeof(char *), true, false, "", 0, "");
	for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
		(*list)[(*count)++] = from_hex(strcmp(word, "-") == 0 ? "" : word);
}

static void print_hex(const char *bytes)
{
	static const char digits[] = "0123456789abcdef";

	for (; *bytes; bytes++) {
		putc_unlocked(digits[(unsigned char)*bytes >> 4], stdout);
		putc_unlocked(digits[(unsigned char)*bytes & 15], stdout);
	}
}

static void print_list(const char *name, char **list, uint32_t count)
{
	printf(" %s=%u:", name, count);
	for (uint32_t i = 0; i < count; i++) {
		print_hex(list[i]);
		putchar(',');
	}
	if (list && list[count])
		die("a list does not end in NULL");
}

static void dump(void)
{
	printf("job");
	for (size_t i = 0; i < FIELDS; i++) {
		void *at = (char *)job + fields[i].offset;

		if (fields[i].type == TEXT && !*(char **)at)
			continue;
		printf(" %s=", fields[i].name);
		switch (fields[i].type) {
		case TEXT: print_hex(*(char **)at); break;
		case U8: printf("%u", *(uint8_t *)at); break;
		case U16: printf("%u", *(uint16_t *)at); break;
		case U32: printf("%u", *(uint32_t *)at); break;
		case U64: printf("%llu", (unsigned long long)*(uint64_t *)at); break;
		case TIME: printf("%lld", (long long)*(time_t *)at); break;
		}
	}
	print_list("environment", job->environment, job->env_size);
	print_list("argv", job->argv, job->argc);
	putchar('\n');
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void submit(uint32_t uid)
{
	char *message = NULL;
	int64_t start = now_ns();
	int rc = plugin.submit(job, uid, &message);
	int64_t took = now_ns() - start;

	printf("submit %d %lld %s\n", rc, (long long)took, message ? message : "");
	slurm_xfree((void **)&message);
}

static void modify(void)
{
	char *message = NULL;
#if SLURM_VERSION_NUMBER >= 0x170200
	int rc = plugin.modify(job, NULL, 0, &message);
#else
	int rc = plugin.modify(job, NULL, 0);
#endif
	printf("modify %d %s\n", rc, message ? message : "");
}

/* ---- want of descriptors and memory ---- */

static void bound_descriptors(rlim_t most)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = most;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("setrlimit");
}

static size_t no_block_from;

/* The plugin's malloc is this one, for the driver is linked with -rdynamic. */
void *malloc(size_t bytes)
{
	return no_block_from && bytes >= no_block_from ? NULL : calloc(1, bytes);
}

/* ---- many threads ---- */

#define STORM_SCRIPT_BYTES 16384

struct worker {
	pthread_t thread;
	int calls;
	int64_t *took;
};

static void *work(void *argument)
{
	struct worker *worker = argument;

	for (int i = 0; i < worker->calls; i++) {
		job_desc_msg_t *mine = new_job();
		char *message = NULL;

		mine->tres_per_node = string("gres:gpu:1", 10);
		mine->script = string(NULL, STORM_SCRIPT_BYTES);
		memset(mine->script, '\n', STORM_SCRIPT_BYTES);
		mine->environment = slurm_xcalloc(4, sizeof(char *), true, false, "", 0, "");
		mine->environment[0] = string("SLURM_GPUS=1", 12);
		mine->environment[1] = string("A=1", 3);
		mine->env_size = 2;
		int64_t start = now_ns();
		if (plugin.submit(mine, 1000, &message) != SLURM_SUCCESS || message)
			die("a job was refused");
		worker->took[i] = now_ns() - start;
		free_job(mine);
	}
	return NULL;
}

static void storm(int threads, int calls)
{
	struct worker *workers = calloc((size_t)threads, sizeof(*workers));

	for (int i = 0; i < threads; i++) {
		workers[i].calls = calls;
		workers[i].took = calloc((size_t)calls, sizeof(int64_t));
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	printf("storm");
	for (int i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		for (int j = 0; j < calls; j++)
			printf(" %lld", (long long)workers[i].took[j]);
		free(workers[i].took);
	}
	putchar('\n');
	free(workers);
}

static void obey(char *line, const char *plugin_path)
{
	char *rest = line + strcspn(line, " ");
	if (*rest)
		*rest++ = '\0';
	char *value = rest + strcspn(rest, " ");

	if (strcmp(line, "load") == 0) {
		load(plugin_path);
	} else if (strcmp(line, "job") == 0) {
		free_job(job);
		job = new_job();
	} else if (strcmp(line, "env") == 0) {
		set_list(&job->environment, &job->env_size, rest);
	} else if (strcmp(line, "argv") == 0) {
		set_list(&job->argv, &job->argc, rest);
	} else if (strcmp(line, "submit") == 0) {
		submit((uint32_t)strtoul(rest, NULL, 10));
	} else if (strcmp(line, "modify") == 0) {
		modify();
	} else if (strcmp(line, "dump") == 0) {
		dump();
	} else if (strcmp(line, "storm") == 0) {
		storm(atoi(rest), atoi(value));
	} else if (strcmp(line, "descriptors") == 0) {
		bound_descriptors(strtoull(rest, NULL, 10));
	} else if (strcmp(line, "memory") == 0) {
		no_block_from = strtoull(rest, NULL, 10);
	} else if (*value == '\0') {
		die("unknown command");
	} else {
		*value++ = '\0';
		if (strcmp(line, "text") == 0) {
			set_text(rest, from_hex(value));
		} else if (strcmp(line, "number") == 0) {
			set_number(rest, strtoull(value, NULL, 10));
		} else if (strcmp(line, "big") == 0) {
			size_t length = strtoull(value, NULL, 10);
			char *text = string(NULL, length);
			memset(text, 'x', length);
			set_text(rest, text);
		} else {
			die("unknown command");
		}
	}
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	if (argc != 2)
		die("usage: driver job_submit_gresize.so");
	load(argv[1]);
	job = new_job();
	while ((length = getline(&line, &room, stdin)) > 0) {
		line[strcspn(line, "\n")] = '\0';
		obey(line, argv[1]);
		fflush(stdout);
	}
	free(line);
	free_job(job);
	plugin.fini();
	dlclose(plugin.handle);
	return 0;
}
