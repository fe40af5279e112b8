/*
 * Which PyTorch is in this process and which NVIDIA packages it pins, or which JAX and what is installed beside it: read
 * from the metadata beside its libraries, so that libraries whose SONAME several CUDA releases share answer with the
 * version that this job would have.
 */
#define _GNU_SOURCE
#include "state.h"

#include <dirent.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

enum {
	MAX_PATH = 4096,
	MAX_LINE = 1024,
	VERSION_PARTS = 3
};

struct version { int part[VERSION_PARTS]; };

static struct {
	char torch[32];
	struct version runtime, cudnn, nccl;
} release;

static int loaded_major; /* of libcudart, 0 while none is loaded */
static struct gv_once once;

static bool parse_version(const char *text, struct version *version)
{
	memset(version, 0, sizeof *version);
	for (int i = 0; i < VERSION_PARTS; i++) {
		if (*text < '0' || *text > '9')
			return i > 0;
		for (; *text >= '0' && *text <= '9'; text++) {
			if (version->part[i] > 100000)
				return false;
			version->part[i] = version->part[i] * 10 + (*text - '0');
		}
		if (*text == '.')
			text++;
	}
	return true;
}

/* find_torch is a callback of dl_iterate_phdr: it leaves the folder that holds torch/ in data. */
static int find_torch(struct dl_phdr_info *info, size_t size, void *data)
{
	static const char tail[] = "/torch/lib/libc10_cuda.so";
	size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;
	char *site = data;

	if (length < sizeof tail || length >= MAX_PATH || strcmp(info->dlpi_name + length - (sizeof tail - 1), tail))
		return 0;
	memcpy(site, info->dlpi_name, length - (sizeof tail - 1));
	site[length - (sizeof tail - 1)] = '\0';
	return 1;
}

/* find_jax leaves the folder that holds JAX's plugin for CUDA, such as jax_cuda12_plugin, in data. */
static int find_jax(struct dl_phdr_info *info, size_t size, void *data)
{
	static const char head[] = "/jax_cuda";
	const char *name = info->dlpi_name ? info->dlpi_name : "", *at = strstr(name, head), *rest;
	char *site = data;

	if (!at || at - name >= MAX_PATH)
		return 0;
	rest = at + sizeof head - 1;
	rest += strspn(rest, "0123456789");
	if (strncmp(rest, "_plugin/", 8))
		return 0;
	memcpy(site, name, (size_t)(at - name));
	site[at - name] = '\0';
	return 1;
}

/* pinned_version reads the version behind the first "==" or ">=" after the package's name: JAX pins nothing, and the least that it takes stands for it. */
static bool pinned_version(const char *line, const char *package, struct version *version)
{
	const char *at = strstr(line, package);

	while (at && *at && strncmp(at, "==", 2) && strncmp(at, ">=", 2))
		at++;
	return at && *at && parse_version(at + 2, version);
}

static void read_line(const char *line)
{
	if (!strncmp(line, "Version: ", 9) && !release.torch[0]) {
		size_t length = strspn(line + 9, "0123456789.");
		if (length >= sizeof release.torch)
			length = sizeof release.torch - 1;
		memcpy(release.torch, line + 9, length);
		release.torch[length] = '\0';
	}
	if (strncmp(line, "Requires-Dist: ", 15))
		return;
	line += 15;
	if (!strncmp(line, "nvidia-cuda-runtime-cu", 22) || !strncmp(line, "cuda-toolkit", 12))
		pinned_version(line, "cuda-", &release.runtime);
	else if (!strncmp(line, "nvidia-cudnn-cu", 15))
		pinned_version(line, "nvidia-cudnn-cu", &release.cudnn);
	else if (!strncmp(line, "nvidia-nccl-cu", 14))
		pinned_version(line, "nvidia-nccl-cu", &release.nccl);
}

/* read_metadata reads the METADATA of the folder's packages whose name begins so. */
static void read_metadata(const char *site, const char *package)
{
	struct dirent *entry;
	char path[MAX_PATH + 512], line[MAX_LINE];
	DIR *directory = opendir(site);
	FILE *f = NULL;

	if (!directory)
		return;
	while (!f && (entry = readdir(directory))) {
		size_t length = strlen(entry->d_name);
		if (strncmp(entry->d_name, package, strlen(package)) || length < 10 || strcmp(entry->d_name + length - 10, ".dist-info"))
			continue;
		snprintf(path, sizeof path, "%s/%s/METADATA", site, entry->d_name);
		f = fopen(path, "re");
	}
	closedir(directory);
	if (!f)
		return;
	while (fgets(line, sizeof line, f) && line[0] != '\n') /* an empty line ends the header */
		read_line(line);
	fclose(f);
}

/* read_installed takes the version of an NVIDIA package from the name of its folder: nvidia_cudnn_cu12-9.8.0.87.dist-info. */
static void read_installed(const char *folder)
{
	static const struct {
		const char *package;
		struct version *version;
	} packages[] = {
		{"nvidia_cuda_runtime", &release.runtime},
		{"nvidia_cudnn_cu", &release.cudnn},
		{"nvidia_nccl_cu", &release.nccl},
	};
	const char *dash = strchr(folder, '-');

	for (size_t i = 0; dash && i < sizeof packages / sizeof *packages; i++) {
		if (!strncmp(folder, packages[i].package, strlen(packages[i].package)))
			parse_version(dash + 1, packages[i].version);
	}
}

/* read_jax: JAX pins no NVIDIA package. What is installed beside it counts, and the least that it takes where nothing is. */
static void read_jax(const char *site)
{
	char plugin[32];
	struct dirent *entry;
	DIR *directory;

	snprintf(plugin, sizeof plugin, "jax_cuda%d_plugin-", gv_cuda_major());
	read_metadata(site, plugin);
	release.torch[0] = '\0'; /* the version was JAX's */
	if (release.cudnn.part[0] == 9 && release.cudnn.part[1] < 1)
		release.cudnn.part[1] = 1; /* 0.4.30 says 9.0, and was built with 9.1, which it insists on */
	directory = opendir(site);
	while (directory && (entry = readdir(directory)))
		read_installed(entry->d_name);
	if (directory)
		closedir(directory);
}

static void read_release(void)
{
	char site[MAX_PATH];

	if (dl_iterate_phdr(find_torch, site))
		read_metadata(site, "torch-");
	else if (dl_iterate_phdr(find_jax, site))
		read_jax(site);
}

void gv_runtime_loaded(int cuda_major)
{
	__atomic_store_n(&loaded_major, cuda_major, __ATOMIC_RELAXED);
}

int gv_cuda_major(void)
{
	int major = __atomic_load_n(&loaded_major, __ATOMIC_RELAXED);

	return major ? major : gv_profile()->cuda_driver_version / 1000;
}

int gv_cuda_version(void)
{
	gv_run_once(&once, read_release);
	if (release.runtime.part[0] == gv_cuda_major())
		return release.runtime.part[0] * 1000 + release.runtime.part[1] * 10;
	return gv_cuda_major() * 1000;
}

int gv_cudnn_version(void)
{
	const int *v = release.cudnn.part;

	gv_run_once(&once, read_release);
	if (v[0] >= 9)
		return v[0] * 10000 + v[1] * 100 + v[2];
	if (v[0] == 8) /* from 9 on the numbers have another form */
		return v[0] * 1000 + v[1] * 100 + v[2];
	return gv_cuda_major() >= 13 ? 91900 : 90100; /* not from PyPI: the oldest of that CUDA major that is modelled */
}

int gv_nccl_version(void)
{
	const int *v = release.nccl.part;

	gv_run_once(&once, read_release);
	return v[0] ? v[0] * 10000 + v[1] * 100 + v[2] : 22105;
}

const char *gv_torch_version(void)
{
	gv_run_once(&once, read_release);
	return release.torch;
}
