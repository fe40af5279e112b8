/* libcudart: graphs. A graph is a handle that can be instantiated and launched; its nodes do nothing. */
#include "cudart.h"

static char the_node[64]; /* every graph shows this one node, so that nobody takes it for empty */

GV_EXPORT int cudaGraphCreate(void **graph, unsigned flags)
{
	*graph = gv_new(0);
	return GV_OK;
}

GV_EXPORT int cudaGraphInstantiate(void **executable, void *graph, uint64_t flags)
{
	*executable = gv_new(0);
	return GV_OK;
}

GV_EXPORT int cudaGraphInstantiateWithFlags(void **executable, void *graph, uint64_t flags)
{
	return cudaGraphInstantiate(executable, graph, flags);
}

GV_EXPORT int cudaGraphLaunch(void *executable, void *stream)
{
	gv_launched();
	return GV_OK;
}

GV_EXPORT int cudaGraphGetNodes(void *graph, void **nodes, size_t *count)
{
	if (nodes && *count)
		nodes[0] = the_node;
	*count = 1;
	return GV_OK;
}

GV_EXPORT int cudaGraphAddNode(void **node, void *graph, const void *dependencies, const void *edges, size_t count, void *parameters)
{
	*node = the_node;
	return GV_OK;
}

GV_EXPORT int cudaGraphNodeGetDependencies(void *node, void **dependencies, void *edges, size_t *count)
{
	*count = 0;
	return GV_OK;
}

GV_EXPORT int cudaGraphConditionalHandleCreate(uint64_t *handle, void *graph, unsigned value, unsigned flags)
{
	*handle = 1;
	return GV_OK;
}

GV_EXPORT int cudaUserObjectCreate(void **object, void *data, void (*destroy)(void *), unsigned references, unsigned flags)
{
	*object = gv_new(0);
	return GV_OK;
}
