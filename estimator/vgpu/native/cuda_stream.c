/* libcuda: limits, streams, events, fills and copies, for programs that use the driver's interface themselves. */
#include "gv.h"

#include <stdlib.h>

int cuCtxGetCurrent(void **context); /* cuda.c */

/* ---- limits: the program reads back what it set */

enum {
	LIMITS = 8,
	LIMIT_STACK = 0,
	LIMIT_PRINTF = 1,
	LIMIT_HEAP = 2,
	LIMIT_DEPTH = 3,
	LIMIT_PENDING = 4,
	LIMIT_FETCH = 5
};

/* The driver's documented defaults. What a larger stack or heap takes is part of the context, which no allocator sees. */
static size_t limits[LIMITS] = {
	[LIMIT_STACK] = 1024,
	[LIMIT_PRINTF] = GV_MIB,
	[LIMIT_HEAP] = 8 * GV_MIB,
	[LIMIT_DEPTH] = 2,
	[LIMIT_PENDING] = 2048,
	[LIMIT_FETCH] = 128,
};

GV_EXPORT int cuCtxGetLimit(size_t *value, unsigned limit)
{
	if (limit >= LIMITS || !value)
		return GV_ERROR_INVALID_VALUE;
	*value = limits[limit];
	return GV_OK;
}

GV_EXPORT int cuCtxSetLimit(unsigned limit, size_t value)
{
	if (limit >= LIMITS)
		return GV_ERROR_INVALID_VALUE;
	limits[limit] = value;
	return GV_OK;
}

GV_EXPORT int cuCtxGetApiVersion(void *context, unsigned *version)
{
	*version = (unsigned)gv_profile()->cuda_driver_version;
	return GV_OK;
}

GV_EXPORT int cuCtxGetFlags(unsigned *flags)
{
	*flags = 0;
	return GV_OK;
}

GV_EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return GV_OK;
}

/* ---- streams: what the libcudart stub reads behind such a handle is zero, a stream without capture or priority */

static int new_stream(void **stream)
{
	*stream = gv_new(0);
	return GV_OK;
}

GV_EXPORT int cuStreamCreate(void **stream, unsigned flags)
{
	return new_stream(stream);
}

GV_EXPORT int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	return new_stream(stream);
}

GV_EXPORT int cuStreamDestroy_v2(void *stream)
{
	free(stream);
	return GV_OK;
}

GV_EXPORT int cuStreamQuery(void *stream)
{
	return GV_OK;
}

GV_EXPORT int cuStreamIsCapturing(void *stream, int *status)
{
	*status = 0;
	return GV_OK;
}

GV_EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	return GV_OK;
}

GV_EXPORT int cuStreamGetCtx(void *stream, void **context)
{
	return cuCtxGetCurrent(context);
}

GV_EXPORT int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data)
{
	function(data);
	return GV_OK;
}

/* ---- events */

struct event { double milliseconds; };

GV_EXPORT int cuEventCreate(struct event **event, unsigned flags)
{
	*event = gv_new(sizeof **event);
	return GV_OK;
}

GV_EXPORT int cuEventDestroy_v2(struct event *event)
{
	free(event);
	return GV_OK;
}

GV_EXPORT int cuEventRecord(struct event *event, void *stream)
{
	event->milliseconds = gv_device_milliseconds();
	return GV_OK;
}

GV_EXPORT int cuEventRecordWithFlags(struct event *event, void *stream, unsigned flags)
{
	return cuEventRecord(event, stream);
}

GV_EXPORT int cuEventQuery(const struct event *event)
{
	return GV_OK;
}

GV_EXPORT int cuEventSynchronize(const struct event *event)
{
	return GV_OK;
}

GV_EXPORT int cuEventElapsedTime(float *milliseconds, const struct event *from, const struct event *to)
{
	float between = (float)(to->milliseconds - from->milliseconds);

	*milliseconds = between > GV_SHORTEST_MILLISECONDS ? between : GV_SHORTEST_MILLISECONDS;
	return GV_OK;
}

/* ---- memory */

static int allocate(void **p, size_t bytes, enum gv_kind kind)
{
	*p = NULL;
	if (!bytes)
		return GV_ERROR_INVALID_VALUE;
	*p = gv_alloc(bytes, gv_device(), kind);
	return *p ? GV_OK : GV_ERROR_OUT_OF_MEMORY;
}

GV_EXPORT int cuMemAllocAsync(void **p, size_t bytes, void *stream)
{
	return allocate(p, bytes, GV_DEVICE);
}

GV_EXPORT int cuMemAllocFromPoolAsync(void **p, size_t bytes, void *pool, void *stream)
{
	return allocate(p, bytes, GV_DEVICE);
}

GV_EXPORT int cuMemFreeAsync(void *p, void *stream)
{
	return gv_free(p);
}

GV_EXPORT int cuMemAllocManaged(void **p, size_t bytes, unsigned flags)
{
	return allocate(p, bytes, GV_MANAGED);
}

GV_EXPORT int cuMemAllocPitch_v2(void **p, size_t *pitch, size_t width, size_t height, unsigned element_bytes)
{
	enum { PITCH = 512 };

	*pitch = (width + PITCH - 1) / PITCH * PITCH;
	if (height && *pitch > (size_t)INT64_MAX / height)
		return GV_ERROR_OUT_OF_MEMORY;
	return allocate(p, *pitch * height, GV_DEVICE);
}

GV_EXPORT int cuMemHostAlloc(void **p, size_t bytes, unsigned flags)
{
	return allocate(p, bytes, GV_HOST);
}

GV_EXPORT int cuMemAllocHost_v2(void **p, size_t bytes)
{
	return allocate(p, bytes, GV_HOST);
}

GV_EXPORT int cuMemFreeHost(void *p)
{
	return gv_free(p);
}

GV_EXPORT int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	return gv_register_host(p, bytes);
}

GV_EXPORT int cuMemHostUnregister(void *p)
{
	return gv_unregister_host(p);
}

GV_EXPORT int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags)
{
	*device = host;
	return GV_OK;
}

static int copy(void *to, const void *from, size_t bytes)
{
	gv_copy(to, from, bytes);
	return GV_OK;
}

GV_EXPORT int cuMemcpy(void *to, const void *from, size_t bytes)
{
	return copy(to, from, bytes);
}

GV_EXPORT int cuMemcpyDtoD_v2(void *to, const void *from, size_t bytes)
{
	return copy(to, from, bytes);
}

GV_EXPORT int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream)
{
	return copy(to, from, bytes);
}

GV_EXPORT int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, void *stream)
{
	return copy(to, from, bytes);
}

GV_EXPORT int cuMemcpyDtoDAsync_v2(void *to, const void *from, size_t bytes, void *stream)
{
	return copy(to, from, bytes);
}

/* fill writes a pattern of width bytes; only one of equal bytes can be kept, another counts as written by a kernel. */
static int fill(void *p, unsigned value, size_t width, size_t count)
{
	unsigned byte = value & 0xff;
	bool equal = width == 1 || (width == 2 && (value & 0xffff) == byte * 0x0101u) || value == byte * 0x01010101u;

	if (equal)
		gv_fill(p, (int)byte, count * width);
	else
		gv_launched();
	return GV_OK;
}

GV_EXPORT int cuMemsetD8_v2(void *p, unsigned char value, size_t count)
{
	return fill(p, value, 1, count);
}

GV_EXPORT int cuMemsetD8Async(void *p, unsigned char value, size_t count, void *stream)
{
	return fill(p, value, 1, count);
}

GV_EXPORT int cuMemsetD16_v2(void *p, unsigned short value, size_t count)
{
	return fill(p, value, 2, count);
}

GV_EXPORT int cuMemsetD16Async(void *p, unsigned short value, size_t count, void *stream)
{
	return fill(p, value, 2, count);
}

GV_EXPORT int cuMemsetD32_v2(void *p, unsigned value, size_t count)
{
	return fill(p, value, 4, count);
}

GV_EXPORT int cuMemsetD32Async(void *p, unsigned value, size_t count, void *stream)
{
	return fill(p, value, 4, count);
}
