/* Shared between the files of libnvidia-ml alone. */
#ifndef GRESIZE_NVML_H
#define GRESIZE_NVML_H

#include "gv.h"

enum {
	NVML_OK = 0,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NOT_SUPPORTED = 3,
	NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7
};

/* A handle is of a card, or of a slice; all slices are of one card. */
void *nvml_card(int card);
void *nvml_slice(int slice);
bool nvml_is_slice(const void *handle);
int nvml_card_of(const void *handle);
int nvml_slice_of(const void *handle);
/* nvml_device_of is the device of CUDA behind a handle: of a card that is cut, the slice that this process sees; -1: none. */
int nvml_device_of(const void *handle);

#endif
