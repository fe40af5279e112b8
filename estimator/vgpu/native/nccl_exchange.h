/* Small data between the ranks of a communicator that run on this machine: see nccl_exchange.c. */
#ifndef GRESIZE_NCCL_EXCHANGE_H
#define GRESIZE_NCCL_EXCHANGE_H

#include "gv.h"

enum { EXCHANGE_ID_BYTES = 128 };
#define EXCHANGE_MOST_BYTES (64 * GV_KIB) /* what copy.c keeps; larger data nobody reads on the host */

struct exchange;

/*
 * exchange_open joins the communicator of that name, NULL when there is nowhere to meet. present says which ranks exist as
 * processes; NULL: all.
 */
struct exchange *exchange_open(const char id[EXCHANGE_ID_BYTES], int ranks, int rank, const bool *present);
void exchange_close(struct exchange *x);

/* exchange_post publishes what this rank contributes under a number that grows by one from 1; data NULL: its value is not known. */
void exchange_post(struct exchange *x, uint64_t number, const void *data, size_t bytes);
/* exchange_send does so for one receiver, with numbers of their own. */
void exchange_send(struct exchange *x, int to, uint64_t number, const void *data, size_t bytes);

enum exchange_answer {
	EXCHANGE_KNOWN,
	EXCHANGE_NOT_KNOWN,
	EXCHANGE_ABSENT
};

/* exchange_fetch waits for what another rank posts; it gives up when that rank is not there, has ended, or never comes. */
enum exchange_answer exchange_fetch(struct exchange *x, int from, uint64_t number, void *data, size_t bytes);
enum exchange_answer exchange_receive(struct exchange *x, int from, uint64_t number, void *data, size_t bytes);

#endif
