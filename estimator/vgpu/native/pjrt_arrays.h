/* What happened to XLA's arrays on one card, in its order: for the Python layer, which writes it down. */
#ifndef PJRT_ARRAYS_H
#define PJRT_ARRAYS_H

#include <stdint.h>

enum gv_array_kind {
	GV_ARRAY_MOVED = 1,
	GV_ARRAY_MADE,
	GV_ARRAY_USED,
	GV_ARRAY_GONE,
	GV_EXECUTION_BEGINS,
	GV_EXECUTION_ENDS
};

/* An array was moved to the card by the program, made by a computation, used by one as an argument. handle is XLA's name of the array. */
void gv_array_moved(const void *handle, uint64_t address, int64_t bytes);
void gv_array_made(const void *handle, uint64_t address, int64_t bytes, unsigned computation, unsigned position);
void gv_array_used(const void *handle, uint64_t address, int64_t bytes, unsigned computation, unsigned position);
/* The program gave it up, or gave it away to a computation. Nothing happens where it is not known. */
void gv_array_gone(const void *handle);
int gv_array_known(const void *handle);
/* bytes are those of the temporaries; results, what it makes beside the arrays that it is given. */
void gv_execution(enum gv_array_kind kind, unsigned computation, int64_t bytes, int64_t results);
/* The most that arrays, and the temporaries and results of an execution, came to at once: what the program asks for, whenever XLA gives memory back. */
int64_t gv_arrays_most(void);

#endif
