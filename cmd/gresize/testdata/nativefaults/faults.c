/*
 * Loaded before the C library of a program under the virtual GPU. It hears of what the libraries of the virtual GPU ask
 * of the C library, and of nobody else's requests: without PLANTED_FAULT it notes each place in their code that asks, with it
 * the request of that place fails, each time. Marks go to the file PLANTED_MARKS.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

enum {
	CACHE = 8192,
	PLACES = 1024
};

static uint64_t others[CACHE]; /* places that are nobody's of ours */
static uint64_t noted[PLACES];

static void mark(const char *text)
{
	const char *path = getenv("PLANTED_MARKS");
	int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;

	if (fd >= 0) {
		syscall(SYS_write, fd, text, strlen(text));
		syscall(SYS_close, fd);
	}
}

/* planted says whether the request of the place shall fail. */
static bool planted(const void *place, const char *what)
{
	uint64_t at = (uint64_t)place;
	const char *wanted = getenv("PLANTED_FAULT");
	char name[256];
	const char *base;
	Dl_info info;

	if (__atomic_load_n(&others[at % CACHE], __ATOMIC_RELAXED) == at)
		return false;
	if (!dladdr(place, &info) || !info.dli_fname || !strstr(info.dli_fname, "/lib/vgpu/")) {
		__atomic_store_n(&others[at % CACHE], at, __ATOMIC_RELAXED);
		return false;
	}
	base = strrchr(info.dli_fname, '/') + 1;
	snprintf(name, sizeof name, "%s+%lx:%s:%s", base, (unsigned long)(at - (uint64_t)info.dli_fbase), what, info.dli_sname ? info.dli_sname : "static");
	if (wanted && strcmp(wanted, name) == 0) {
		mark("planted\n");
		errno = strcmp(what, "open") == 0 || strcmp(what, "fopen") == 0 ? EMFILE : ENOSPC;
		return true;
	}
	if (!wanted && __atomic_exchange_n(&noted[at % PLACES], at, __ATOMIC_RELAXED) != at) {
		strcat(name, "\n");
		mark(name);
	}
	return false;
}

#define HERE __builtin_return_address(0)
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void *malloc(size_t n) { return planted(HERE, "malloc") ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return planted(HERE, "calloc") ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return planted(HERE, "realloc") ? NULL : __libc_realloc(p, n); }

void *mmap(void *a, size_t n, int prot, int flags, int fd, off_t at)
{
	return planted(HERE, "mmap") ? MAP_FAILED : (void *)syscall(SYS_mmap, a, n, prot, flags, fd, at);
}

ssize_t write(int fd, const void *data, size_t n) { return planted(HERE, "write") ? -1 : REAL(write)(fd, data, n); }
ssize_t read(int fd, void *data, size_t n) { return planted(HERE, "read") ? -1 : REAL(read)(fd, data, n); }
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { return planted(HERE, "pwrite") ? -1 : REAL(pwrite)(fd, data, n, at); }
ssize_t pread(int fd, void *data, size_t n, off_t at) { return planted(HERE, "pread") ? -1 : REAL(pread)(fd, data, n, at); }
int rename(const char *from, const char *to) { return planted(HERE, "rename") ? -1 : REAL(rename)(from, to); }
int ftruncate(int fd, off_t n) { return planted(HERE, "ftruncate") ? -1 : REAL(ftruncate)(fd, n); }
FILE *fopen(const char *path, const char *mode) { return planted(HERE, "fopen") ? NULL : REAL(fopen)(path, mode); }
char *fgets(char *text, int n, FILE *f) { return planted(HERE, "fgets") ? NULL : REAL(fgets)(text, n, f); }
int fputs(const char *text, FILE *f) { return planted(HERE, "fputs") ? EOF : REAL(fputs)(text, f); }
size_t fwrite(const void *p, size_t size, size_t n, FILE *f) { return planted(HERE, "fwrite") ? 0 : REAL(fwrite)(p, size, n, f); }
void *dlopen(const char *path, int flags) { return planted(HERE, "dlopen") ? NULL : REAL(dlopen)(path, flags); }

/* What did not get onto the disk is told at the end alone, if at all. */
int fclose(FILE *f)
{
	bool fails = planted(HERE, "fclose");
	int status = REAL(fclose)(f);

	return fails ? EOF : status;
}

int fprintf(FILE *f, const char *form, ...)
{
	va_list words;
	int n;

	if (planted(HERE, "fprintf"))
		return -1;
	va_start(words, form);
	n = REAL(vfprintf)(f, form, words);
	va_end(words);
	return n;
}

int vfprintf(FILE *f, const char *form, va_list words) { return planted(HERE, "vfprintf") ? -1 : REAL(vfprintf)(f, form, words); }
int fflush(FILE *f) { return planted(HERE, "fflush") ? EOF : REAL(fflush)(f); }
int unlink(const char *path) { return planted(HERE, "unlink") ? -1 : REAL(unlink)(path); }

int open(const char *path, int flags, ...)
{
	va_list words;
	mode_t mode;

	va_start(words, flags);
	mode = va_arg(words, mode_t);
	va_end(words);
	return planted(HERE, "open") ? -1 : REAL(open)(path, flags, mode);
}
