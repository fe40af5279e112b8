/*
 * The reader of the device profile for its fuzz target: takes texts from standard input, each after two lengths of four bytes in network order (profile, CUDA_VISIBLE_DEVICES), and answers each with a
 * line of what the modelled device is then. The file is included, so that each text is read as by a new process.
 */
#define _GNU_SOURCE
#include "../../profile.c"

#include <sys/mman.h>
#include <unistd.h>

static char *take(size_t bytes)
{
	char *text = calloc(1, bytes + 1);

	if (!text || (bytes && fread(text, bytes, 1, stdin) != 1))
		exit(2);
	return text;
}

static size_t length(void)
{
	unsigned char b[4];

	if (fread(b, sizeof b, 1, stdin) != 1)
		exit(0);
	return (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
}

int main(void)
{
	struct gv_profile builtin = profile;

	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("GRESIZE_VGPU_COUNT", "4", 1);
	for (;;) {
		size_t first = length(), second = length();
		char *text = take(first), *list = take(second), path[64];
		int file = memfd_create("profile", 0), sum = 0;

		if (file < 0 || write(file, text, first) != (ssize_t)first)
			return 2;
		snprintf(path, sizeof path, "/proc/self/fd/%d", file);
		setenv("GRESIZE_VGPU_PROFILE", path, 1);
		setenv("CUDA_VISIBLE_DEVICES", list, 1);
		profile = builtin;
		loaded.done = 0;
		for (int i = 0; i < GV_MAX_ATTRIBUTE; i++)
			sum += gv_attribute(i, i % 5) != 0;
		for (int threads = -1; threads < 2048; threads += 341)
			for (size_t shared = 0; shared < 300000; shared = shared * 7 + 1)
				sum += gv_blocks_per_multiprocessor(threads, shared) < 1;
		for (int d = -1; d < 6; d++)
			sum += gv_visible(gv_physical(d)) > 4;
		printf("%d %d %llu %llu %zu %zu %d\n", profile.devices, profile.cc_major, (unsigned long long)profile.total_bytes, (unsigned long long)profile.context_bytes,
		       strlen(profile.name), strlen(profile.driver_version), sum);
		close(file);
		free(text);
		free(list);
	}
}
