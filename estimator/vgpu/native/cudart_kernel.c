/* libcudart: registration of modules and the launch of kernels, which do nothing. */
#include "cudart.h"

#include <string.h>

/* A launch written as kernel<<<...>>> is a push, a pop and a call of cudaLaunchKernel. */
enum { MAX_NESTED_LAUNCHES = 16 };

static __thread struct {
	struct gv_dim3 grid, block;
	size_t shared_bytes;
	void *stream;
} pushed[MAX_NESTED_LAUNCHES];
static __thread unsigned pushed_count;

GV_EXPORT unsigned __cudaPushCallConfiguration(struct gv_dim3 grid, struct gv_dim3 block, size_t shared_bytes, void *stream)
{
	if (pushed_count == MAX_NESTED_LAUNCHES)
		return GV_ERROR_INVALID_VALUE;
	pushed[pushed_count].grid = grid;
	pushed[pushed_count].block = block;
	pushed[pushed_count].shared_bytes = shared_bytes;
	pushed[pushed_count++].stream = stream;
	return GV_OK;
}

GV_EXPORT int __cudaPopCallConfiguration(struct gv_dim3 *grid, struct gv_dim3 *block, size_t *shared_bytes, void **stream)
{
	if (pushed_count == 0)
		return GV_ERROR_INVALID_VALUE;
	pushed_count--;
	*grid = pushed[pushed_count].grid;
	*block = pushed[pushed_count].block;
	*shared_bytes = pushed[pushed_count].shared_bytes;
	*stream = pushed[pushed_count].stream;
	return GV_OK;
}

GV_EXPORT void **__cudaRegisterFatBinary(void *binary)
{
	return gv_new(0);
}

GV_EXPORT int __cudaGetKernel(void **kernel, const void *function)
{
	*kernel = (void *)(uintptr_t)function;
	return GV_OK;
}

GV_EXPORT int cudaGetFuncBySymbol(void **function, const void *symbol)
{
	*function = (void *)(uintptr_t)symbol;
	return GV_OK;
}

GV_EXPORT void __cudaRegisterFunction(void **binary, const char *function, char *device_function, const char *name, int threads, void *thread, void *block, void *block_size, void *grid_size, int *warp_size)
{
	gv_kernel_named(function, name);
}

static int launch(const void *function, struct gv_dim3 grid)
{
	gv_launched_kernel(function);
	gv_launched_grid(grid.x, grid.y, grid.z);
	return GV_OK;
}

GV_EXPORT int cudaLaunchKernel(const void *function, struct gv_dim3 grid, struct gv_dim3 block, void **arguments, size_t shared_bytes, void *stream)
{
	return launch(function, grid);
}

GV_EXPORT int __cudaLaunchKernel(void *kernel, struct gv_dim3 grid, struct gv_dim3 block, void **arguments, size_t shared_bytes, void *stream)
{
	return launch(kernel, grid);
}

GV_EXPORT int cudaLaunchCooperativeKernel(const void *function, struct gv_dim3 grid, struct gv_dim3 block, void **arguments, size_t shared_bytes, void *stream)
{
	return launch(function, grid);
}

GV_EXPORT int cudaLaunchKernelExC(const struct gv_dim3 *configuration, const void *function, void **arguments)
{
	return launch(function, *configuration); /* the grid stands first in it */
}

/* ---- what a kernel can ask of the device */

enum { REGISTERS_A_THREAD = 32 }; /* no kernel's own figure is known; it limits occupancy nowhere */

struct function_attributes {
	size_t shared_bytes, constant_bytes, local_bytes;
	int max_threads_per_block, registers, ptx_version, binary_version, cache_mode, max_dynamic_shared_bytes, preferred_carveout;
};

GV_EXPORT int cudaFuncGetAttributes(struct function_attributes *out, const void *function)
{
	int version = 10 * gv_profile()->cc_major + gv_profile()->cc_minor;

	memset(out, 0, sizeof *out);
	out->max_threads_per_block = gv_attribute(GV_ATTR_MAX_THREADS_PER_BLOCK, 0);
	out->registers = REGISTERS_A_THREAD;
	out->ptx_version = version;
	out->binary_version = version;
	out->max_dynamic_shared_bytes = gv_attribute(GV_ATTR_SHARED_PER_BLOCK_OPTIN, 0);
	out->preferred_carveout = -1;
	return GV_OK;
}

GV_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared_bytes, unsigned flags)
{
	*blocks = gv_blocks_per_multiprocessor(threads, shared_bytes);
	return GV_OK;
}

GV_EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared_bytes)
{
	*blocks = gv_blocks_per_multiprocessor(threads, shared_bytes);
	return GV_OK;
}

GV_EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const void *configuration)
{
	*clusters = gv_attribute(GV_ATTR_MULTIPROCESSORS, 0) / 2; /* clusters of two */
	return GV_OK;
}

/* ---- modules loaded by hand */

GV_EXPORT int cudaLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *c, void *d, unsigned m)
{
	*library = gv_new(0);
	return GV_OK;
}

GV_EXPORT int cudaLibraryLoadFromFile(void **library, const char *file, void *a, void *b, unsigned n, void *c, void *d, unsigned m)
{
	*library = gv_new(0);
	return GV_OK;
}

GV_EXPORT int cudaLibraryGetKernel(void **kernel, void *library, const char *name)
{
	*kernel = gv_new(0);
	return GV_OK;
}

GV_EXPORT int cudaLibraryGetKernelCount(unsigned *count, void *library)
{
	*count = 1;
	return GV_OK;
}

GV_EXPORT int cudaLibraryGetUnifiedFunction(void **function, void *library, const char *symbol)
{
	*function = gv_new(0);
	return GV_OK;
}

static int variable(void **p, size_t *bytes)
{
	*p = rt_module_variable();
	if (bytes)
		*bytes = GV_MIB;
	return *p ? GV_OK : rt_status(GV_ERROR_OUT_OF_MEMORY);
}

GV_EXPORT int cudaLibraryGetGlobal(void **p, size_t *bytes, void *library, const char *name)
{
	return variable(p, bytes);
}

GV_EXPORT int cudaLibraryGetManaged(void **p, size_t *bytes, void *library, const char *name)
{
	return variable(p, bytes);
}
