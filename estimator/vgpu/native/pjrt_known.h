/* Arrays of few whole numbers whose values are known: the host has put them, or they follow from such by what a computation does with them. */
#ifndef PJRT_KNOWN_H
#define PJRT_KNOWN_H

#include <stddef.h>
#include <stdint.h>

/* Ages begin anew when the program's turns were left out: what was counted before them is too low from then on. */
uint32_t gv_known_age(void);

enum { GV_KNOWN_BYTES = 1024 };

/* The result of a computation: of which plan, and which one. What the host has put there is of no plan. */
struct gv_origin {
	uint32_t plan, output;
};

/*
 * handle is XLA's name of the array, address where its memory is, age that of the oldest of what it follows from. Where there is no room any more, it is as
 * one that is not known.
 */
void gv_known_put(const void *handle, uint64_t address, const void *value, size_t bytes, uint32_t age, struct gv_origin origin);
/* Nothing happens where it is not known. */
void gv_known_gone(const void *handle);

/* For an execution: the Python layer works out what it can of the results, from what is known of the arguments, and what it found is kept with the results. */
struct gv_result {
	uint32_t output, bytes, age;
	unsigned char value[GV_KNOWN_BYTES];
};

#endif
