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
/* gv_library_loaded takes what the first use of a library takes of the device. */
void gv_library_loaded(int device, enum gv_library library);
/* gv_library_named is the library that a profile calls so; GV_LIBRARIES when there is none. */
enum gv_library gv_library_named(const char *name);
uint64_t gv_launches(void);
bool gv_check_passes(void); /* kernels.c */

/* gv_python_late puts the Python layer into this process if it is an interpreter without it. */
void gv_python_late(void);

/* gv_first_use is told that device memory was taken for the first time: a process that is killed next leaves a report. */
void gv_first_use(void);

/* A forked child starts with unlocked locks and counts of its own. */
void gv_memory_fork(int stage);
void gv_copy_fork(int stage);
void gv_report_fork(int stage);
enum { GV_FORK_PREPARE, GV_FORK_PARENT, GV_FORK_CHILD };

#endif
