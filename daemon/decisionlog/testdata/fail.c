/* Loaded before the C library into a process that uses SQLite: the FAIL_AT-th operation that changes a file fails, or all from it on, or the process is killed
 * before it. FAIL_HOW is once, on or kill; FAIL_ERRNO the error. The number of operations so far is a long in the file FAIL_COUNT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static long done;

static int fails(void)
{
	static const char *how;
	static long at = -1;
	static int count_fd;

	if (at < 0) {
		count_fd = open(getenv("FAIL_COUNT"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		at = atol(getenv("FAIL_AT"));
		how = getenv("FAIL_HOW");
	}
	long n = __sync_add_and_fetch(&done, 1);
	/* By system call: the process may end at any moment, and these are no operations of its own. */
	syscall(SYS_pwrite64, count_fd, &n, sizeof(n), 0L);
	if (n != at && !(n > at && strcmp(how, "on") == 0))
		return 0;
	if (strcmp(how, "kill") == 0)
		kill(getpid(), SIGKILL);
	errno = atoi(getenv("FAIL_ERRNO"));
	return 1;
}

#define NEXT(name)                     \
	static __typeof__(name) *next; \
	next = next ? next : (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define FAILING(name, parameters, arguments)          \
	int name parameters                           \
	{                                             \
		NEXT(name);                           \
		return fails() ? -1 : next arguments; \
	}

FAILING(fsync, (int fd), (fd))
FAILING(fdatasync, (int fd), (fd))
FAILING(ftruncate, (int fd, off_t length), (fd, length))
FAILING(ftruncate64, (int fd, off64_t length), (fd, length))

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
	NEXT(pwrite);
	return fails() ? -1 : next(fd, bytes, n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at)
{
	NEXT(pwrite64);
	return fails() ? -1 : next(fd, bytes, n, at);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
	NEXT(write);
	return fails() ? -1 : next(fd, bytes, n);
}
