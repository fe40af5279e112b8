/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A gpu/generic for slurmstepd that samples gres/gpumem, as gpu/nvml does on a
 * node with NVIDIA's library: a process takes what its environment says, in
 * GRESIZE_TEST_GPUMEM (bytes). All behind it is Slurm's own: the sampling by
 * jobacct_gather, slurmdbd, and what sacct prints. For the tests alone.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <slurm/slurm.h>
#include <slurm/slurm_version.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char plugin_name[] = "GPU memory of the virtual GPU";
EXPORTED const char plugin_type[] = "gpu/generic";
EXPORTED const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* What jobacct_gather of 24.11 keeps of one resource of one process; what is used stands fourth of five numbers. */
struct sample {
	uint64_t others[3];
	uint64_t used;
	uint64_t last;
};

/* Slurm's own, in libslurmfull: where a resource stands among the samples, -1 when it is not gathered. */
void gpu_get_tres_pos(int *memory, int *utilization);

static int memory_position = -1;

EXPORTED int init(void);
EXPORTED int fini(void);
EXPORTED void gpu_p_reconfig(void); /* up to 23.11 */
EXPORTED void *gpu_p_get_system_gpu_list(void *node);
EXPORTED void gpu_p_step_hardware_init(void *gpus, char *tres_freq);
EXPORTED void gpu_p_step_hardware_fini(void);
EXPORTED char *gpu_p_test_cpu_conv(char *range);
EXPORTED int gpu_p_energy_read(uint32_t device, void *status);
EXPORTED void gpu_p_get_device_count(uint32_t *count);
EXPORTED int gpu_p_usage_read(pid_t pid, struct sample *samples);

int init(void)
{
	return SLURM_SUCCESS;
}

int fini(void)
{
	return SLURM_SUCCESS;
}

void gpu_p_reconfig(void)
{
}

void *gpu_p_get_system_gpu_list(void *node)
{
	(void)node;
	return NULL;
}

void gpu_p_step_hardware_init(void *gpus, char *tres_freq)
{
	(void)gpus;
	(void)tres_freq;
}

void gpu_p_step_hardware_fini(void)
{
}

char *gpu_p_test_cpu_conv(char *range)
{
	(void)range;
	return NULL;
}

int gpu_p_energy_read(uint32_t device, void *status)
{
	(void)device;
	(void)status;
	return SLURM_SUCCESS;
}

void gpu_p_get_device_count(uint32_t *count)
{
	*count = 0;
}

/* The bytes that a process says it holds; 0 where it says nothing. */
static uint64_t held_by(pid_t pid)
{
	static const char name[] = "GRESIZE_TEST_GPUMEM=";
	char path[64], *entry = NULL;
	size_t room = 0;
	uint64_t bytes = 0;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	while (getdelim(&entry, &room, 0, file) > 0)
		if (strncmp(entry, name, sizeof(name) - 1) == 0)
			bytes = strtoull(entry + sizeof(name) - 1, NULL, 10);
	free(entry);
	fclose(file);
	return bytes;
}

int gpu_p_usage_read(pid_t pid, struct sample *samples)
{
	int utilization;

	if (memory_position < 0)
		gpu_get_tres_pos(&memory_position, &utilization);
	if (memory_position >= 0)
		samples[memory_position].used = held_by(pid);
	return SLURM_SUCCESS;
}
