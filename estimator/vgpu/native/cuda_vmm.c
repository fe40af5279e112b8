/*
 * libcuda: virtual memory management, which PyTorch's expandable segments use. Physical memory is a handle that counts
 * against the device; addresses are reserved apart, and mapping one to the other changes neither count.
 */
#include "gv.h"

#include <stdlib.h>

struct physical {
	uint64_t bytes;
	int device;
	int references;
};

enum { LOCATION_DEVICE_WORD = 3 }; /* the allocation properties start: kind, handle kinds, location kind, location id */

GV_EXPORT int cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option)
{
	*bytes = GV_GRANULE;
	return GV_OK;
}

GV_EXPORT int cuMemAddressReserve(void **p, size_t bytes, size_t alignment, void *wish, uint64_t flags)
{
	*p = gv_reserve(bytes, alignment, gv_device());
	return *p ? GV_OK : GV_ERROR_OUT_OF_MEMORY;
}

GV_EXPORT int cuMemAddressFree(void *p, size_t bytes)
{
	return gv_free(p);
}

GV_EXPORT int cuMemCreate(struct physical **handle, size_t bytes, const int *properties, uint64_t flags)
{
	int device = properties ? properties[LOCATION_DEVICE_WORD] : gv_device();
	struct physical *p;

	if (!gv_valid_device(device))
		return GV_ERROR_INVALID_DEVICE;
	if (bytes == 0 || bytes % GV_GRANULE || bytes > (size_t)INT64_MAX)
		return GV_ERROR_INVALID_VALUE;
	if (gv_charge(device, (int64_t)bytes) != GV_OK)
		return GV_ERROR_OUT_OF_MEMORY;
	p = gv_new(sizeof *p);
	p->bytes = bytes;
	p->device = device;
	p->references = 1;
	*handle = p;
	return GV_OK;
}

GV_EXPORT int cuMemRelease(struct physical *p)
{
	if (--p->references > 0)
		return GV_OK;
	gv_charge(p->device, -(int64_t)p->bytes);
	free(p);
	return GV_OK;
}

/*
 * The memory stays charged until it is both released and unmapped; PyTorch unmaps before it releases, so the release
 * alone decides here.
 */
GV_EXPORT int cuMemMap(void *p, size_t bytes, size_t offset, struct physical *handle, uint64_t flags)
{
	return GV_OK;
}

GV_EXPORT int cuMemUnmap(void *p, size_t bytes)
{
	return GV_OK;
}

GV_EXPORT int cuMemSetAccess(void *p, size_t bytes, const void *descriptors, size_t count)
{
	return GV_OK;
}
