/* What the management library says of slices (MIG). Those that are modelled lie on one card: instances of the GPU from 1 on, each with instance 0 of its compute. */
#include "nvml.h"

#include <string.h>

enum {
	FIRST_GPU_INSTANCE = 1,
	COMPUTE_INSTANCE = 0,
	MOST_SLICES = 7,
	MODE_DISABLED = 0,
	MODE_ENABLED = 1
};

/* Cards that can be cut: data-centre cards from compute capability 8.0 on, whose number ends in 0; others (8.6, 8.9) cannot. */
static bool can_be_cut(void)
{
	return gv_is_slice() || (gv_profile()->cc_major >= 8 && gv_profile()->cc_minor == 0 && gv_profile()->cc_major < 12);
}

GV_EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending)
{
	if (!can_be_cut() || nvml_is_slice(handle))
		return NVML_NOT_SUPPORTED;
	*now = *pending = gv_is_slice() ? MODE_ENABLED : MODE_DISABLED;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count)
{
	*count = can_be_cut() ? MOST_SLICES : 0;
	return nvml_is_slice(handle) ? NVML_INVALID_ARGUMENT : NVML_OK;
}

GV_EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **slice)
{
	if (!can_be_cut() || nvml_is_slice(handle))
		return NVML_NOT_SUPPORTED;
	if (index >= MOST_SLICES)
		return NVML_INVALID_ARGUMENT;
	if (!gv_is_slice() || index >= (unsigned)gv_profile()->physical_devices)
		return NVML_NOT_FOUND;
	*slice = nvml_slice((int)index);
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is)
{
	*is = nvml_is_slice(handle);
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **handle)
{
	if (!nvml_is_slice(slice))
		return NVML_INVALID_ARGUMENT;
	*handle = nvml_card(nvml_card_of(slice));
	return NVML_OK;
}

static int instance(const void *handle, unsigned *out, unsigned number)
{
	if (!nvml_is_slice(handle))
		return NVML_NOT_SUPPORTED;
	*out = number;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { return instance(handle, id, (unsigned)(nvml_slice_of(handle) + FIRST_GPU_INSTANCE)); }
GV_EXPORT int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) { return instance(handle, id, COMPUTE_INSTANCE); }

struct slice_attributes {
	unsigned multiprocessors, copy_engines, decoders, encoders, jpeg_engines, optical_flow_engines, gpu_slices, compute_slices;
	uint64_t memory_mib;
};

GV_EXPORT int nvmlDeviceGetAttributes_v2(void *handle, struct slice_attributes *out)
{
	const struct gv_profile *profile = gv_profile();

	if (!nvml_is_slice(handle))
		return NVML_NOT_SUPPORTED;
	memset(out, 0, sizeof *out);
	out->multiprocessors = (unsigned)profile->attribute[GV_ATTR_MULTIPROCESSORS];
	out->copy_engines = (unsigned)profile->slice.memory_slices;
	out->gpu_slices = out->compute_slices = (unsigned)profile->slice.compute_slices;
	out->memory_mib = profile->total_bytes / GV_MIB;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetAttributes(void *handle, struct slice_attributes *out)
{
	return nvmlDeviceGetAttributes_v2(handle, out);
}
