/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Loads the plugin beside the real Slurm library and prints what slurmctld looks
 * at: load LIBSLURMFULL PLUGIN */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 3 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) {
		fprintf(stderr, "load: %s\n", argc == 3 ? dlerror() : "two paths");
		return 2;
	}
	void *plugin = dlopen(argv[2], RTLD_NOW);
	if (!plugin) {
		fprintf(stderr, "load: %s\n", dlerror());
		return 2;
	}
	int (*init)(void);
	*(void **)&init = dlsym(plugin, "init");
	const char *type = dlsym(plugin, "plugin_type");
	const uint32_t *version = dlsym(plugin, "plugin_version");
	printf("%s %#x init=%d\n", type, *version, init());
	return 0;
}
