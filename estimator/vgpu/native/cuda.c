/* libcuda: devices, contexts, modules, plain memory, and the look-up of symbols by name. */
#include "gv.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char contexts[GV_MAX_DEVICES][64]; /* the primary context of each device is an address in here */
static __thread void *current_context;

static int device_of_context(const void *context)
{
	for (int d = 0; d < GV_MAX_DEVICES; d++) {
		if (context == contexts[d])
			return d;
	}
	return gv_device();
}

static void *context_now(void)
{
	return current_context ? current_context : contexts[gv_device()];
}

GV_EXPORT int cuInit(unsigned flags)
{
	enum { NO_DEVICE = 100 };

	gv_pjrt_watch();
	return gv_profile()->devices ? GV_OK : NO_DEVICE;
}

GV_EXPORT int cuDriverGetVersion(int *version)
{
	*version = gv_profile()->cuda_driver_version;
	return GV_OK;
}

GV_EXPORT int cuDeviceGetCount(int *count)
{
	*count = gv_profile()->devices;
	return GV_OK;
}

GV_EXPORT int cuDeviceGet(int *device, int ordinal)
{
	if (!gv_valid_device(ordinal))
		return GV_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return GV_OK;
}

GV_EXPORT int cuDeviceGetName(char *name, int bytes, int device)
{
	snprintf(name, (size_t)bytes, "%s", gv_profile()->name);
	return GV_OK;
}

GV_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	*value = gv_attribute(attribute, device);
	return GV_OK;
}

GV_EXPORT int cuDeviceComputeCapability(int *major, int *minor, int device)
{
	*major = gv_profile()->cc_major;
	*minor = gv_profile()->cc_minor;
	return GV_OK;
}

GV_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	*bytes = gv_profile()->total_bytes;
	return GV_OK;
}

GV_EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device)
{
	gv_device_uuid(device, uuid);
	return GV_OK;
}

GV_EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
	return cuDeviceGetUuid(uuid, device);
}

GV_EXPORT int cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
	if (!gv_valid_device(device) || !text || bytes <= 0)
		return GV_ERROR_INVALID_VALUE;
	snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)gv_attribute(GV_ATTR_PCI_BUS, device));
	return GV_OK;
}

GV_EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = device != peer;
	return GV_OK;
}

GV_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
	*flags = 0;
	*active = 1;
	return GV_OK;
}

GV_EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	if (!gv_valid_device(device))
		return GV_ERROR_INVALID_DEVICE;
	*context = contexts[device];
	return GV_OK;
}

GV_EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	return GV_OK;
}

GV_EXPORT int cuCtxGetCurrent(void **context)
{
	*context = context_now();
	return GV_OK;
}

GV_EXPORT int cuCtxSetCurrent(void *context)
{
	current_context = context;
	return GV_OK;
}

GV_EXPORT int cuCtxPushCurrent_v2(void *context)
{
	current_context = context;
	return GV_OK;
}

GV_EXPORT int cuCtxPopCurrent_v2(void **context)
{
	if (context)
		*context = context_now();
	current_context = NULL;
	return GV_OK;
}

GV_EXPORT int cuCtxGetDevice(int *device)
{
	*device = device_of_context(context_now());
	return GV_OK;
}

GV_EXPORT int cuCtxSynchronize(void)
{
	return GV_OK;
}

GV_EXPORT int cuGetErrorString(int error, const char **text)
{
	*text = error == GV_ERROR_OUT_OF_MEMORY ? "out of memory" :
		error == GV_ERROR_INVALID_VALUE ? "invalid argument" :
						  "driver error";
	return GV_OK;
}

GV_EXPORT int cuGetErrorName(int error, const char **name)
{
	*name = error == GV_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" :
		error == GV_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" :
						  "CUDA_ERROR_UNKNOWN";
	return GV_OK;
}

/* ---- modules, kernels */

static int new_handle(void **handle)
{
	*handle = gv_new(0);
	return GV_OK;
}

static void *module_variable(void)
{
	static void *block;

	if (!block)
		block = gv_reserve(GV_MIB, GV_GRANULE, gv_device());
	return block;
}

GV_EXPORT int cuModuleLoadData(void **module, const void *image)
{
	return new_handle(module);
}

GV_EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values)
{
	return new_handle(module);
}

GV_EXPORT int cuModuleLoadFatBinary(void **module, const void *binary)
{
	return new_handle(module);
}

GV_EXPORT int cuModuleLoad(void **module, const char *file)
{
	return new_handle(module);
}

GV_EXPORT int cuModuleUnload(void *module)
{
	free(module);
	return GV_OK;
}

GV_EXPORT int cuModuleGetFunction(void **function, void *module, const char *name)
{
	return new_handle(function);
}

GV_EXPORT int cuModuleGetGlobal_v2(void **p, size_t *bytes, void *module, const char *name)
{
	*p = module_variable();
	if (bytes)
		*bytes = GV_MIB;
	return *p ? GV_OK : GV_ERROR_OUT_OF_MEMORY;
}

GV_EXPORT int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *c, void *d, unsigned m)
{
	return new_handle(library);
}

GV_EXPORT int cuLibraryUnload(void *library)
{
	free(library);
	return GV_OK;
}

GV_EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
	return new_handle(kernel);
}

GV_EXPORT int cuKernelGetFunction(void **function, void *kernel)
{
	*function = kernel;
	return GV_OK;
}

GV_EXPORT int cuLinkCreate_v2(unsigned count, void *options, void *values, void **state)
{
	return new_handle(state);
}

GV_EXPORT int cuLinkAddData_v2(void *state, int kind, void *data, size_t bytes, const char *name, unsigned count, void *options, void *values)
{
	return GV_OK;
}

GV_EXPORT int cuLinkComplete(void *state, void **cubin, size_t *bytes)
{
	static char empty_image[64];

	*cubin = empty_image;
	*bytes = sizeof empty_image;
	return GV_OK;
}

GV_EXPORT int cuLinkDestroy(void *state)
{
	free(state);
	return GV_OK;
}

enum {
	FUNCTION_MAX_THREADS = 0,
	FUNCTION_SHARED = 1,
	FUNCTION_CONSTANT = 2,
	FUNCTION_LOCAL = 3,
	FUNCTION_REGISTERS = 4,
	FUNCTION_MAX_DYNAMIC_SHARED = 8
};

GV_EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function)
{
	enum { REGISTERS_A_THREAD = 32 };

	*value = 0;
	if (attribute == FUNCTION_MAX_THREADS)
		*value = gv_attribute(GV_ATTR_MAX_THREADS_PER_BLOCK, 0);
	else if (attribute == FUNCTION_REGISTERS)
		*value = REGISTERS_A_THREAD;
	else if (attribute == FUNCTION_MAX_DYNAMIC_SHARED)
		*value = gv_attribute(GV_ATTR_SHARED_PER_BLOCK_OPTIN, 0);
	return GV_OK;
}

GV_EXPORT int cuFuncSetAttribute(void *function, int attribute, int value)
{
	return GV_OK;
}

GV_EXPORT int cuFuncSetCacheConfig(void *function, int configuration)
{
	return GV_OK;
}

GV_EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared_bytes)
{
	*blocks = gv_blocks_per_multiprocessor(threads, shared_bytes);
	return GV_OK;
}

GV_EXPORT int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *configuration)
{
	*clusters = gv_attribute(GV_ATTR_MULTIPROCESSORS, 0) / 2;
	return GV_OK;
}

static int launch(unsigned x, unsigned y, unsigned z)
{
	gv_launched_grid(x, y, z);
	return GV_OK;
}

GV_EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments, void **extra)
{
	return launch(gx, gy, gz);
}

GV_EXPORT int cuLaunchKernelEx(const struct gv_dim3 *configuration, void *function, void **arguments, void **extra)
{
	return launch(configuration->x, configuration->y, configuration->z); /* the grid stands first in it */
}

GV_EXPORT int cuLaunchCooperativeKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **arguments)
{
	return launch(gx, gy, gz);
}

GV_EXPORT int cuTensorMapEncodeTiled(void *map)
{
	enum { TENSOR_MAP_BYTES = 128 };

	memset(map, 0, TENSOR_MAP_BYTES);
	return GV_OK;
}

/* ---- plain memory */

enum {
	POINTER_CONTEXT = 1,
	POINTER_MEMORY_KIND = 2,
	POINTER_DEVICE_POINTER = 3,
	POINTER_HOST_POINTER = 4,
	POINTER_BUFFER_ID = 7,
	POINTER_DEVICE_ORDINAL = 9,
	POINTER_RANGE_START = 11,
	POINTER_RANGE_SIZE = 12
};

static void pointer_attribute(void *out, int attribute, void *p, const struct gv_block *block)
{
	enum {
		KIND_HOST = 1,
		KIND_DEVICE = 2
	};

	switch (attribute) {
	case POINTER_CONTEXT:
		*(void **)out = contexts[block->device];
		break;
	case POINTER_MEMORY_KIND:
		*(unsigned *)out = block->kind == GV_DEVICE ? KIND_DEVICE : KIND_HOST;
		break;
	case POINTER_DEVICE_POINTER:
	case POINTER_HOST_POINTER:
		*(void **)out = p;
		break;
	case POINTER_BUFFER_ID:
		*(uint64_t *)out = (uint64_t)(uintptr_t)block->base;
		break;
	case POINTER_DEVICE_ORDINAL:
		*(int *)out = block->device;
		break;
	case POINTER_RANGE_START:
		*(void **)out = block->base;
		break;
	case POINTER_RANGE_SIZE:
		*(size_t *)out = block->bytes;
		break;
	default:
		*(int *)out = 0;
	}
}

GV_EXPORT int cuPointerGetAttribute(void *out, int attribute, void *p)
{
	struct gv_block block;

	if (!gv_find(p, &block))
		return GV_ERROR_INVALID_VALUE;
	pointer_attribute(out, attribute, p, &block);
	return GV_OK;
}

/* Of what is no memory of a card, each attribute is 0, and that is no error. */
static void no_attribute(void *out, int attribute)
{
	switch (attribute) {
	case POINTER_CONTEXT:
	case POINTER_DEVICE_POINTER:
	case POINTER_HOST_POINTER:
	case POINTER_BUFFER_ID:
	case POINTER_RANGE_START:
	case POINTER_RANGE_SIZE:
		*(uint64_t *)out = 0;
		break;
	default:
		*(int *)out = 0;
	}
}

GV_EXPORT int cuPointerGetAttributes(unsigned count, const int *attributes, void **out, void *p)
{
	struct gv_block block;
	int found = gv_find(p, &block);

	for (unsigned i = 0; i < count; i++) {
		if (found)
			pointer_attribute(out[i], attributes[i], p, &block);
		else
			no_attribute(out[i], attributes[i]);
	}
	return GV_OK;
}

GV_EXPORT int cuMemGetAddressRange_v2(void **base, size_t *bytes, void *p)
{
	struct gv_block block;

	if (!gv_find(p, &block))
		return GV_ERROR_INVALID_VALUE;
	if (base)
		*base = block.base;
	if (bytes)
		*bytes = block.bytes;
	return GV_OK;
}

GV_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t available, total;

	gv_memory_info(gv_device(), &available, &total);
	*free_bytes = available;
	*total_bytes = total;
	return GV_OK;
}

GV_EXPORT int cuMemAlloc_v2(void **p, size_t bytes)
{
	*p = gv_alloc(bytes, gv_device(), GV_DEVICE);
	return *p ? GV_OK : GV_ERROR_OUT_OF_MEMORY;
}

GV_EXPORT int cuMemFree_v2(void *p)
{
	return gv_free(p);
}

GV_EXPORT int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cuMemcpyAsync(void *to, const void *from, size_t bytes, void *stream)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cuStreamSynchronize(void *stream)
{
	return GV_OK;
}

GV_EXPORT int cuStreamWriteValue32_v2(void *stream, void *p, unsigned value, unsigned flags)
{
	gv_launched();
	return GV_OK;
}

/* Private tables of the driver are refused: a library that insists on them reports an error of its own. */
GV_EXPORT int cuGetExportTable(const void **table, const void *id)
{
	*table = NULL;
	return GV_ERROR_NOT_FOUND;
}

/* The linker's bounds of the section of default answers: such a function is there to be linked against, not to be found. */
extern const char __start_gv_default[] __attribute__((visibility("hidden")));
extern const char __stop_gv_default[] __attribute__((visibility("hidden")));

static bool default_answer(const void *function)
{
	return (const char *)function >= __start_gv_default && (const char *)function < __stop_gv_default;
}

GV_EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *result)
{
	enum {
		NEWEST_VARIANT = 4,
		MAX_SYMBOL = 128,
		FOUND = 0,
		NOT_FOUND = 1
	};
	char name[MAX_SYMBOL];
	void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	*function = NULL;
	for (int variant = NEWEST_VARIANT; self && variant >= 1 && !*function; variant--) {
		int n = variant > 1 ? snprintf(name, sizeof name, "%s_v%d", symbol, variant) : snprintf(name, sizeof name, "%s", symbol);
		if (n > 0 && n < (int)sizeof name)
			*function = dlsym(self, name);
		if (default_answer(*function))
			*function = NULL;
	}
	if (!*function)
		gv_unanswered_name(symbol);
	if (result)
		*result = *function ? FOUND : NOT_FOUND;
	return *function ? GV_OK : GV_ERROR_NOT_FOUND;
}

GV_EXPORT int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
