/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cudnn_workspace_planner.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cudnn_workspace_key.h"

#define HELPER_NAME "gresize-cudnn-plan"
#define LIBCUDNN_NAME "libcudnn.so.9"

enum {
	/* Loading cuDNN from a cold disk takes seconds; a plan milliseconds. */
	START_MILLIS = 30000,
	ANSWER_MILLIS = 20000,
	/* All answers together: a job with thousands of shapes ends on the model. */
	TOTAL_MILLIS = 60000,
	LINE_MAX_BYTES = 4096,
	ARGUMENTS_MAX = 8,
	DESCRIPTION_MAX_BYTES = 4096
};

enum state {
	NOT_STARTED,
	RUNNING,
	UNAVAILABLE
};

static struct {
	enum state state;
	pid_t owner; /* a forked child must not talk on its parent's socket */
	int socket;
	int version;
	int64_t spent_millis;
	char pending[LINE_MAX_BYTES];
	size_t pending_bytes;
} planner = {.state = NOT_STARTED, .socket = -1};

static int64_t now_millis(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void give_up(void)
{
	if (planner.socket >= 0)
		close(planner.socket);
	planner.socket = -1;
	planner.state = UNAVAILABLE;
}

static int send_all(const char *text, size_t length)
{
	while (length > 0) {
		ssize_t n = send(planner.socket, text, length, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		text += n;
		length -= (size_t)n;
	}
	return 1;
}

/* Reads one line without its end; 0 on time-out, end or a line too long. */
static int read_line(char *line, size_t room, int millis)
{
	int64_t deadline = now_millis() + millis;
	for (;;) {
		char *end = memchr(planner.pending, '\n', planner.pending_bytes);
		if (end != NULL) {
			size_t length = (size_t)(end - planner.pending);
			if (length >= room)
				return 0;
			memcpy(line, planner.pending, length);
			line[length] = '\0';
			planner.pending_bytes -= length + 1;
			memmove(planner.pending, end + 1, planner.pending_bytes);
			return 1;
		}
		struct pollfd ready = {.fd = planner.socket, .events = POLLIN};
		int64_t left = deadline - now_millis();
		if (planner.pending_bytes == sizeof planner.pending || left <= 0)
			return 0;
		if (poll(&ready, 1, (int)left) < 0) {
			if (errno == EINTR)
				continue;
			return 0;
		}
		if (ready.revents == 0)
			return 0;
		ssize_t n = recv(planner.socket, planner.pending + planner.pending_bytes,
				 sizeof planner.pending - planner.pending_bytes, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		planner.pending_bytes += (size_t)n;
	}
}

/* ---- where things are */

/* Joins two parts; 0 when the result is too long or not a readable file. */
static int readable_file(char *path, const char *folder, const char *name)
{
	int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);
	return n > 0 && n < PATH_MAX && access(path, R_OK) == 0;
}

static const char *vgpu_folder(void)
{
	const char *folder = getenv("GRESIZE_VGPU_DIR");
	return folder != NULL && folder[0] == '/' ? folder : NULL;
}

/* The folder of the libtorch that this process has mapped. */
static int torch_folder(char *folder)
{
	char line[PATH_MAX + 256];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	if (maps == NULL)
		return 0;
	while (!found && fgets(line, sizeof line, maps) != NULL) {
		char *path = strchr(line, '/');
		char *name = path == NULL ? NULL : strstr(path, "/libtorch_cuda");
		if (name == NULL || strchr(name + 1, '/') != NULL || name - path >= PATH_MAX)
			continue;
		memcpy(folder, path, (size_t)(name - path));
		folder[name - path] = '\0';
		found = 1;
	}
	fclose(maps);
	return found;
}

/* The libcudnn that the loader would have taken without the virtual GPU. */
static int find_libcudnn(char *path)
{
	/* As PyTorch's own search path says: wheels first, then beside libtorch,
     * then the lib folder of the environment (conda). */
	static const char *const beside_torch[] = {"../../nvidia/cudnn/lib", ".", "../../../.."};
	static const char *const usual[] = {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
					    "/usr/local/lib", "/usr/lib"};
	char folder[PATH_MAX], candidate[PATH_MAX + 32];
	const char *search = getenv("LD_LIBRARY_PATH");
	const char *vgpu = vgpu_folder();

	if (torch_folder(folder))
		for (size_t i = 0; i < sizeof beside_torch / sizeof *beside_torch; i++) {
			snprintf(candidate, sizeof candidate, "%s/%s", folder, beside_torch[i]);
			if (readable_file(path, candidate, LIBCUDNN_NAME))
				return 1;
		}
	while (search != NULL && *search != '\0') {
		size_t length = strcspn(search, ":");
		if (length > 0 && length < PATH_MAX) {
			memcpy(folder, search, length);
			folder[length] = '\0';
			if ((vgpu == NULL || strcmp(folder, vgpu) != 0) && readable_file(path, folder, LIBCUDNN_NAME))
				return 1;
		}
		search += length + (search[length] == ':');
	}
	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
		if (readable_file(path, usual[i], LIBCUDNN_NAME))
			return 1;
	return 0;
}

/* ---- the description of the device */

static int compose_description(const struct gv_cudnn_device *d, char *text, size_t room)
{
	/* Public CUDA device attributes, by number. */
	enum {
		THREADS_PER_BLOCK = 1,
		BLOCK_X,
		BLOCK_Y,
		BLOCK_Z,
		GRID_X,
		GRID_Y,
		GRID_Z,
		SHARED_PER_BLOCK,
		WARP = 10,
		REGISTERS_PER_BLOCK = 12,
		CLOCK = 13,
		MEMORY_CLOCK = 36,
		L2 = 38,
		THREADS_PER_SM = 39,
		REGISTERS_PER_SM = 82,
		COOPERATIVE = 95,
		SHARED_OPTIN = 97,
		BLOCKS_PER_SM = 106,
		SHARED_RESERVED = 111
	};
	char name[sizeof d->name];
	int n;

	/* The name goes into JSON: keep what needs no escape. */
	for (size_t i = 0; i < sizeof name; i++) {
		char c = d->name[i];
		name[i] = c == '\0' ? c : c < ' ' || c > '~' || c == '"' || c == '\\' ? '_' :
											c;
	}
	name[sizeof name - 1] = '\0';
#define A(number) d->attribute(number)
	n = snprintf(text, room,
		     "{\"cudaDeviceId\":0,\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":%d,\"regsPerBlock\":%" PRId64
		     ",\"multiProcessorCount\":%d,\"smCountOrigin\":0,\"warpSize\":%" PRId64
		     ",\"maxSharedMemoryPerBlock\":%" PRId64 ",\"maxSharedMemoryPerBlockOptin\":%" PRId64
		     ",\"reservedSharedMemoryPerBlock\":%" PRId64 ",\"maxRegistersPerSM\":%" PRId64
		     ",\"maxCtasPerSM\":%" PRId64 ",\"maxThreadsPerBlock\":%" PRId64 ",\"maxThreadsPerSM\":%" PRId64
		     ",\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":%" PRId64 ",\"totalGlobalMem\":%" PRId64
		     ",\"smClockRateKHz\":%" PRId64 ",\"memClockRateKHz\":%" PRId64 ",\"l2CacheSize\":%" PRId64
		     ",\"maxGridSize\":[%" PRId64 ",%" PRId64 ",%" PRId64 "],\"maxBlockSize\":[%" PRId64 ",%" PRId64
		     ",%" PRId64 "]}\n",
		     name, d->cc_major * 100 + d->cc_minor * 10, d->driver_version, A(REGISTERS_PER_BLOCK), d->sm_count,
		     A(WARP), A(SHARED_PER_BLOCK), A(SHARED_OPTIN), A(SHARED_RESERVED), A(REGISTERS_PER_SM),
		     A(BLOCKS_PER_SM), A(THREADS_PER_BLOCK), A(THREADS_PER_SM), A(COOPERATIVE), d->total_bytes, A(CLOCK),
		     A(MEMORY_CLOCK), A(L2), A(GRID_X), A(GRID_Y), A(GRID_Z), A(BLOCK_X), A(BLOCK_Y), A(BLOCK_Z));
#undef A
	return n > 0 && (size_t)n < room;
}

static int send_description(const struct gv_cudnn_device *d)
{
	char text[DESCRIPTION_MAX_BYTES];
	if (d->description != NULL)
		return send_all(d->description, strcspn(d->description, "\n")) && send_all("\n", 1);
	return d->attribute != NULL && compose_description(d, text, sizeof text) && send_all(text, strlen(text));
}

/* ---- the helper */

/* A clean environment: no LD_AUDIT, no LD_PRELOAD, nothing of the user's but
 * what the virtual GPU's libcuda needs to load. */
static int helper_environment(char storage[][PATH_MAX + 64], char **environment, int room)
{
	static const char *const kept[] = {"GRESIZE_VGPU_DIR", "GRESIZE_VGPU_PROFILE", "GRESIZE_VGPU_COUNT"};
	int count = 0;
	for (size_t i = 0; i < sizeof kept / sizeof *kept && count < room - 2; i++) {
		const char *value = getenv(kept[i]);
		if (value == NULL || strlen(value) >= PATH_MAX)
			continue;
		snprintf(storage[count], PATH_MAX + 64, "%s=%s", kept[i], value);
		environment[count] = storage[count];
		count++;
	}
	environment[count++] = (char *)"LANG=C";
	environment[count] = NULL;
	return count;
}

static int spawn_helper(char **arguments, int child_socket)
{
	static char storage[4][PATH_MAX + 64];
	char *environment[8];
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, usual;
	pid_t pid = -1;
	int failed;

	helper_environment(storage, environment, 8);
	if (posix_spawn_file_actions_init(&actions) != 0)
		return 0;
	if (posix_spawnattr_init(&attributes) != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return 0;
	}
	sigemptyset(&none);
	sigemptyset(&usual);
	sigaddset(&usual, SIGALRM);
	sigaddset(&usual, SIGPIPE);
	failed = posix_spawn_file_actions_adddup2(&actions, child_socket, STDIN_FILENO) ||
		 posix_spawn_file_actions_adddup2(&actions, child_socket, STDOUT_FILENO) ||
		 posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1 /* O_WRONLY */, 0) ||
		 posix_spawnattr_setsigmask(&attributes, &none) || posix_spawnattr_setsigdefault(&attributes, &usual) ||
		 posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) ||
		 posix_spawn(&pid, arguments[0], &actions, &attributes, arguments, environment);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	if (failed)
		return 0;
	/* The helper detaches itself, so the traced program never has a child to
     * wait for that it does not know. */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 1;
}

static int start(const struct gv_cudnn_device *device)
{
	static char helper[PATH_MAX], libcudnn[PATH_MAX], first[ARGUMENTS_MAX][PATH_MAX];
	static const char *const load_first[] = {"libcuda.so.1", "libcublasLt.so.13", "libcublasLt.so.12"};
	char *arguments[ARGUMENTS_MAX + 3];
	char line[LINE_MAX_BYTES];
	const char *vgpu = vgpu_folder();
	int pair[2], count = 0;

	if (vgpu == NULL || !readable_file(helper, vgpu, HELPER_NAME) || access(helper, X_OK) != 0 ||
	    !find_libcudnn(libcudnn))
		return 0;
	arguments[count++] = helper;
	arguments[count++] = libcudnn;
	for (size_t i = 0; i < sizeof load_first / sizeof *load_first; i++)
		if (readable_file(first[i], vgpu, load_first[i]))
			arguments[count++] = first[i];
	arguments[count] = NULL;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return 0;
	planner.socket = pair[0];
	planner.pending_bytes = 0;
	planner.owner = getpid();
	int spawned = spawn_helper(arguments, pair[1]);
	close(pair[1]);
	return spawned && send_description(device) && read_line(line, sizeof line, START_MILLIS) &&
	       sscanf(line, "ready %d", &planner.version) == 1 && planner.version >= GV_CUDNN_FIRST_DEVICELESS;
}

/* "plans N WORKSPACE:NOTES ...": the number read, or 0 for anything else. */
static int parse_answer(const char *line, struct gv_plan *plans, int max)
{
	int promised = 0, used = 0, count = 0;
	if (sscanf(line, "plans %d%n", &promised, &used) != 1)
		return 0;
	while (count < promised && count < max) {
		int64_t workspace;
		uint32_t notes;
		int step = 0;
		line += used;
		if (sscanf(line, " %" SCNd64 ":%" SCNu32 "%n", &workspace, &notes, &step) != 2 || workspace < 0)
			return 0;
		used = step;
		plans[count].workspace_bytes = workspace;
		plans[count].notes = notes;
		plans[count].source = GV_WORKSPACE_PLANNED;
		count++;
	}
	return count;
}

int gv_planner_plans(const struct gv_cudnn_device *device, const char *key, int key_length, struct gv_plan *plans,
		     int max)
{
	char line[LINE_MAX_BYTES];
	int64_t begin = now_millis();

	if (planner.state == RUNNING && planner.owner != getpid()) {
		close(planner.socket);
		planner.state = NOT_STARTED;
	}
	if (planner.state == NOT_STARTED) {
		planner.state = RUNNING;
		if (!start(device))
			give_up();
	}
	if (planner.state != RUNNING)
		return 0;
	if (planner.spent_millis > TOTAL_MILLIS || !send_all(key, (size_t)key_length) ||
	    !read_line(line, sizeof line, ANSWER_MILLIS)) {
		give_up();
		return 0;
	}
	planner.spent_millis += now_millis() - begin;
	return parse_answer(line, plans, max);
}

int gv_planner_version(void)
{
	return planner.state == RUNNING ? planner.version : 0;
}
