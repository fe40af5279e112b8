/* Shared between the files of the libnccl stub. */
#ifndef GRESIZE_NCCL_H
#define GRESIZE_NCCL_H

#include "nccl_exchange.h"

struct communicator {
	int ranks, rank;
	char id[EXCHANGE_ID_BYTES];
	struct exchange *exchange; /* NULL: this rank is alone */
	uint64_t posted;           /* collectives so far */
	uint64_t splits;
	bool *met;                 /* peers that were sent to or received from */
	uint64_t *sent, *received; /* messages so far, for each peer */
};

/* exchanged posts bytes of host memory and calls take once for each rank that answers, in the order of the ranks. */
void nccl_exchange_host(struct communicator *c, const void *mine, size_t bytes, void (*take)(void *context, int rank, const void *data), void *context);

#endif
