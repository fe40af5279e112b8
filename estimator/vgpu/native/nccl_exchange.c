/*
 * The ranks of one communicator meet in a file of the report directory. Each has an area of its own in it: a head that says
 * whether it is there, a ring of entries for collectives, and a short ring for each receiver. Only the owner writes an area;
 * an entry's head is written after its data, so a reader that sees the head sees the data. Plain reads and writes, no mapping:
 * a full disk is then an error and not a signal. The file is sparse: what is never posted takes no space.
 */
#define _GNU_SOURCE
#include "nccl_exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	MOST_PATH = 4096,
	COLLECTIVE_ENTRIES = 64,
	SEND_ENTRIES = 8,
	HEAD_BYTES = 4096
};
enum {
	FIRST_NAP_MICROS = 50,
	LONGEST_NAP_MICROS = 2000,
	JOIN_SECONDS = 60,
	LIVENESS_MICROS = 100000
};
#define ENTRY_BYTES (EXCHANGE_MOST_BYTES + HEAD_BYTES)

enum {
	STATE_JOINED = 1,
	STATE_LEFT = 2
};
struct area_head { uint32_t state, pid; };
struct entry_head {
	uint64_t number;
	uint32_t bytes, known;
};

struct exchange {
	int file, ranks, rank;
	int64_t opened_micros;
	struct exchange *next;
	bool present[]; /* false too for a rank that was given up */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct exchange *all;

static int64_t now_micros(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static uint64_t fnv(const char *p, size_t bytes, uint64_t seed)
{
	uint64_t h = 14695981039346656037ULL ^ seed;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ (unsigned char)p[i]) * 1099511628211ULL;
	return h;
}

static bool write_all(int file, const void *data, size_t bytes, off_t at)
{
	ssize_t n;

	do
		n = pwrite(file, data, bytes, at);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)bytes;
}

static bool read_all(int file, void *data, size_t bytes, off_t at)
{
	ssize_t n;

	do
		n = pread(file, data, bytes, at);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)bytes;
}

static off_t area(const struct exchange *x, int rank)
{
	off_t entries = COLLECTIVE_ENTRIES + (off_t)SEND_ENTRIES * x->ranks;

	return (off_t)rank * (HEAD_BYTES + entries * (off_t)ENTRY_BYTES);
}

static off_t collective_entry(const struct exchange *x, int owner, uint64_t number)
{
	return area(x, owner) + HEAD_BYTES + (off_t)(number % COLLECTIVE_ENTRIES) * (off_t)ENTRY_BYTES;
}

static off_t send_entry(const struct exchange *x, int owner, int to, uint64_t number)
{
	return area(x, owner) + HEAD_BYTES + (COLLECTIVE_ENTRIES + (off_t)to * SEND_ENTRIES + (off_t)(number % SEND_ENTRIES)) * (off_t)ENTRY_BYTES;
}

static void say(struct exchange *x, uint32_t state)
{
	struct area_head head = {state, (uint32_t)getpid()};

	(void)write_all(x->file, &head, sizeof head, area(x, x->rank));
}

struct exchange *exchange_open(const char id[EXCHANGE_ID_BYTES], int ranks, int rank, const bool *present)
{
	const char *directory = getenv("GRESIZE_VGPU_REPORT_DIR");
	char path[MOST_PATH];
	struct exchange *x;
	int n;

	if (!directory || !*directory || ranks < 2 || rank < 0 || rank >= ranks)
		return NULL;
	n = snprintf(path, sizeof path, "%s/ranks", directory);
	if (n < 0 || n >= MOST_PATH || (mkdir(path, 0700) != 0 && errno != EEXIST))
		return NULL;
	n = snprintf(path, sizeof path, "%s/ranks/comm-%016llx%016llx", directory, (unsigned long long)fnv(id, EXCHANGE_ID_BYTES, 0),
		     (unsigned long long)fnv(id, EXCHANGE_ID_BYTES, 0x9e3779b97f4a7c15ULL));
	if (n < 0 || n >= MOST_PATH)
		return NULL;
	x = calloc(1, sizeof *x + (size_t)ranks * sizeof *x->present);
	if (!x)
		return NULL;
	x->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (x->file < 0) {
		free(x);
		return NULL;
	}
	x->ranks = ranks;
	x->rank = rank;
	x->opened_micros = now_micros();
	for (int r = 0; r < ranks; r++)
		x->present[r] = !present || present[r] || r == rank;
	say(x, STATE_JOINED);
	pthread_mutex_lock(&lock);
	x->next = all;
	all = x;
	pthread_mutex_unlock(&lock);
	return x;
}

/* Told by the Python layer when this rank has seen enough: nobody need wait for it from now on, though it is still there. */
GV_EXPORT void gresize_nccl_leave(void)
{
	pthread_mutex_lock(&lock);
	for (struct exchange *x = all; x; x = x->next)
		say(x, STATE_LEFT);
	pthread_mutex_unlock(&lock);
}

void exchange_close(struct exchange *x)
{
	if (!x)
		return;
	pthread_mutex_lock(&lock);
	for (struct exchange **at = &all; *at; at = &(*at)->next) {
		if (*at == x) {
			*at = x->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	say(x, STATE_LEFT);
	close(x->file);
	free(x);
}

static void put(struct exchange *x, off_t at, uint64_t number, const void *data, size_t bytes)
{
	struct entry_head head = {number, (uint32_t)bytes, data != NULL};

	if (!x || bytes > EXCHANGE_MOST_BYTES)
		return;
	if (data && !write_all(x->file, data, bytes, at + HEAD_BYTES))
		head.known = 0;
	(void)write_all(x->file, &head, sizeof head, at);
}

void exchange_post(struct exchange *x, uint64_t number, const void *data, size_t bytes)
{
	if (x)
		put(x, collective_entry(x, x->rank, number), number, data, bytes);
}

void exchange_send(struct exchange *x, int to, uint64_t number, const void *data, size_t bytes)
{
	if (x && to >= 0 && to < x->ranks)
		put(x, send_entry(x, x->rank, to, number), number, data, bytes);
}

/* gone says that a rank will post nothing more: it left, its process ended, or it did not join for a long time. */
static bool gone(const struct exchange *x, int rank)
{
	struct area_head head = {0, 0};

	if (!read_all(x->file, &head, sizeof head, area(x, rank)) || head.state == 0)
		return now_micros() - x->opened_micros > (int64_t)JOIN_SECONDS * 1000000;
	return head.state == STATE_LEFT || (kill((pid_t)head.pid, 0) != 0 && errno == ESRCH);
}

/* look reads one entry: false while it has not been posted. */
static bool look(const struct exchange *x, off_t at, uint64_t number, void *data, size_t bytes, enum exchange_answer *answer)
{
	struct entry_head head = {0, 0, 0};

	if (!read_all(x->file, &head, sizeof head, at) || head.number < number)
		return false;
	*answer = EXCHANGE_NOT_KNOWN;
	if (head.number == number && head.known && head.bytes == bytes && read_all(x->file, data, bytes, at + HEAD_BYTES) &&
	    read_all(x->file, &head, sizeof head, at) && head.number == number)
		*answer = EXCHANGE_KNOWN;
	return true;
}

static enum exchange_answer wait_for(struct exchange *x, int from, off_t at, uint64_t number, void *data, size_t bytes)
{
	enum exchange_answer answer = EXCHANGE_ABSENT;
	useconds_t nap = FIRST_NAP_MICROS;
	int64_t checked = 0;

	if (bytes > EXCHANGE_MOST_BYTES)
		return EXCHANGE_NOT_KNOWN;
	while (x->present[from] && !look(x, at, number, data, bytes, &answer)) {
		int64_t now = now_micros();
		if (now - checked > LIVENESS_MICROS) {
			/* It may have posted between the look and its end. */
			if (gone(x, from) && !look(x, at, number, data, bytes, &answer))
				x->present[from] = false;
			checked = now;
		}
		usleep(nap);
		nap = nap < LONGEST_NAP_MICROS ? 2 * nap : LONGEST_NAP_MICROS;
	}
	return answer;
}

enum exchange_answer exchange_fetch(struct exchange *x, int from, uint64_t number, void *data, size_t bytes)
{
	if (!x || from < 0 || from >= x->ranks)
		return EXCHANGE_ABSENT;
	return wait_for(x, from, collective_entry(x, from, number), number, data, bytes);
}

enum exchange_answer exchange_receive(struct exchange *x, int from, uint64_t number, void *data, size_t bytes)
{
	enum exchange_answer answer = EXCHANGE_NOT_KNOWN;

	if (!x || from < 0 || from >= x->ranks)
		return EXCHANGE_ABSENT;
	if (from == x->rank) { /* nobody else will post it: what is not there never comes */
		if (bytes <= EXCHANGE_MOST_BYTES)
			(void)look(x, send_entry(x, from, from, number), number, data, bytes, &answer);
		return answer;
	}
	return wait_for(x, from, send_entry(x, from, x->rank, number), number, data, bytes);
}
