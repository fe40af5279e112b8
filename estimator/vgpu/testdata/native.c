/* Calls the libcudart and libcuda stubs as a program would and says what is wrong. Built and run by native_test.go. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static int failures;

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("wrong: %s\n", what);
		failures++;
	}
}

static void *runtime, *driver;

static void *symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p) {
		printf("missing: %s\n", name);
		exit(1);
	}
	return p;
}

#define RT(name, ...) ((int (*)())symbol(runtime, #name))(__VA_ARGS__)
#define CU(name, ...) ((int (*)())symbol(driver, #name))(__VA_ARGS__)

static size_t free_bytes(void)
{
	size_t available, total;

	RT(cudaMemGetInfo, &available, &total);
	return available;
}

static void capacity(void)
{
	size_t available, total, before;
	char *a, *b, *c, *again;

	check(RT(cudaMemGetInfo, &available, &total) == 0, "cudaMemGetInfo");
	check(total == 1024 * MIB, "total is that of the environment");
	check(available == 1024 * MIB - 100 * MIB, "the context of the profile is not free");
	before = available;
	check(RT(cudaMalloc, (void **)&a, 3 * MIB) == 0, "cudaMalloc");
	check(before - free_bytes() == 4 * MIB, "3 MiB take two pieces of 2 MiB");
	check(RT(cudaMalloc, (void **)&b, 2 * MIB) == 0 && RT(cudaMalloc, (void **)&c, 2 * MIB) == 0, "more");
	check(a < b && b < c, "addresses ascend");
	RT(cudaFree, a);
	check(RT(cudaMalloc, (void **)&again, 2 * MIB) == 0 && again == a, "the lowest hole is used first");
	check(RT(cudaMalloc, (void **)&a, 2000 * MIB) == 2 && a == NULL, "more than there is: out of memory");
	check(RT(cudaGetLastError) == 2 && RT(cudaGetLastError) == 0, "the error is noted once");
	check(RT(cudaFree, (char *)b + 512) == 1, "an inner address is not freed");
	RT(cudaGetLastError);
	RT(cudaFree, again);
	RT(cudaFree, b);
	RT(cudaFree, c);
	check(free_bytes() == before, "all is free again");
}

static void values(void)
{
	struct dim3 { unsigned x, y, z; } one = {1, 1, 1};
	int64_t out[3] = {9, 9, 9}, in[3] = {3, 1, 2};
	char *d, *e;

	RT(cudaMalloc, (void **)&d, 2 * MIB);
	RT(cudaMalloc, (void **)&e, 2 * MIB);
	RT(cudaMemcpy, out, d, sizeof out, 2);
	check(out[0] == 0 && out[2] == 0, "fresh memory reads as zero");
	RT(cudaMemcpy, d, in, sizeof in, 1);
	RT(cudaMemcpy, out, d, sizeof out, 2);
	check(!memcmp(in, out, sizeof in), "what was copied there is read back");
	RT(cudaMemcpy, e, d, sizeof in, 3);
	memset(out, 9, sizeof out);
	RT(cudaMemcpy, out, e, sizeof out, 2);
	check(!memcmp(in, out, sizeof in), "also after a copy on the device");
	((int (*)(const void *, struct dim3, struct dim3, void **, size_t, void *))symbol(runtime, "cudaLaunchKernel"))(values, one, one, NULL, 0, NULL);
	RT(cudaMemcpy, out, d, sizeof out, 2);
	check(out[0] == 0 && out[1] == 0, "but not after a kernel, which may have written it");
	RT(cudaFree, d);
	RT(cudaFree, e);
}

static void expandable(void)
{
	size_t before = free_bytes(), granularity;
	int properties[8] = {1, 0, 1, 0};
	void *address, *handle;

	check(CU(cuMemGetAllocationGranularity, &granularity, properties, 0) == 0 && granularity == 2 * MIB, "granularity");
	check(CU(cuMemAddressReserve, &address, 4096 * MIB, (size_t)0, NULL, (uint64_t)0) == 0, "addresses beyond the memory can be reserved");
	check(free_bytes() == before, "addresses take no memory");
	check(CU(cuMemCreate, &handle, 20 * MIB, properties, (uint64_t)0) == 0 && before - free_bytes() == 20 * MIB, "physical memory does");
	check(CU(cuMemMap, address, 20 * MIB, (size_t)0, handle, (uint64_t)0) == 0, "map");
	check(CU(cuMemUnmap, address, 20 * MIB) == 0 && CU(cuMemRelease, handle) == 0 && free_bytes() == before, "and is given back");
	check(CU(cuMemCreate, &handle, 2000 * MIB, properties, (uint64_t)0) == 2, "more than there is: out of memory");
	check(CU(cuMemAddressFree, address, 4096 * MIB) == 0, "free the addresses");
}

static void pointers(void)
{
	enum {
		KIND = 2,
		ORDINAL = 9,
		START = 11,
		SIZE = 12
	};
	static const int attributes[] = {KIND, ORDINAL, START, SIZE};
	char *d, on_the_host;
	unsigned kind = 9;
	int ordinal = 9;
	void *start = &on_the_host;
	size_t bytes = 9, granularity = 9;
	void *out[] = {&kind, &ordinal, &start, &bytes};

	RT(cudaMalloc, (void **)&d, 2 * MIB);
	check(CU(cuPointerGetAttributes, 4u, attributes, out, d + MIB) == 0 && kind == 2 && ordinal == 0 && start == d && bytes == 2 * MIB, "attributes of an address of the card");
	check(CU(cuPointerGetAttributes, 4u, attributes, out, &on_the_host) == 0 && kind == 0 && ordinal == 0 && !start && bytes == 0, "of another they are 0, and that is no error");
	check(CU(cuMulticastGetGranularity, &granularity, NULL, 0) == 0 && granularity == 2 * MIB, "granularity of memory for several cards");
	RT(cudaFree, d);
}

static void names(void)
{
	void *f = NULL;
	int result = -1;

	check(RT(cudaGetDriverEntryPointByVersion, "cuMemCreate", &f, 13000u, (uint64_t)0, &result) == 0 && f && result == 0, "a driver symbol by name");
	RT(cudaGetDriverEntryPointByVersion, "cuNoSuchThing", &f, 13000u, (uint64_t)0, &result);
	check(!f && result == 1, "an unknown one is not found");
}

static void forked(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		char *d;
		_exit(RT(cudaMalloc, (void **)&d, 2 * MIB) == 0 && free_bytes() == 1024 * MIB - 100 * MIB - 2 * MIB ? 0 : 1);
	}
	waitpid(child, &status, 0);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a forked child counts for itself");
}

int main(int argc, char **argv)
{
	runtime = dlopen(argv[1], RTLD_NOW);
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (argc < 2 || !runtime || !driver) {
		printf("dlopen: %s\n", dlerror());
		return 1;
	}
	capacity();
	values();
	expandable();
	pointers();
	names();
	forked();
	return failures != 0;
}
