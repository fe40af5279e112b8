/*
 * What the stub libraries of the virtual GPU ask of their shared state, libgresize-vgpu.so. All declarations are our
 * own; the layouts and numbers of the interfaces that are stood in for are facts of their published documentation.
 */
#ifndef GRESIZE_GV_H
#define GRESIZE_GV_H

#include "glibc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GV_EXPORT __attribute__((visibility("default")))

enum {
	GV_MAX_DEVICES = 16,
	GV_MAX_ATTRIBUTE = 192,  /* device attributes are numbered 1 to about 150 */
	GV_MAX_NAME = 96,
	GV_SMALL_READ_BYTES = 64 /* a read back of at most this many bytes is a value, not an array */
};

#define GV_KIB ((uint64_t)1 << 10)
#define GV_MIB ((uint64_t)1 << 20)
#define GV_GRANULE (2 * GV_MIB) /* the driver hands out device memory in pieces of this size */

/* Status codes that the runtime and the driver library share. */
enum {
	GV_OK = 0,
	GV_ERROR_INVALID_VALUE = 1,
	GV_ERROR_OUT_OF_MEMORY = 2,
	GV_ERROR_INVALID_DEVICE = 101,
	GV_ERROR_INVALID_HANDLE = 400,
	GV_ERROR_NOT_FOUND = 500,
	GV_ERROR_NOT_SUPPORTED = 801
};

/* ---- the modelled device (profile.c) */

enum gv_library {
	GV_LIB_CUBLAS,
	GV_LIB_CUBLASLT,
	GV_LIB_CUDNN,
	GV_LIB_CUFFT,
	GV_LIB_CUSOLVER,
	GV_LIB_CUSPARSE,
	GV_LIB_CUSPARSELT,
	GV_LIB_NCCL,
	GV_LIB_NVRTC,
	GV_LIB_NVSHMEM,
	GV_LIB_CUFILE,
	GV_LIBRARIES
};

/* A card of which the device is a slice (MIG); no slice where its profile is empty. */
struct gv_slice {
	char profile[GV_MAX_NAME]; /* 3g.20gb */
	char card[GV_MAX_NAME];
	uint64_t card_bytes;
	int compute_slices, memory_slices;
};

struct gv_profile {
	struct gv_slice slice;
	char name[GV_MAX_NAME];
	char driver_version[GV_MAX_NAME];
	int cc_major, cc_minor;
	int cuda_driver_version; /* 12040 is CUDA 12.4 */
	uint64_t total_bytes;
	uint64_t context_bytes;
	uint64_t library_bytes[GV_LIBRARIES]; /* what the first use of a library takes of the card */
	int attribute[GV_MAX_ATTRIBUTE];
	int devices;          /* those that CUDA_VISIBLE_DEVICES leaves */
	int physical_devices; /* all: NVML and nvidia-smi count these */
};

/* Device attributes that the stubs use themselves, by their public numbers. */
enum {
	GV_ATTR_MAX_THREADS_PER_BLOCK = 1,
	GV_ATTR_PCI_BUS = 33,
	GV_ATTR_MULTIPROCESSORS = 16,
	GV_ATTR_COMPUTE_MODE = 20,
	GV_ATTR_MAX_THREADS_PER_MULTIPROCESSOR = 39,
	GV_ATTR_CC_MAJOR = 75,
	GV_ATTR_CC_MINOR = 76,
	GV_ATTR_SHARED_PER_MULTIPROCESSOR = 81,
	GV_ATTR_SHARED_PER_BLOCK_OPTIN = 97,
	GV_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
	GV_ATTR_RESERVED_SHARED_PER_BLOCK = 111,
	GV_ATTR_NUMA_ID = 131 /* of the card's memory; -1: it is no node */
};

GV_EXPORT const struct gv_profile *gv_profile(void);
GV_EXPORT int gv_attribute(int attribute, int device);
GV_EXPORT bool gv_valid_device(int device);
GV_EXPORT int gv_device(void);
GV_EXPORT void gv_set_device(int device);
GV_EXPORT int gv_blocks_per_multiprocessor(int threads, size_t shared_bytes);
GV_EXPORT void gv_device_uuid(int device, unsigned char uuid[16]);
GV_EXPORT int gv_physical(int device);   /* the card behind a device of CUDA */
GV_EXPORT int gv_visible(int physical);  /* the device of CUDA that a card is; -1 when it is hidden */
enum { GV_UUID_TEXT = 64 };
GV_EXPORT void gv_uuid(int physical, unsigned char uuid[16]);
GV_EXPORT void gv_uuid_text(int physical, char out[GV_UUID_TEXT]);
GV_EXPORT void gv_slice_uuid_text(int slice, char out[GV_UUID_TEXT]);
GV_EXPORT bool gv_is_slice(void); /* whether the modelled device is one */

/* ---- memory (memory.c) */

enum gv_kind {
	GV_UNKNOWN = 0,
	GV_HOST = 1,
	GV_DEVICE = 2,
	GV_MANAGED = 3
};

struct gv_block {
	char *base;
	size_t bytes;
	int device;
	enum gv_kind kind;
	bool owned;    /* ours to unmap; registered host memory is not */
	bool charged;  /* counts against the device's memory; a bare address range does not */
	bool readable; /* false when the system granted addresses only */
};

GV_EXPORT void *gv_alloc(size_t bytes, int device, enum gv_kind kind); /* NULL: out of memory */
GV_EXPORT void *gv_reserve(size_t bytes, size_t alignment, int device); /* addresses without memory */
GV_EXPORT int gv_register_host(void *base, size_t bytes);
GV_EXPORT int gv_unregister_host(void *base);
GV_EXPORT int gv_free(void *base);
GV_EXPORT bool gv_find(const void *p, struct gv_block *block);
GV_EXPORT int gv_charge(int device, int64_t bytes); /* GV_OK or GV_ERROR_OUT_OF_MEMORY */
GV_EXPORT void gv_memory_info(int device, uint64_t *free_bytes, uint64_t *total_bytes);
/* gv_offer_workspace is told of a workspace that a library's plan asks for: PyTorch goes on without one that does not fit. */
GV_EXPORT void gv_offer_workspace(int64_t bytes);
GV_EXPORT void gv_use(enum gv_library library); /* one more handle of it; the first takes what the library takes of the card */
GV_EXPORT uint64_t gv_used_bytes(int device);
GV_EXPORT uint64_t gv_peak_bytes(int device);

/* ---- values (copy.c) */

GV_EXPORT void gv_copy(void *to, const void *from, size_t bytes);
GV_EXPORT void gv_fill(void *to, int byte, size_t bytes);
GV_EXPORT bool gv_peek(void *to, const void *from, size_t bytes); /* false: the value is not known, and to is as it was */
GV_EXPORT void gv_forget(const void *at, size_t bytes); /* something wrote there that is not known */
GV_EXPORT void gv_kernel_named(const void *function, const char *name); /* a kernel of the program; the name stays where it is */
GV_EXPORT void gv_launched_kernel(const void *function); /* which kernel this thread launched last */
GV_EXPORT void gv_launched(void); /* something that may write any device memory was started */
GV_EXPORT void gv_launched_grid(uint64_t x, uint64_t y, uint64_t z); /* so was a kernel with that many blocks */
GV_EXPORT double gv_device_milliseconds(void);
#define GV_SHORTEST_MILLISECONDS 1.0f /* between two events: programs divide by it */

/* ---- what the run used (counters.c) */

/* Sizes that are a model, not the library's own answer. */
enum gv_bound {
	GV_BOUND_CONV,
	GV_BOUND_RNN,
	GV_BOUND_CTC,
	GV_BOUND_NORM,
	GV_BOUND_FFT,
	GV_BOUND_SOLVER,
	GV_BOUND_SPARSE,
	GV_BOUND_DNN_GRAPH,
	GV_BOUNDS
};

struct gv_unanswered {
	const char *name;
	uint64_t calls;
	struct gv_unanswered *next;
};

GV_EXPORT void gv_communicator(int ranks); /* one more group of GPUs that talk to each other */
GV_EXPORT void gv_communicator_peer(int ranks); /* in a group of that size, the first data from one GPU to one other */
GV_EXPORT void gv_bounded(enum gv_bound bound, uint64_t bytes);
GV_EXPORT void gv_unanswered(struct gv_unanswered *symbol);
GV_EXPORT void gv_unanswered_name(const char *name); /* for a name that was looked up and not found */
GV_EXPORT void gv_count_small_read(void);
GV_EXPORT void gv_count_large_read(void);
GV_EXPORT void gv_count_check(void); /* a read of one byte that was answered as true */
GV_EXPORT void gv_count_true_read(void);

/* ---- JAX (pjrt.c) */

GV_EXPORT void gv_pjrt_watch(void); /* from here on it is seen what XLA's plugin executes, if it is in this process */

/* ---- the PyTorch release in this process (release.c) */

GV_EXPORT void gv_runtime_loaded(int cuda_major); /* told by the libcudart stub when it is loaded */
GV_EXPORT int gv_cuda_major(void);
GV_EXPORT int gv_cuda_version(void);  /* 12040 */
GV_EXPORT int gv_cudnn_version(void); /* 90100 */
GV_EXPORT int gv_nccl_version(void);  /* 22105 */
GV_EXPORT const char *gv_torch_version(void);

/* ---- small things */

GV_EXPORT void *gv_new(size_t bytes); /* a zeroed handle of at least 64 bytes; never NULL */

struct gv_dim3 { unsigned x, y, z; };

#endif
