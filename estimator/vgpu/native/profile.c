/*
 * The modelled device: a flat key=value file named by GRESIZE_VGPU_PROFILE. Keys:
 *   name, cc_major, cc_minor, total_bytes, context_bytes, driver_version, cuda_driver_version, attr.N, library.NAME,
 *   and of a slice mig_profile, mig_card, mig_card_bytes, mig_compute_slices, mig_memory_slices
 * N is the public number of a device attribute, NAME a library (library_names), the value what its first use takes of the card. Unknown keys are left for others; a missing key keeps the built-in
 * value, which is that of an H100 80 GB.
 */
#define _GNU_SOURCE
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 512 };

static struct gv_profile profile = {
	.name = "NVIDIA H100 80GB HBM3",
	.driver_version = "580.65.06",
	.cc_major = 9,
	.cc_minor = 0,
	.cuda_driver_version = 13020,
	.total_bytes = 85017493504,
	.context_bytes = 500 * GV_MIB,
	/* clang-format off */
	.attribute = {
		[1] = 1024, [2] = 1024, [3] = 1024, [4] = 64,           /* threads a block, block size x y z */
		[5] = 2147483647, [6] = 65535, [7] = 65535,             /* grid size x y z */
		[8] = 49152, [9] = 65536, [10] = 32,                    /* shared, constant memory; warp */
		[11] = 2147483647, [12] = 65536, [13] = 1980000,        /* pitch, registers a block, clock kHz */
		[14] = 512, [15] = 1, [16] = 132, [19] = 1,             /* texture alignment, overlap, SMs, map host memory */
		[21] = 131072, [22] = 131072, [23] = 65536,             /* textures */
		[24] = 16384, [25] = 16384, [26] = 16384,
		[30] = 512, [31] = 1, [32] = 1, [33] = 0x1b,            /* surfaces, concurrent kernels, ECC, PCI bus */
		[36] = 2619000, [37] = 5120, [38] = 52428800,           /* memory clock kHz, bus width, L2 bytes */
		[39] = 2048, [40] = 3, [41] = 1, [51] = 32,             /* threads an SM, copy engines, unified addressing */
		[78] = 1, [79] = 1, [80] = 1, [81] = 233472, [82] = 65536, [83] = 1, /* caches, shared and registers an SM */
		[87] = 2, [89] = 1, [90] = 1, [91] = 1, [95] = 1, [96] = 1,
		[97] = 232448, [99] = 1, [102] = 1, [103] = 1,          /* opt-in shared memory, VMM */
		[106] = 32, [108] = 32768000, [109] = 134213632,        /* blocks an SM, L2 persistence, access window */
		[111] = 1024, [112] = 1, [113] = 1, [114] = 1, [115] = 1, [116] = 1,
		[117] = 1, [118] = 100, [119] = 1, [120] = 1, [121] = 1, [125] = 1, [126] = 4, [132] = 1,
	},
	/* clang-format on */
	.devices = 1,
};

static const char *const library_names[GV_LIBRARIES] = {
	[GV_LIB_CUBLAS] = "cublas",
	[GV_LIB_CUBLASLT] = "cublaslt",
	[GV_LIB_CUDNN] = "cudnn",
	[GV_LIB_CUFFT] = "cufft",
	[GV_LIB_CUSOLVER] = "cusolver",
	[GV_LIB_CUSPARSE] = "cusparse",
	[GV_LIB_CUSPARSELT] = "cusparselt",
	[GV_LIB_NCCL] = "nccl",
	[GV_LIB_NVRTC] = "nvrtc",
	[GV_LIB_NVSHMEM] = "nvshmem",
	[GV_LIB_CUFILE] = "cufile",
};

static struct gv_once loaded;
static __thread int current_device;

void gv_run_once(struct gv_once *once, void (*function)(void))
{
	static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* reading the release reads the profile */

	if (__atomic_load_n(&once->done, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&lock);
	if (!once->done) {
		function();
		__atomic_store_n(&once->done, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
}

bool gv_parse(const char *text, int64_t *value)
{
	bool negative = *text == '-';
	int64_t sum = 0;

	if (negative)
		text++;
	if (*text == '\0')
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || sum > (INT64_MAX - 9) / 10)
			return false;
		sum = sum * 10 + (*text - '0');
	}
	*value = negative ? -sum : sum;
	return true;
}

int64_t gv_environment(const char *name, int64_t fallback)
{
	const char *text = getenv(name);
	int64_t value;

	return text && gv_parse(text, &value) ? value : fallback;
}

const char *gv_library_name(enum gv_library library)
{
	return library_names[library];
}

static enum gv_library library_named(const char *name)
{
	int i = 0;

	while (i < GV_LIBRARIES && strcmp(library_names[i], name) != 0)
		i++;
	return (enum gv_library)i;
}

static void copy_text(char to[GV_MAX_NAME], const char *from)
{
	size_t length = strlen(from);

	if (length >= GV_MAX_NAME)
		length = GV_MAX_NAME - 1;
	memcpy(to, from, length);
	to[length] = '\0';
}

static void set_key(const char *key, const char *value)
{
	int64_t number, attribute;
	enum gv_library library;

	char *text = !strcmp(key, "name")           ? profile.name :
		     !strcmp(key, "driver_version") ? profile.driver_version :
		     !strcmp(key, "mig_profile")    ? profile.slice.profile :
		     !strcmp(key, "mig_card")       ? profile.slice.card :
						      NULL;

	if (text) {
		copy_text(text, value);
		return;
	}
	if (!gv_parse(value, &number))
		return;
	if (!strncmp(key, "attr.", 5)) {
		if (gv_parse(key + 5, &attribute) && attribute > 0 && attribute < GV_MAX_ATTRIBUTE &&
		    number >= (attribute == GV_ATTR_NUMA_ID ? -1 : 0) && number <= INT32_MAX)
			profile.attribute[attribute] = (int)number;
		return;
	}
	if (number < 0)
		return;
	if (!strncmp(key, "library.", 8)) {
		library = library_named(key + 8);
		if (library < GV_LIBRARIES)
			profile.library_bytes[library] = (uint64_t)number;
		return;
	}
	if (!strcmp(key, "total_bytes"))
		profile.total_bytes = (uint64_t)number;
	else if (!strcmp(key, "context_bytes"))
		profile.context_bytes = (uint64_t)number;
	else if (!strcmp(key, "mig_card_bytes"))
		profile.slice.card_bytes = (uint64_t)number;
	else if (number > INT32_MAX)
		return;
	else if (!strcmp(key, "cc_major"))
		profile.cc_major = (int)number;
	else if (!strcmp(key, "cc_minor"))
		profile.cc_minor = (int)number;
	else if (!strcmp(key, "mig_compute_slices"))
		profile.slice.compute_slices = (int)number;
	else if (!strcmp(key, "mig_memory_slices"))
		profile.slice.memory_slices = (int)number;
	else if (!strcmp(key, "cuda_driver_version"))
		profile.cuda_driver_version = (int)number;
}

static void read_file(const char *path)
{
	char line[MAX_LINE];
	FILE *f = fopen(path, "re");

	if (!f)
		return;
	while (fgets(line, sizeof line, f)) {
		char *equals = strchr(line, '=');
		line[strcspn(line, "\r\n")] = '\0';
		if (!equals || line[0] == '#')
			continue;
		*equals = '\0';
		set_key(line, equals + 1);
	}
	fclose(f);
}

static int physical_of[GV_MAX_DEVICES]; /* by the number that CUDA gives a device */

/*
 * entry_device is the device that an entry of CUDA_VISIBLE_DEVICES names; -1: none. A UUID may be cut short, as in the driver. A slice is named by a UUID of its own, or in the older form by its
 * card's and its numbers; one that is not known is a real node's, and the next one stands for it.
 */
static int entry_device(const char *entry, int count, int next)
{
	int64_t index;

	if (gv_parse(entry, &index))
		return index >= 0 && index < count ? (int)index : -1;
	if (!strncmp(entry, "MIG-", 4)) {
		char name[GV_UUID_TEXT];
		gv_uuid_text(0, name);
		if (!strncmp(name, entry + 4, strlen(name)) && entry[4 + strlen(name)] == '/') { /* MIG-GPU-…/instance of the GPU, from 1/instance of its compute */
			int instance = entry[4 + strlen(name) + 1] - '0';
			return instance >= 1 && instance <= count ? instance - 1 : -1;
		}
		for (int d = 0; d < count; d++) {
			gv_slice_uuid_text(d, name);
			if (!strcmp(name, entry))
				return d;
		}
		return next < count ? next : -1;
	}
	if (strncmp(entry, "GPU-", 4) || entry[4] == '\0')
		return -1;
	for (int d = 0; d < count; d++) {
		char text[GV_UUID_TEXT];
		gv_uuid_text(d, text);
		if (!strncmp(text, entry, strlen(entry)))
			return d;
	}
	return -1;
}

/*
 * visible is how many of count devices CUDA_VISIBLE_DEVICES leaves: as in the driver, the list ends at the first entry
 * that names none. Without the variable all are visible, in their order.
 */
static int visible(int count)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int n = 0;

	for (int d = 0; d < count; d++)
		physical_of[d] = d;
	if (!list)
		return count;
	while (*list && n < count) {
		char entry[GV_MAX_NAME] = "";
		size_t length = strcspn(list, ",");
		int device;
		if (length < sizeof entry)
			memcpy(entry, list, length);
		device = entry_device(entry, count, n);
		if (device < 0)
			break;
		physical_of[n++] = device;
		list += length + (list[length] == ',');
	}
	return n;
}

static void load(void)
{
	const char *path = getenv("GRESIZE_VGPU_PROFILE");
	int64_t count = gv_environment("GRESIZE_VGPU_COUNT", 1);
	int64_t capacity = gv_environment("GRESIZE_VGPU_CAPACITY_BYTES", 0);

	if (path && *path)
		read_file(path);
	if (capacity > 0)
		profile.total_bytes = (uint64_t)capacity;
	if (profile.context_bytes > profile.total_bytes)
		profile.context_bytes = profile.total_bytes;
	profile.physical_devices = count < 0              ? 0 :
				   count > GV_MAX_DEVICES ? GV_MAX_DEVICES :
							    (int)count;
	profile.devices = visible(profile.physical_devices);
	if (gv_is_slice() && profile.devices > 1) /* CUDA shows a process the first slice alone */
		profile.devices = 1;
	profile.attribute[GV_ATTR_CC_MAJOR] = profile.cc_major;
	profile.attribute[GV_ATTR_CC_MINOR] = profile.cc_minor;
}

const struct gv_profile *gv_profile(void)
{
	gv_run_once(&loaded, load);
	return &profile;
}

bool gv_valid_device(int device)
{
	return device >= 0 && device < gv_profile()->devices;
}

int gv_attribute(int attribute, int device)
{
	if (attribute <= 0 || attribute >= GV_MAX_ATTRIBUTE)
		return 0;
	if (attribute == GV_ATTR_PCI_BUS) /* each device has a bus of its own */
		return gv_profile()->attribute[attribute] + gv_physical(device);
	return gv_profile()->attribute[attribute];
}

int gv_device(void)
{
	return current_device;
}

void gv_set_device(int device)
{
	current_device = device;
}

int gv_physical(int device)
{
	return gv_valid_device(device) ? physical_of[device] : device;
}

int gv_visible(int physical)
{
	for (int d = 0; d < gv_profile()->devices; d++) {
		if (physical_of[d] == physical)
			return d;
	}
	return -1;
}

void gv_uuid(int physical, unsigned char uuid[16])
{
	memset(uuid, 0x11, 16);
	uuid[15] = (unsigned char)(0x11 + physical);
}

static void write_uuid(const char *prefix, const unsigned char u[16], char out[GV_UUID_TEXT])
{
	snprintf(out, GV_UUID_TEXT, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix,
		 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

void gv_uuid_text(int physical, char out[GV_UUID_TEXT])
{
	unsigned char u[16];

	gv_uuid(physical, u);
	write_uuid("GPU", u, out);
}

bool gv_is_slice(void)
{
	return profile.slice.profile[0] != '\0';
}

static void slice_uuid(int physical, unsigned char uuid[16])
{
	memset(uuid, 0x22, 16);
	uuid[15] = (unsigned char)(0x22 + physical);
}

void gv_slice_uuid_text(int physical, char out[GV_UUID_TEXT])
{
	unsigned char u[16];

	slice_uuid(physical, u);
	write_uuid("MIG", u, out);
}

void gv_device_uuid(int device, unsigned char uuid[16])
{
	if (gv_is_slice())
		slice_uuid(gv_physical(device), uuid);
	else
		gv_uuid(gv_physical(device), uuid);
}

/* How many blocks fit on a multiprocessor when registers do not limit it. */
int gv_blocks_per_multiprocessor(int threads, size_t shared_bytes)
{
	const int *attribute = gv_profile()->attribute;
	int most = attribute[GV_ATTR_MAX_BLOCKS_PER_MULTIPROCESSOR];
	int blocks = threads > 0 ? attribute[GV_ATTR_MAX_THREADS_PER_MULTIPROCESSOR] / threads : 1;

	if (shared_bytes > 0) {
		size_t each = shared_bytes + (size_t)attribute[GV_ATTR_RESERVED_SHARED_PER_BLOCK];
		int by_shared = (int)((size_t)attribute[GV_ATTR_SHARED_PER_MULTIPROCESSOR] / each);
		if (by_shared < blocks)
			blocks = by_shared;
	}
	if (blocks > most)
		blocks = most;
	return blocks < 1 ? 1 : blocks;
}

void *gv_new(size_t bytes)
{
	void *p = calloc(1, bytes < 64 ? 64 : bytes);

	if (!p)
		abort(); /* the host is out of memory; a NULL handle would only move the crash */
	return p;
}
