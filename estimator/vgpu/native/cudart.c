/* libcudart: devices, properties, errors, memory and copies. */
#include "cudart.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef GV_SONAME_MAJOR
#error "compile with -DGV_SONAME_MAJOR=11, 12 or 13"
#endif

static __thread int last_error;

int rt_status(int status)
{
	if (status)
		last_error = status;
	return status;
}

__attribute__((constructor)) static void tell_major(void)
{
	gv_runtime_loaded(GV_SONAME_MAJOR);
}

/* ---- devices */

GV_EXPORT int cudaGetDeviceCount(int *count)
{
	enum { NO_DEVICE = 100 };

	*count = gv_profile()->devices;
	return *count ? GV_OK : rt_status(NO_DEVICE);
}

GV_EXPORT int cudaGetDevice(int *device)
{
	*device = gv_device();
	return GV_OK;
}

GV_EXPORT int cudaSetDevice(int device)
{
	if (!gv_valid_device(device))
		return rt_status(GV_ERROR_INVALID_DEVICE);
	gv_set_device(device);
	return GV_OK;
}

GV_EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
	if (!gv_valid_device(device))
		return rt_status(GV_ERROR_INVALID_DEVICE);
	*value = gv_attribute(attribute, device);
	return GV_OK;
}

enum {
	PROPERTY_NAME_BYTES = 256,
	PROPERTY_UUID = 256,
	PROPERTY_TOTAL = 288,
	PROPERTIES_BYTES_11 = 728,
	PROPERTIES_BYTES_12 = 1032,
	PROPERTIES_BYTES_13 = 1008
};
enum { PROPERTIES_BYTES = GV_SONAME_MAJOR >= 13 ? PROPERTIES_BYTES_13 :
       GV_SONAME_MAJOR == 12                    ? PROPERTIES_BYTES_12 :
						  PROPERTIES_BYTES_11 };

/* Where a device attribute lies in the properties structure of CUDA 12 and of CUDA 13; -1: not there. That of CUDA 11 is the beginning of 12's. */
/* clang-format off */
static const struct { short attribute, offset_12, offset_13, bytes; } properties[] = {
	{8, 296, 296, 8},    /* shared memory a block */
	{12, 304, 304, 4},   /* registers a block */
	{10, 308, 308, 4},   /* warp size */
	{11, 312, 312, 8},   /* pitch */
	{1, 320, 320, 4},    /* threads a block */
	{2, 324, 324, 4}, {3, 328, 328, 4}, {4, 332, 332, 4}, /* block size */
	{5, 336, 336, 4}, {6, 340, 340, 4}, {7, 344, 344, 4}, /* grid size */
	{13, 348, -1, 4},    /* clock */
	{9, 352, 352, 8},    /* constant memory */
	{75, 360, 360, 4}, {76, 364, 364, 4}, /* compute capability */
	{14, 368, 368, 8}, {51, 376, 376, 8}, /* texture alignment */
	{15, 384, -1, 4},    /* overlap */
	{16, 388, 384, 4},   /* multiprocessors */
	{18, 396, 388, 4},   /* integrated */
	{19, 400, 392, 4},   /* maps host memory */
	{21, 408, 396, 4},   /* one-dimensional texture */
	{30, 568, 552, 8},   /* surface alignment */
	{31, 576, 560, 4},   /* concurrent kernels */
	{32, 580, 564, 4},   /* ECC */
	{33, 584, 568, 4}, {34, 588, 572, 4}, /* PCI bus and device */
	{40, 600, 584, 4},   /* copy engines */
	{41, 604, 588, 4},   /* unified addressing */
	{36, 608, -1, 4}, {37, 612, 592, 4}, /* memory clock, bus width */
	{38, 616, 596, 4}, {108, 620, 600, 4}, /* L2 and what of it may persist */
	{39, 624, 604, 4},   /* threads a multiprocessor */
	{78, 628, 608, 4}, {79, 632, 612, 4}, {80, 636, 616, 4}, /* stream priorities, L1 caches */
	{81, 640, 624, 8}, {82, 648, 632, 4}, /* shared memory and registers a multiprocessor */
	{83, 652, 636, 4}, {86, 664, 648, 4}, {87, 668, -1, 4}, {88, 672, 652, 4}, {89, 676, 656, 4}, {90, 680, 660, 4}, {91, 684, 664, 4},
	{95, 688, 668, 4},   /* cooperative launch */
	{97, 696, 672, 8},   /* shared memory a block by opt-in */
	{106, 712, 688, 4},  /* blocks a multiprocessor */
	{109, 716, 692, 4}, {111, 720, 696, 8}, /* access window, reserved shared memory */
	{99, 728, 704, 4}, {112, 732, 708, 4}, {113, 736, 712, 4}, {114, 740, 716, 4}, {115, 744, 720, 4}, {116, 748, 724, 4},
	{117, 752, 728, 4}, {118, 756, 732, 4}, {119, 760, 736, 4}, {121, 764, 740, 4}, {125, 768, 744, 4}, {120, 772, 748, 4},
};
/* clang-format on */

static int device_properties(char *out, int device)
{
	const struct gv_profile *profile = gv_profile();
	uint64_t total = profile->total_bytes;

	if (!gv_valid_device(device))
		return rt_status(GV_ERROR_INVALID_DEVICE);
	memset(out, 0, PROPERTIES_BYTES);
	snprintf(out, PROPERTY_NAME_BYTES, "%s", profile->name);
	gv_device_uuid(device, (unsigned char *)out + PROPERTY_UUID);
	memcpy(out + PROPERTY_TOTAL, &total, sizeof total);
	for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
		int offset = GV_SONAME_MAJOR >= 13 ? properties[i].offset_13 : properties[i].offset_12;
		int value = gv_attribute(properties[i].attribute, device);
		uint64_t wide = (uint64_t)value;

		if (offset < 0 || offset + properties[i].bytes > PROPERTIES_BYTES)
			continue;
		if (properties[i].bytes == 8)
			memcpy(out + offset, &wide, 8);
		else
			memcpy(out + offset, &value, 4);
	}
	return GV_OK;
}

GV_EXPORT int cudaGetDeviceProperties_v2(char *out, int device)
{
	return device_properties(out, device);
}

GV_EXPORT int cudaGetDeviceProperties(char *out, int device)
{
	return device_properties(out, device);
}

GV_EXPORT int cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
	if (!gv_valid_device(device))
		return rt_status(GV_ERROR_INVALID_DEVICE);
	snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)gv_attribute(GV_ATTR_PCI_BUS, device));
	return GV_OK;
}

GV_EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = device != peer;
	return GV_OK;
}

GV_EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return GV_OK;
}

GV_EXPORT int cudaRuntimeGetVersion(int *version)
{
	*version = gv_cuda_version();
	return GV_OK;
}

GV_EXPORT int cudaDriverGetVersion(int *version)
{
	*version = gv_profile()->cuda_driver_version;
	return GV_OK;
}

/* ---- errors */

GV_EXPORT int cudaGetLastError(void)
{
	int error = last_error;

	last_error = 0;
	return error;
}

GV_EXPORT int cudaPeekAtLastError(void)
{
	return last_error;
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{0, "cudaSuccess", "no error"},
	{1, "cudaErrorInvalidValue", "invalid argument"},
	{2, "cudaErrorMemoryAllocation", "out of memory"},
	{100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
	{101, "cudaErrorInvalidDevice", "invalid device ordinal"},
	{400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
	{500, "cudaErrorSymbolNotFound", "named symbol not found"},
	{600, "cudaErrorNotReady", "device not ready"},
	{801, "cudaErrorNotSupported", "operation not supported"},
};

GV_EXPORT const char *cudaGetErrorString(int error)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		if (errors[i].code == error)
			return errors[i].text;
	}
	return "unrecognized error code";
}

GV_EXPORT const char *cudaGetErrorName(int error)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		if (errors[i].code == error)
			return errors[i].name;
	}
	return "cudaErrorUnknown";
}

/* ---- memory */

static int allocate(void **p, size_t bytes, enum gv_kind kind)
{
	*p = NULL;
	if (!bytes)
		return GV_OK;
	*p = gv_alloc(bytes, gv_device(), kind);
	return *p ? GV_OK : rt_status(GV_ERROR_OUT_OF_MEMORY);
}

static int release(void *p)
{
	return p ? rt_status(gv_free(p)) : GV_OK;
}

GV_EXPORT int cudaMalloc(void **p, size_t bytes)
{
	return allocate(p, bytes, GV_DEVICE);
}

GV_EXPORT int cudaMallocAsync(void **p, size_t bytes, void *stream)
{
	return allocate(p, bytes, GV_DEVICE);
}

GV_EXPORT int cudaMallocFromPoolAsync(void **p, size_t bytes, void *pool, void *stream)
{
	return allocate(p, bytes, GV_DEVICE);
}

GV_EXPORT int cudaMallocManaged(void **p, size_t bytes, unsigned flags)
{
	return allocate(p, bytes, GV_MANAGED);
}

GV_EXPORT int cudaFree(void *p)
{
	return release(p);
}

GV_EXPORT int cudaFreeAsync(void *p, void *stream)
{
	return release(p);
}

GV_EXPORT int cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
	return allocate(p, bytes, GV_HOST);
}

GV_EXPORT int cudaMallocHost(void **p, size_t bytes)
{
	return allocate(p, bytes, GV_HOST);
}

GV_EXPORT int cudaFreeHost(void *p)
{
	return release(p);
}

GV_EXPORT int cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	return rt_status(gv_register_host(p, bytes));
}

GV_EXPORT int cudaHostUnregister(void *p)
{
	return rt_status(gv_unregister_host(p));
}

GV_EXPORT int cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	*device = host;
	return GV_OK;
}

GV_EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t available, total;

	gv_memory_info(gv_device(), &available, &total);
	*free_bytes = available;
	*total_bytes = total;
	return GV_OK;
}

struct pointer_attributes {
	int kind, device;
	void *device_pointer, *host_pointer;
};

GV_EXPORT int cudaPointerGetAttributes(struct pointer_attributes *out, const void *p)
{
	struct gv_block block = {.device = -2, .kind = GV_UNKNOWN};

	gv_find(p, &block);
	out->kind = (int)block.kind;
	out->device = block.device;
	out->device_pointer = block.kind != GV_UNKNOWN ? (void *)(uintptr_t)p : NULL;
	out->host_pointer = block.kind == GV_HOST || block.kind == GV_MANAGED ? (void *)(uintptr_t)p : NULL;
	return GV_OK;
}

GV_EXPORT int cudaMemcpy(void *to, const void *from, size_t bytes, int direction)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int direction, void *stream)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cudaMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height, int direction, void *stream)
{
	for (size_t row = 0; row < height; row++)
		gv_copy(to + row * to_pitch, from + row * from_pitch, width);
	return GV_OK;
}

GV_EXPORT int cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int direction)
{
	return GV_OK;
}

GV_EXPORT int cudaMemset(void *p, int byte, size_t bytes)
{
	gv_fill(p, byte, bytes);
	return GV_OK;
}

GV_EXPORT int cudaMemsetAsync(void *p, int byte, size_t bytes, void *stream)
{
	gv_fill(p, byte, bytes);
	return GV_OK;
}

/* ---- memory pools */

enum { POOL_HANDLE_BASE = 0x1000 };
enum {
	POOL_RESERVED_NOW = 5,
	POOL_RESERVED_PEAK = 6,
	POOL_USED_NOW = 7,
	POOL_USED_PEAK = 8
};

GV_EXPORT int cudaDeviceGetDefaultMemPool(void **pool, int device)
{
	*pool = (void *)(uintptr_t)(POOL_HANDLE_BASE + device);
	return GV_OK;
}

GV_EXPORT int cudaMemPoolGetAttribute(void *pool, int attribute, void *out)
{
	int device = (int)((uintptr_t)pool - POOL_HANDLE_BASE);
	uint64_t value = 0;

	if (!gv_valid_device(device))
		return rt_status(GV_ERROR_INVALID_VALUE);
	if (attribute == POOL_RESERVED_NOW || attribute == POOL_USED_NOW)
		value = gv_used_bytes(device);
	if (attribute == POOL_RESERVED_PEAK || attribute == POOL_USED_PEAK)
		value = gv_peak_bytes(device);
	memcpy(out, &value, attribute >= POOL_RESERVED_NOW - 1 ? 8 : 4); /* the first attributes are 32-bit switches */
	return GV_OK;
}

GV_EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, void *out)
{
	memset(out, 0, 8);
	return GV_OK;
}

/* Variables of a module share one block, which nobody reads. */
void *rt_module_variable(void)
{
	static void *block;

	if (!block)
		block = gv_reserve(GV_MIB, GV_GRANULE, gv_device()); /* what modules take is part of the context */
	return block;
}

GV_EXPORT int cudaGetSymbolAddress(void **p, const void *symbol)
{
	*p = rt_module_variable();
	return *p ? GV_OK : rt_status(GV_ERROR_OUT_OF_MEMORY);
}

/* ---- memory of other processes */

GV_EXPORT int cudaIpcGetMemHandle(struct ipc_handle *handle, void *p)
{
	memset(handle, 0, sizeof *handle);
	memcpy(handle, &p, sizeof p);
	return GV_OK;
}

GV_EXPORT int cudaIpcOpenMemHandle(void **p, struct ipc_handle handle, unsigned flags)
{
	/* The memory counts in the process that owns it: here it is an address range. */
	*p = gv_reserve(GV_GRANULE, GV_GRANULE, gv_device());
	return *p ? GV_OK : rt_status(GV_ERROR_OUT_OF_MEMORY);
}

GV_EXPORT int cudaIpcCloseMemHandle(void *p)
{
	return release(p);
}

GV_EXPORT int cudaIpcGetEventHandle(struct ipc_handle *handle, void *event)
{
	memset(handle, 0, sizeof *handle);
	return GV_OK;
}

/* ---- driver symbols by name */

GV_EXPORT int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, uint64_t flags, int *result)
{
	enum {
		FOUND = 0,
		NOT_FOUND = 1
	};
	int (*lookup)(const char *, void **, int, uint64_t, int *) = NULL;
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_GLOBAL);

	*function = NULL;
	if (driver)
		*(void **)&lookup = dlsym(driver, "cuGetProcAddress_v2");
	if (lookup)
		lookup(symbol, function, (int)version, flags, NULL);
	if (result)
		*result = *function ? FOUND : NOT_FOUND;
	return GV_OK;
}

GV_EXPORT int cudaGetDriverEntryPoint(const char *symbol, void **function, uint64_t flags, int *result)
{
	return cudaGetDriverEntryPointByVersion(symbol, function, (unsigned)gv_cuda_version(), flags, result);
}
