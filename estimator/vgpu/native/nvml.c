/* libnvidia-ml: what PyTorch, pynvml and monitoring code ask of the management library. */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int text_answer(char *out, unsigned bytes, const char *text)
{
	if (strlen(text) >= bytes)
		return NVML_INSUFFICIENT_SIZE;
	memcpy(out, text, strlen(text) + 1);
	return NVML_OK;
}

enum { SLICE_BIT = 1 << 12 };

void *nvml_card(int card)
{
	return (void *)(uintptr_t)(card + 1);
}

void *nvml_slice(int slice)
{
	return (void *)(uintptr_t)((slice + 1) | SLICE_BIT);
}

bool nvml_is_slice(const void *handle)
{
	return (uintptr_t)handle & SLICE_BIT;
}

int nvml_card_of(const void *handle)
{
	return nvml_is_slice(handle) ? 0 : (int)(uintptr_t)handle - 1;
}

int nvml_slice_of(const void *handle)
{
	return (int)((uintptr_t)handle & ~(uintptr_t)SLICE_BIT) - 1;
}

int nvml_device_of(const void *handle)
{
	if (nvml_is_slice(handle))
		return gv_visible(nvml_slice_of(handle));
	if (gv_is_slice())
		return gv_profile()->devices ? 0 : -1;
	return gv_visible(nvml_card_of(handle));
}

static int cards(void)
{
	int devices = gv_profile()->physical_devices;

	return gv_is_slice() && devices > 1 ? 1 : devices;
}

static int bus_number(int card)
{
	return gv_profile()->attribute[GV_ATTR_PCI_BUS] + card;
}

/* memory_of is that of a card, whatever of it this process sees as a device of CUDA. */
static void memory_of(const void *handle, uint64_t *available, uint64_t *total)
{
	int device = nvml_device_of(handle);
	uint64_t used;

	*available = *total = gv_profile()->total_bytes;
	if (device >= 0)
		gv_memory_info(device, available, total);
	if (!gv_is_slice() || nvml_is_slice(handle))
		return;
	used = *total - *available; /* what its slice uses, of the whole card */
	*total = gv_profile()->slice.card_bytes;
	*available = *total > used ? *total - used : 0;
}

static void bus_text(int device, char out[32])
{
	snprintf(out, 32, "00000000:%02X:00.0", (unsigned)bus_number(device));
}

GV_EXPORT int nvmlInit(void) { return NVML_OK; }
GV_EXPORT int nvmlInit_v2(void) { return NVML_OK; }
GV_EXPORT int nvmlInitWithFlags(unsigned flags) { return NVML_OK; }
GV_EXPORT int nvmlShutdown(void) { return NVML_OK; }

GV_EXPORT const char *nvmlErrorString(int error)
{
	return error == NVML_OK            ? "Success" :
	       error == NVML_NOT_SUPPORTED ? "Not Supported" :
	       error == NVML_NOT_FOUND     ? "Not Found" :
					     "Invalid Argument";
}

GV_EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned bytes)
{
	return text_answer(out, bytes, gv_profile()->driver_version);
}

GV_EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned bytes)
{
	char text[GV_MAX_NAME + 16];

	snprintf(text, sizeof text, "%d.%s", gv_profile()->cuda_driver_version / 1000, gv_profile()->driver_version);
	return text_answer(out, bytes, text);
}

GV_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = gv_profile()->cuda_driver_version;
	return NVML_OK;
}

GV_EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

GV_EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = (unsigned)cards();
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetCount(unsigned *count)
{
	return nvmlDeviceGetCount_v2(count);
}

GV_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
	if (index >= (unsigned)cards())
		return NVML_INVALID_ARGUMENT;
	*handle = nvml_card((int)index);
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **handle)
{
	return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

GV_EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
	char text[64];

	for (int d = 0; d < gv_profile()->physical_devices; d++) {
		gv_uuid_text(d, text);
		if (d < cards() && !strcmp(text, uuid)) {
			*handle = nvml_card(d);
			return NVML_OK;
		}
		gv_slice_uuid_text(d, text);
		if (gv_is_slice() && !strcmp(text, uuid)) {
			*handle = nvml_slice(d);
			return NVML_OK;
		}
	}
	return NVML_NOT_FOUND;
}

/* The bus id is compared without its domain, which callers write with four or with eight digits. */
GV_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle)
{
	const char *colon = strchr(bus, ':');
	char text[32];

	for (int d = 0; colon && d < cards(); d++) {
		bus_text(d, text);
		if (!strncasecmp(strchr(text, ':'), colon, 6)) {
			*handle = nvml_card(d);
			return NVML_OK;
		}
	}
	return NVML_NOT_FOUND;
}

GV_EXPORT int nvmlDeviceGetHandleByPciBusId(const char *bus, void **handle)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus, handle);
}

GV_EXPORT int nvmlDeviceGetIndex(void *handle, unsigned *index)
{
	*index = (unsigned)nvml_card_of(handle);
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
	*minor = (unsigned)nvml_card_of(handle);
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetName(void *handle, char *out, unsigned bytes)
{
	return text_answer(out, bytes, gv_is_slice() && !nvml_is_slice(handle) ? gv_profile()->slice.card : gv_profile()->name);
}

GV_EXPORT int nvmlDeviceGetUUID(void *handle, char *out, unsigned bytes)
{
	char text[64];

	if (nvml_is_slice(handle))
		gv_slice_uuid_text(nvml_slice_of(handle), text);
	else
		gv_uuid_text(nvml_card_of(handle), text);
	return text_answer(out, bytes, text);
}

struct pci_info {
	char bus_id_short[16];
	unsigned domain, bus, device, device_id, subsystem_id;
	char bus_id[32];
};

GV_EXPORT int nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *out)
{
	memset(out, 0, sizeof *out);
	out->bus = (unsigned)bus_number(nvml_card_of(handle));
	bus_text(nvml_card_of(handle), out->bus_id);
	snprintf(out->bus_id_short, sizeof out->bus_id_short, "0000:%02X:00.0", out->bus & 0xff);
	return NVML_OK;
}

/* A card that is in no fabric of NVLink: the state is zero, and so is all behind the struct's version, which holds its size. */
GV_EXPORT int nvmlDeviceGetGpuFabricInfoV(void *handle, unsigned *info)
{
	enum {
		SIZE_MASK = 0xffffff,
		MOST_BYTES = 256
	};
	size_t bytes = info[0] & SIZE_MASK;

	if (bytes > sizeof *info && bytes <= MOST_BYTES)
		memset(info + 1, 0, bytes - sizeof *info);
	return NVML_OK;
}

struct memory_info { uint64_t total, available, used; };
struct memory_info_v2 {
	unsigned version;
	uint64_t total, reserved, available, used;
};

GV_EXPORT int nvmlDeviceGetMemoryInfo(void *handle, struct memory_info *out)
{
	memory_of(handle, &out->available, &out->total);
	out->used = out->total - out->available;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_info_v2 *out)
{
	memory_of(handle, &out->available, &out->total);
	out->reserved = 0;
	out->used = out->total - out->available;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
	*major = gv_profile()->cc_major;
	*minor = gv_profile()->cc_minor;
	return NVML_OK;
}

struct utilization { unsigned gpu, memory; };

GV_EXPORT int nvmlDeviceGetUtilizationRates(void *handle, struct utilization *out)
{
	if (gv_is_slice()) /* neither of a slice nor of a card that has some */
		return NVML_NOT_SUPPORTED;
	out->gpu = 0;
	out->memory = 0;
	return NVML_OK;
}

/* An idle, cool device: monitors go on, and nobody decides about memory by these. */
static int constant(unsigned *out, unsigned value)
{
	*out = value;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) { return constant(celsius, 35); }
GV_EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { return constant(milliwatts, 70000); }
GV_EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) { return constant(milliwatts, 700000); }
GV_EXPORT int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *milliwatts) { return constant(milliwatts, 700000); }
GV_EXPORT int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { return constant(mode, 1); }
GV_EXPORT int nvmlDeviceGetComputeMode(void *handle, unsigned *mode) { return constant(mode, (unsigned)gv_profile()->attribute[GV_ATTR_COMPUTE_MODE]); }
GV_EXPORT int nvmlDeviceGetFanSpeed(void *handle, unsigned *percent) { return NVML_NOT_SUPPORTED; }
GV_EXPORT int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) { return constant(mhz, 1980); }
GV_EXPORT int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *mhz) { return constant(mhz, 1980); }
GV_EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, unsigned *generation) { return constant(generation, 4); }
GV_EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *lanes) { return constant(lanes, 16); }
GV_EXPORT int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) { return NVML_NOT_SUPPORTED; }
GV_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, unsigned *kind) { return NVML_NOT_SUPPORTED; }
GV_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, void *info) { return NVML_NOT_SUPPORTED; }

struct process {
	unsigned pid;
	uint64_t used_bytes;
	unsigned gpu_instance, compute_instance;
};

/* This process is the only one on the device. */
GV_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *out)
{
	uint64_t available, total;

	if (*count < 1 || !out) {
		*count = 1;
		return NVML_INSUFFICIENT_SIZE;
	}
	memory_of(handle, &available, &total);
	out[0] = (struct process){(unsigned)getpid(), total - available, ~0u, ~0u};
	*count = 1;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, struct process *out)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, out);
}

/* The first form has no instance numbers. */
struct process_v1 {
	unsigned pid;
	uint64_t used_bytes;
};

GV_EXPORT int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, struct process_v1 *out)
{
	struct process one;
	unsigned room = out ? *count : 0;
	int status = nvmlDeviceGetComputeRunningProcesses_v3(handle, &room, &one);

	*count = room;
	if (status == NVML_OK)
		out[0] = (struct process_v1){one.pid, one.used_bytes};
	return status;
}

GV_EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count, void *out)
{
	*count = 0;
	return NVML_OK;
}

GV_EXPORT int nvmlDeviceGetGraphicsRunningProcesses(void *handle, unsigned *count, void *out)
{
	*count = 0;
	return NVML_OK;
}
