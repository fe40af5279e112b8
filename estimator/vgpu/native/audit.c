/*
 * The LD_AUDIT module: a library for which GRESIZE_VGPU_DIR holds a stub is loaded from there, however it was asked for:
 * by name, by the run path of a wheel, or by an absolute path. Every other search is left as it was, so a process that
 * loads no such library runs as without it.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_REDIRECTS = 64 };

static struct { char *name, *path; } redirects[MAX_REDIRECTS]; /* the linker keeps the pointers: never freed */
static unsigned redirect_count;

EXPORT unsigned la_version(unsigned version)
{
	/* Version 1 has all that is used here; what the linker offers beyond it is declined. */
	return version < 1 ? 0 : 1;
}

static bool may_be_nvidia(const char *name)
{
	return !strncmp(name, "libcu", 5) || !strncmp(name, "libnv", 5) || !strncmp(name, "libnccl", 7);
}

static char *stub_path(const char *name)
{
	const char *directory = getenv("GRESIZE_VGPU_DIR");
	size_t a, b;
	char *path;

	for (unsigned i = 0; i < redirect_count; i++) {
		if (!strcmp(redirects[i].name, name))
			return redirects[i].path;
	}
	if (!directory || !*directory || redirect_count == MAX_REDIRECTS)
		return NULL;
	a = strlen(directory);
	b = strlen(name) + 1;
	path = malloc(a + 1 + b);
	if (!path)
		return NULL;
	memcpy(path, directory, a);
	path[a] = '/';
	memcpy(path + a + 1, name, b);
	if (access(path, R_OK)) {
		free(path);
		return NULL;
	}
	redirects[redirect_count].name = path + a + 1;
	redirects[redirect_count++].path = path;
	return path;
}

EXPORT char *la_objsearch(const char *name, uintptr_t *cookie, unsigned flag)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash ? slash + 1 : name;
	char *path = may_be_nvidia(base) ? stub_path(base) : NULL;

	(void)cookie;
	(void)flag;
	return path ? path : (char *)name;
}
