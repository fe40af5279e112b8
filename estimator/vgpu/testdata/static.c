/* A program with the CUDA runtime linked into it, as JAX and CuPy are: it knows the driver alone, and opens it itself. Run by layouts_test.go. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *driver;

static int (*call(const char *name))()
{
	void *p = dlsym(driver, name);

	if (!p) {
		printf("missing: %s\n", name);
		exit(1);
	}
	return (int (*)())p;
}

int main(void)
{
	void *context, *memory;
	int device, wrong;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		printf("%s\n", dlerror());
		return 1;
	}
	wrong = call("cuInit")(0) || call("cuDeviceGet")(&device, 0) || call("cuDevicePrimaryCtxRetain")(&context, device) || call("cuCtxSetCurrent")(context) ||
		call("cuMemAlloc_v2")(&memory, (size_t)64 << 20) || call("cuMemFree_v2")(memory);
	printf("%s\n", wrong ? "wrong" : "trained");
	return wrong;
}
