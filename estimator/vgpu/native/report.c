/*
 * What this process asked of the virtual GPU: GRESIZE_VGPU_REPORT_DIR/native-<pid>.json, written when the process ends,
 * when the Python layer asks for it before os._exit, and at once when a symbol without an answer is called, because
 * the zero that it got may crash the program next. A process that never used the GPU leaves no file.
 */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH = 4096 };

static const char *const bound_names[GV_BOUNDS] = {
	[GV_BOUND_CONV] = "conv",
	[GV_BOUND_RNN] = "rnn",
	[GV_BOUND_CTC] = "ctc",
	[GV_BOUND_NORM] = "norm",
	[GV_BOUND_FFT] = "fft",
	[GV_BOUND_SOLVER] = "solver",
	[GV_BOUND_SPARSE] = "sparse",
	[GV_BOUND_DNN_GRAPH] = "dnn_graph",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one report is written at a time */

static bool used(void)
{
	struct gv_counts counts = gv_counts();
	bool any = gv_launches() || gv_pinned_peak_bytes();

	for (int i = 0; i < GV_LIBRARIES; i++)
		any = any || counts.handles[i];
	for (int d = 0; d < GV_MAX_DEVICES; d++)
		any = any || gv_memory_counters(d).peak_bytes || gv_memory_counters(d).refused;
	return any || counts.unanswered;
}

static bool whole; /* all of the report that is being written got into its file; with the lock held */

static void __attribute__((format(printf, 2, 3))) say(FILE *f, const char *form, ...)
{
	va_list words;

	va_start(words, form);
	whole = vfprintf(f, form, words) >= 0 && whole;
	va_end(words);
}

static void write_devices(FILE *f)
{
	const char *separator = "";

	say(f, "\"devices\":[");
	for (int d = 0; d < gv_profile()->devices; d++) {
		struct gv_memory_counters c = gv_memory_counters(d);
		say(f, "%s{\"index\":%d,\"total_bytes\":%llu,\"context_bytes\":%llu,\"in_use_bytes\":%llu,\"peak_bytes\":%llu,\"allocations\":%llu,\"refused\":%llu,\"host_refused\":%llu,\"passed_over\":%llu}",
		    separator, d, (unsigned long long)gv_profile()->total_bytes, (unsigned long long)gv_profile()->context_bytes,
		    (unsigned long long)c.used_bytes, (unsigned long long)c.peak_bytes, (unsigned long long)c.allocations, (unsigned long long)c.refused, (unsigned long long)c.host_refused,
		    (unsigned long long)c.passed_over);
		separator = ",";
	}
	say(f, "],");
}

static void write_usage(FILE *f, const struct gv_counts *counts)
{
	const char *separator = "";

	say(f, "\"libraries\":{");
	for (int i = 0; i < GV_LIBRARIES; i++) {
		if (!counts->handles[i])
			continue;
		say(f, "%s\"%s\":%llu", separator, gv_library_name((enum gv_library)i), (unsigned long long)counts->handles[i]);
		separator = ",";
	}
	say(f, "},\"bounded\":{");
	separator = "";
	for (int i = 0; i < GV_BOUNDS; i++) {
		if (!counts->bounds[i].calls)
			continue;
		say(f, "%s\"%s\":{\"calls\":%llu,\"largest_bytes\":%llu}", separator, bound_names[i],
		    (unsigned long long)counts->bounds[i].calls, (unsigned long long)counts->bounds[i].largest);
		separator = ",";
	}
	say(f, "},\"communicators\":[");
	separator = "";
	for (int i = 0; i < GV_COMMUNICATOR_SIZES && counts->communicators[i].made; i++) {
		say(f, "%s{\"ranks\":%d,\"made\":%llu,\"peers\":%llu}", separator, counts->communicators[i].ranks,
		    (unsigned long long)counts->communicators[i].made, (unsigned long long)counts->communicators[i].peers);
		separator = ",";
	}
	say(f, "],\"unanswered\":{");
	separator = "";
	for (struct gv_unanswered *u = counts->unanswered; u; u = u->next) {
		say(f, "%s\"%s\":%llu", separator, u->name, (unsigned long long)__atomic_load_n(&u->calls, __ATOMIC_RELAXED));
		separator = ",";
	}
	say(f, "}");
}

/* write_report is called with the lock held. Names in it are C identifiers or plain versions: nothing needs escaping. */
static void write_report(const char *directory)
{
	struct gv_counts counts = gv_counts();
	char path[MAX_PATH], part[MAX_PATH];
	int a = snprintf(path, sizeof path, "%s/native-%d.json", directory, (int)getpid());
	int b = snprintf(part, sizeof part, "%s/.native-%d.part", directory, (int)getpid());
	FILE *f;

	if (a < 0 || b < 0 || a >= MAX_PATH || b >= MAX_PATH)
		return;
	f = fopen(part, "we");
	if (!f) {
		unlink(path);
		return;
	}
	whole = true;
	say(f, "{\"schema\":\"gresize.vgpu.native/1\",\"pid\":%d,\"ppid\":%d,\"torch\":\"%s\",\"cuda\":%d,\"cudnn\":%d,\"nccl\":%d,",
	    (int)getpid(), (int)getppid(), gv_torch_version(), gv_cuda_version(), gv_cudnn_version(), gv_nccl_version());
	say(f, "\"launches\":%llu,\"values_read_back\":%llu,\"arrays_read_back\":%llu,\"true_reads\":%llu,\"pinned_peak_bytes\":%llu,",
	    (unsigned long long)gv_launches(), (unsigned long long)counts.small_reads, (unsigned long long)counts.large_reads,
	    (unsigned long long)counts.true_reads, (unsigned long long)gv_pinned_peak_bytes());
	write_devices(f);
	write_usage(f, &counts);
	say(f, "}\n");
	whole = fflush(f) == 0 && whole;
	whole = fclose(f) == 0 && whole;
	if (whole && rename(part, path) == 0)
		return;
	/* An earlier report knows of less, and would be believed: none at all is a lost one. */
	unlink(part);
	unlink(path);
}

GV_EXPORT void gresize_vgpu_flush(void)
{
	const char *directory = getenv("GRESIZE_VGPU_REPORT_DIR");

	if (!directory || !*directory || !used())
		return;
	pthread_mutex_lock(&lock);
	write_report(directory);
	pthread_mutex_unlock(&lock);
}

/* The process has taken device memory for the first time: one that is killed next leaves a report. */
static void first_use(void)
{
	gresize_vgpu_flush();
	gv_python_late();
}

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
	gv_counters_fork(GV_FORK_PREPARE);
	gv_copy_fork(GV_FORK_PREPARE);
	gv_memory_fork(GV_FORK_PREPARE);
}

static void after_fork_parent(void)
{
	gv_memory_fork(GV_FORK_PARENT);
	gv_copy_fork(GV_FORK_PARENT);
	gv_counters_fork(GV_FORK_PARENT);
	pthread_mutex_unlock(&lock);
}

static void after_fork_child(void)
{
	gv_memory_fork(GV_FORK_CHILD);
	gv_copy_fork(GV_FORK_CHILD);
	gv_counters_fork(GV_FORK_CHILD);
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void)
{
	gv_on_first_use = first_use;
	gv_on_unanswered = gresize_vgpu_flush;
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

__attribute__((destructor)) static void finish(void)
{
	gresize_vgpu_flush();
}
