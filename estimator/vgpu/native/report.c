/*
 * What this process asked of the virtual GPU: GRESIZE_VGPU_REPORT_DIR/native-<pid>.json, written when the process ends,
 * when the Python layer asks for it before os._exit, and at once when a symbol without an answer is called, because
 * the zero that it got may crash the program next. A process that never used the GPU leaves no file.
 */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH = 4096, MAX_LOOKUPS = 64, MAX_COMMUNICATOR_SIZES = 16, LOOKUP_BYTES = 96 };

static const char *const library_names[GV_LIBRARIES] = {
	[GV_LIB_CUBLAS] = "cublas", [GV_LIB_CUBLASLT] = "cublaslt", [GV_LIB_CUDNN] = "cudnn", [GV_LIB_CUFFT] = "cufft",
	[GV_LIB_CUSOLVER] = "cusolver", [GV_LIB_CUSPARSE] = "cusparse", [GV_LIB_CUSPARSELT] = "cusparselt", [GV_LIB_NCCL] = "nccl",
	[GV_LIB_NVRTC] = "nvrtc", [GV_LIB_NVSHMEM] = "nvshmem", [GV_LIB_CUFILE] = "cufile",
};

static const char *const bound_names[GV_BOUNDS] = {
	[GV_BOUND_CONV] = "conv", [GV_BOUND_RNN] = "rnn", [GV_BOUND_CTC] = "ctc", [GV_BOUND_NORM] = "norm", [GV_BOUND_FFT] = "fft",
	[GV_BOUND_SOLVER] = "solver", [GV_BOUND_SPARSE] = "sparse", [GV_BOUND_DNN_GRAPH] = "dnn_graph",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gv_unanswered *unanswered;
static struct { struct gv_unanswered symbol; char name[LOOKUP_BYTES]; } lookups[MAX_LOOKUPS];
static unsigned lookup_count;
static uint64_t handles[GV_LIBRARIES];
static struct { uint64_t calls, largest; } bounds[GV_BOUNDS];
static struct { int ranks; uint64_t made, peers; } communicators[MAX_COMMUNICATOR_SIZES];
static uint64_t small_reads, large_reads, true_reads, checks;

static uint64_t load(uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void add(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

enum gv_library gv_library_named(const char *name)
{
	int i = 0;

	while (i < GV_LIBRARIES && strcmp(library_names[i], name) != 0)
		i++;
	return (enum gv_library)i;
}

void gv_use(enum gv_library library)
{
	add(&handles[library]);
	gv_library_loaded(gv_device(), library);
}

void gv_count_small_read(void)
{
	add(&small_reads);
}

void gv_count_large_read(void)
{
	add(&large_reads);
}

void gv_count_check(void)
{
	add(&checks);
}

void gv_count_true_read(void)
{
	add(&true_reads);
}

void gv_bounded(enum gv_bound bound, uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	bounds[bound].calls++;
	if (bytes > bounds[bound].largest)
		bounds[bound].largest = bytes;
	pthread_mutex_unlock(&lock);
}

/* of_size is the entry for groups of that size; where there are too many sizes, the last entry holds the largest of them. */
static int of_size(int ranks)
{
	int i = 0;

	while (i < MAX_COMMUNICATOR_SIZES - 1 && communicators[i].made && communicators[i].ranks != ranks)
		i++;
	if (ranks > communicators[i].ranks)
		communicators[i].ranks = ranks;
	return i;
}

void gv_communicator(int ranks)
{
	pthread_mutex_lock(&lock);
	communicators[of_size(ranks)].made++;
	pthread_mutex_unlock(&lock);
}

void gv_communicator_peer(int ranks)
{
	pthread_mutex_lock(&lock);
	communicators[of_size(ranks)].peers++;
	pthread_mutex_unlock(&lock);
}

static bool used(void)
{
	bool any = gv_launches() || gv_pinned_peak_bytes();

	for (int i = 0; i < GV_LIBRARIES; i++)
		any = any || load(&handles[i]);
	for (int d = 0; d < GV_MAX_DEVICES; d++)
		any = any || gv_memory_counters(d).peak_bytes || gv_memory_counters(d).refused;
	return any || unanswered;
}

static void write_devices(FILE *f)
{
	const char *separator = "";

	fputs("\"devices\":[", f);
	for (int d = 0; d < gv_profile()->devices; d++) {
		struct gv_memory_counters c = gv_memory_counters(d);
		fprintf(f, "%s{\"index\":%d,\"total_bytes\":%llu,\"context_bytes\":%llu,\"in_use_bytes\":%llu,\"peak_bytes\":%llu,\"allocations\":%llu,\"refused\":%llu,\"host_refused\":%llu,\"passed_over\":%llu}",
			separator, d, (unsigned long long)gv_profile()->total_bytes, (unsigned long long)gv_profile()->context_bytes,
			(unsigned long long)c.used_bytes, (unsigned long long)c.peak_bytes, (unsigned long long)c.allocations, (unsigned long long)c.refused, (unsigned long long)c.host_refused,
			(unsigned long long)c.passed_over);
		separator = ",";
	}
	fputs("],", f);
}

static void write_usage(FILE *f)
{
	const char *separator = "";

	fputs("\"libraries\":{", f);
	for (int i = 0; i < GV_LIBRARIES; i++) {
		if (!load(&handles[i]))
			continue;
		fprintf(f, "%s\"%s\":%llu", separator, library_names[i], (unsigned long long)load(&handles[i]));
		separator = ",";
	}
	fputs("},\"bounded\":{", f);
	separator = "";
	for (int i = 0; i < GV_BOUNDS; i++) {
		if (!bounds[i].calls)
			continue;
		fprintf(f, "%s\"%s\":{\"calls\":%llu,\"largest_bytes\":%llu}", separator, bound_names[i],
			(unsigned long long)bounds[i].calls, (unsigned long long)bounds[i].largest);
		separator = ",";
	}
	fputs("},\"communicators\":[", f);
	separator = "";
	for (int i = 0; i < MAX_COMMUNICATOR_SIZES && communicators[i].made; i++) {
		fprintf(f, "%s{\"ranks\":%d,\"made\":%llu,\"peers\":%llu}", separator, communicators[i].ranks,
			(unsigned long long)communicators[i].made, (unsigned long long)communicators[i].peers);
		separator = ",";
	}
	fputs("],\"unanswered\":{", f);
	separator = "";
	for (struct gv_unanswered *u = unanswered; u; u = u->next) {
		fprintf(f, "%s\"%s\":%llu", separator, u->name, (unsigned long long)load(&u->calls));
		separator = ",";
	}
	fputs("}", f);
}

/* write_report is called with the lock held. Names in it are C identifiers or plain versions: nothing needs escaping. */
static void write_report(const char *directory)
{
	char path[MAX_PATH], part[MAX_PATH];
	int a = snprintf(path, sizeof path, "%s/native-%d.json", directory, (int)getpid());
	int b = snprintf(part, sizeof part, "%s/.native-%d.part", directory, (int)getpid());
	FILE *f;

	if (a < 0 || b < 0 || a >= MAX_PATH || b >= MAX_PATH)
		return;
	f = fopen(part, "we");
	if (!f)
		return;
	fprintf(f, "{\"schema\":\"gresize.vgpu.native/1\",\"pid\":%d,\"ppid\":%d,\"torch\":\"%s\",\"cuda\":%d,\"cudnn\":%d,\"nccl\":%d,",
		(int)getpid(), (int)getppid(), gv_torch_version(), gv_cuda_version(), gv_cudnn_version(), gv_nccl_version());
	fprintf(f, "\"launches\":%llu,\"values_read_back\":%llu,\"arrays_read_back\":%llu,\"true_reads\":%llu,\"pinned_peak_bytes\":%llu,",
		(unsigned long long)gv_launches(), (unsigned long long)load(&small_reads), (unsigned long long)load(&large_reads),
		(unsigned long long)load(&true_reads), (unsigned long long)gv_pinned_peak_bytes());
	write_devices(f);
	write_usage(f);
	fputs("}\n", f);
	if (fclose(f) == 0)
		rename(part, path);
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

void gv_first_use(void)
{
	gresize_vgpu_flush();
	gv_python_late();
}

GV_EXPORT uint64_t gresize_vgpu_values_read_back(void)
{
	return load(&small_reads);
}

/* gresize_vgpu_unknown_reads counts reads of any size that were not answered by what the host had put there. */
GV_EXPORT uint64_t gresize_vgpu_unknown_reads(void)
{
	return load(&small_reads) + load(&large_reads) + load(&checks);
}

static void count_unanswered(struct gv_unanswered *symbol)
{
	bool first;

	pthread_mutex_lock(&lock);
	first = symbol->calls++ == 0;
	if (first) {
		symbol->next = unanswered;
		unanswered = symbol;
	}
	pthread_mutex_unlock(&lock);
	if (first)
		gresize_vgpu_flush();
}

void gv_unanswered(struct gv_unanswered *symbol)
{
	if (__atomic_load_n(&symbol->calls, __ATOMIC_RELAXED))
		add(&symbol->calls);
	else
		count_unanswered(symbol);
}

static bool plain(const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < length; i++) {
		char c = name[i];
		if (!(c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')))
			return false;
	}
	return length > 0 && length < LOOKUP_BYTES;
}

void gv_unanswered_name(const char *name)
{
	struct gv_unanswered *symbol = NULL;

	if (!plain(name))
		return;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < lookup_count && !symbol; i++)
		symbol = strcmp(lookups[i].name, name) ? NULL : &lookups[i].symbol;
	if (!symbol && lookup_count < MAX_LOOKUPS) {
		memcpy(lookups[lookup_count].name, name, strlen(name) + 1);
		symbol = &lookups[lookup_count].symbol;
		symbol->name = lookups[lookup_count++].name;
	}
	pthread_mutex_unlock(&lock);
	if (symbol)
		gv_unanswered(symbol);
}

void gv_report_fork(int stage)
{
	if (stage == GV_FORK_PREPARE) {
		pthread_mutex_lock(&lock);
		return;
	}
	if (stage == GV_FORK_CHILD) { /* what the parent did is in the parent's report */
		for (struct gv_unanswered *u = unanswered, *next; u; u = next) {
			next = u->next;
			u->calls = 0;
			u->next = NULL;
		}
		unanswered = NULL;
		memset(handles, 0, sizeof handles);
		memset(bounds, 0, sizeof bounds);
		memset(communicators, 0, sizeof communicators);
		small_reads = large_reads = true_reads = checks = 0;
	}
	pthread_mutex_unlock(&lock);
}

static void before_fork(void)
{
	gv_report_fork(GV_FORK_PREPARE);
	gv_copy_fork(GV_FORK_PREPARE);
	gv_memory_fork(GV_FORK_PREPARE);
}

static void after_fork_parent(void)
{
	gv_memory_fork(GV_FORK_PARENT);
	gv_copy_fork(GV_FORK_PARENT);
	gv_report_fork(GV_FORK_PARENT);
}

static void after_fork_child(void)
{
	gv_memory_fork(GV_FORK_CHILD);
	gv_copy_fork(GV_FORK_CHILD);
	gv_report_fork(GV_FORK_CHILD);
}

__attribute__((constructor)) static void start(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

__attribute__((destructor)) static void finish(void)
{
	gresize_vgpu_flush();
}
