/* Shared between the files of libgresize-vgpu.so alone. */
#ifndef GRESIZE_STATE_H
#define GRESIZE_STATE_H

#include "gv.h"

/* gv_parse reads a decimal number and says whether all of text was one. */
bool gv_parse(const char *text, int64_t *value);
/* gv_environment is the named variable as a number, or fallback when it is unset or no number. */
int64_t gv_environment(const char *name, int64_t fallback);

/*
 * gv_run_once runs function once, also when several threads come first. (pthread_once moved between libraries and versions
 * of the C library; a mutex did not.)
 */
struct gv_once { int done; };
void gv_run_once(struct gv_once *once, void (*function)(void));

struct gv_memory_counters {
	uint64_t used_bytes, peak_bytes, allocations, refused;
	uint64_t host_refused; /* the host had no addresses or pages for what the card had room for */
	uint64_t passed_over;  /* workspaces that the card had no room for, and that nobody got later */
};

struct gv_memory_counters gv_memory_counters(int device);
uint64_t gv_pinned_peak_bytes(void);
const char *gv_library_name(enum gv_library library); /* as a profile and a report call it */
uint64_t gv_launches(void);
bool gv_check_passes(void); /* kernels.c */

/* gv_python_late puts the Python layer into this process if it is an interpreter without it. */
void gv_python_late(void);

/* Called when device memory was taken for the first time, and when a symbol without an answer was first called. report.c sets both. */
extern void (*gv_on_first_use)(void);
extern void (*gv_on_unanswered)(void);

enum { GV_COMMUNICATOR_SIZES = 16 };

/* What was counted so far. Words that are added to without the lock are read whole, and each for itself. */
struct gv_counts {
	uint64_t handles[GV_LIBRARIES];
	struct { uint64_t calls, largest; } bounds[GV_BOUNDS];
	struct {
		int ranks;
		uint64_t made, peers;
	} communicators[GV_COMMUNICATOR_SIZES];
	uint64_t small_reads, large_reads, true_reads, checks;
	struct gv_unanswered *unanswered; /* only grows, but in a forked child */
};

struct gv_counts gv_counts(void);
void gv_count_handle(enum gv_library library);

/* A forked child starts with unlocked locks and counts of its own. */
void gv_memory_fork(int stage);
void gv_copy_fork(int stage);
void gv_counters_fork(int stage);
enum {
	GV_FORK_PREPARE,
	GV_FORK_PARENT,
	GV_FORK_CHILD
};

#endif
