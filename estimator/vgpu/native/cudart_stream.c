/* libcudart: streams, events, and the capture of streams into graphs. */
#include "cudart.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUILT_IN_STREAMS = 3 }; /* the handles 0, 1 and 2: default, legacy, per thread */

struct stream {
	struct stream *next;
	uint64_t id;
	int priority;
	uint64_t capture; /* 0: not capturing */
	void *graph;
};

struct event {
	double milliseconds;
	uint64_t capture;
	void *graph;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream built_in[BUILT_IN_STREAMS];
static struct stream *streams;
static uint64_t last_stream = 100, last_capture;

static struct stream *stream_of(void *handle)
{
	return (uintptr_t)handle < BUILT_IN_STREAMS ? &built_in[(uintptr_t)handle] : handle;
}

bool rt_capturing(void *stream)
{
	return stream_of(stream)->capture != 0;
}

static int new_stream(void **out, int priority)
{
	struct stream *s = gv_new(sizeof *s);

	pthread_mutex_lock(&lock);
	s->id = ++last_stream;
	s->priority = priority;
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&lock);
	*out = s;
	return GV_OK;
}

GV_EXPORT int cudaStreamCreate(void **out)
{
	return new_stream(out, 0);
}

GV_EXPORT int cudaStreamCreateWithFlags(void **out, unsigned flags)
{
	return new_stream(out, 0);
}

GV_EXPORT int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority)
{
	return new_stream(out, priority);
}

GV_EXPORT int cudaStreamDestroy(void *handle)
{
	struct stream **at;

	if ((uintptr_t)handle < BUILT_IN_STREAMS)
		return rt_status(GV_ERROR_INVALID_HANDLE);
	pthread_mutex_lock(&lock);
	for (at = &streams; *at && *at != handle; at = &(*at)->next)
		;
	if (*at)
		*at = (*at)->next;
	pthread_mutex_unlock(&lock);
	free(handle);
	return GV_OK;
}

GV_EXPORT int cudaStreamGetPriority(void *handle, int *priority)
{
	*priority = stream_of(handle)->priority;
	return GV_OK;
}

GV_EXPORT int cudaStreamGetId(void *handle, uint64_t *id)
{
	*id = stream_of(handle)->id;
	return GV_OK;
}

GV_EXPORT int cudaStreamAddCallback(void *handle, void (*callback)(void *, int, void *), void *data, unsigned flags)
{
	callback(handle, GV_OK, data);
	return GV_OK;
}

GV_EXPORT int cudaLaunchHostFunc(void *handle, void (*function)(void *), void *data)
{
	if (!rt_capturing(handle))
		function(data);
	return GV_OK;
}

/* ---- events */

GV_EXPORT int cudaEventCreateWithFlags(void **out, unsigned flags)
{
	*out = gv_new(sizeof(struct event));
	return GV_OK;
}

GV_EXPORT int cudaEventCreate(void **out)
{
	return cudaEventCreateWithFlags(out, 0);
}

GV_EXPORT int cudaIpcOpenEventHandle(void **out, struct ipc_handle handle)
{
	return cudaEventCreateWithFlags(out, 0);
}

GV_EXPORT int cudaEventDestroy(void *event)
{
	free(event);
	return GV_OK;
}

GV_EXPORT int cudaEventRecordWithFlags(struct event *event, void *stream, unsigned flags)
{
	event->milliseconds = gv_device_milliseconds();
	event->capture = stream_of(stream)->capture;
	event->graph = stream_of(stream)->graph;
	return GV_OK;
}

GV_EXPORT int cudaEventRecord(struct event *event, void *stream)
{
	return cudaEventRecordWithFlags(event, stream, 0);
}

GV_EXPORT int cudaEventElapsedTime(float *milliseconds, const struct event *from, const struct event *to)
{
	*milliseconds = (float)(to->milliseconds - from->milliseconds);
	if (*milliseconds < GV_SHORTEST_MILLISECONDS)
		*milliseconds = GV_SHORTEST_MILLISECONDS;
	return GV_OK;
}

GV_EXPORT int cudaEventElapsedTime_v2(float *milliseconds, const struct event *from, const struct event *to)
{
	return cudaEventElapsedTime(milliseconds, from, to);
}

static bool capture_runs(uint64_t capture)
{
	bool runs = false;

	for (int i = 0; i < BUILT_IN_STREAMS; i++)
		runs = runs || built_in[i].capture == capture;
	for (struct stream *s = streams; s; s = s->next)
		runs = runs || s->capture == capture;
	return runs;
}

/* Waiting for an event of a capturing stream draws the waiting stream into that capture. */
GV_EXPORT int cudaStreamWaitEvent(void *handle, const struct event *event, unsigned flags)
{
	struct stream *s = stream_of(handle);

	pthread_mutex_lock(&lock);
	if (event->capture && !s->capture && capture_runs(event->capture)) {
		s->capture = event->capture;
		s->graph = event->graph;
	}
	pthread_mutex_unlock(&lock);
	return GV_OK;
}

/* ---- capture */

static int begin_capture(void *handle, void *graph)
{
	struct stream *s = stream_of(handle);

	pthread_mutex_lock(&lock);
	s->capture = ++last_capture;
	s->graph = graph;
	pthread_mutex_unlock(&lock);
	return GV_OK;
}

GV_EXPORT int cudaStreamBeginCapture(void *handle, int mode)
{
	return begin_capture(handle, gv_new(0));
}

GV_EXPORT int cudaStreamBeginCaptureToGraph(void *handle, void *graph, const void *dependencies, const void *data, size_t count, int mode)
{
	return begin_capture(handle, graph);
}

static void leave_capture(struct stream *s, uint64_t capture)
{
	if (s->capture == capture) {
		s->capture = 0;
		s->graph = NULL;
	}
}

GV_EXPORT int cudaStreamEndCapture(void *handle, void **graph)
{
	uint64_t capture;

	pthread_mutex_lock(&lock);
	capture = stream_of(handle)->capture;
	*graph = stream_of(handle)->graph;
	if (capture) {
		for (int i = 0; i < BUILT_IN_STREAMS; i++)
			leave_capture(&built_in[i], capture);
		for (struct stream *s = streams; s; s = s->next)
			leave_capture(s, capture);
	}
	pthread_mutex_unlock(&lock);
	return GV_OK;
}

GV_EXPORT int cudaStreamIsCapturing(void *handle, int *status)
{
	*status = rt_capturing(handle);
	return GV_OK;
}

static int capture_info(void *handle, int *status, uint64_t *id, void **graph, const void **dependencies, const void **edges, size_t *count)
{
	static const void *no_nodes[1];
	const struct stream *s = stream_of(handle);

	*status = s->capture != 0;
	if (id)
		*id = s->capture;
	if (graph)
		*graph = s->graph;
	if (dependencies)
		*dependencies = no_nodes;
	if (edges)
		*edges = NULL;
	if (count)
		*count = 0;
	return GV_OK;
}

GV_EXPORT int cudaStreamGetCaptureInfo_v2(void *handle, int *status, uint64_t *id, void **graph, const void **dependencies, size_t *count)
{
	return capture_info(handle, status, id, graph, dependencies, NULL, count);
}

GV_EXPORT int cudaStreamGetCaptureInfo_v3(void *handle, int *status, uint64_t *id, void **graph, const void **dependencies, const void **edges, size_t *count)
{
	return capture_info(handle, status, id, graph, dependencies, edges, count);
}

#if GV_SONAME_MAJOR >= 13
GV_EXPORT int cudaStreamGetCaptureInfo(void *handle, int *status, uint64_t *id, void **graph, const void **dependencies, const void **edges, size_t *count)
{
	return capture_info(handle, status, id, graph, dependencies, edges, count);
}
#else
GV_EXPORT int cudaStreamGetCaptureInfo(void *handle, int *status, uint64_t *id)
{
	return capture_info(handle, status, id, NULL, NULL, NULL, NULL);
}
#endif

GV_EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode)
{
	static __thread int current;
	int previous = current;

	current = *mode;
	*mode = previous;
	return GV_OK;
}
