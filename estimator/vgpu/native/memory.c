/*
 * Device memory is address space: mapped without reserve and touched by nobody but small copies. PyTorch's allocator prefers
 * the lowest of equal blocks, so addresses are given as the driver gives them, in chunks of 32 MiB: a block lies in the lowest
 * free range of the chunks that there are, or begins a new chunk below all of them. (In the order of going up, published runs
 * with large equal blocks came out by one such block too high.) Ranges that are only reserved go up, from the other end.
 */
#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	PAGE_BYTES = 4096,
	CHUNK_BYTES = 32 << 20,
	ARENA_TIMES_CAPACITY = 8,
	MAX_OFFERED = 256
};
/* PyTorch takes smaller requests than this in segments of other sizes, which tell nothing. */
#define LEAST_OFFERED ((int64_t)(10 * GV_MIB))

void (*gv_on_first_use)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gv_block *blocks; /* sorted by base */
static size_t block_count, block_room;
static struct gv_memory_counters counters[GV_MAX_DEVICES];
static uint64_t pinned_bytes, pinned_peak;
static bool used_before;
static char *arena[GV_MAX_DEVICES];
static size_t arena_bytes[GV_MAX_DEVICES];
static char *chunks[GV_MAX_DEVICES]; /* the lowest chunk; the others lie above it, up to the arena's end */
static bool loaded[GV_MAX_DEVICES][GV_LIBRARIES];
/* The segments in which PyTorch would take the workspaces that were offered. */
static int64_t offered[MAX_OFFERED];
static size_t offered_count;
/* The last request of this thread, if it was refused: PyTorch gives back its cache and asks for the same once more. */
static __thread struct {
	int device;
	int64_t bytes;
	bool workspace;
} refused;

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

/* last_at_or_below is the index of the last block whose base is at or below p, -1 when there is none. */
static ptrdiff_t last_at_or_below(const char *p)
{
	size_t low = 0, high = block_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (blocks[middle].base <= p)
			low = middle + 1;
		else
			high = middle;
	}
	return (ptrdiff_t)low - 1;
}

static bool insert(struct gv_block block)
{
	size_t at;

	if (block_count == block_room) {
		size_t room = block_room ? 2 * block_room : 1024;
		struct gv_block *grown = realloc(blocks, room * sizeof *blocks);
		if (!grown)
			return false;
		blocks = grown;
		block_room = room;
	}
	at = (size_t)(last_at_or_below(block.base) + 1);
	memmove(blocks + at + 1, blocks + at, (block_count - at) * sizeof *blocks);
	blocks[at] = block;
	block_count++;
	return true;
}

/* first_number reads the decimal number at the start of a file; -1 where there is none. */
static int64_t first_number(const char *path)
{
	char text[32];
	int64_t number;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (fd >= 0)
		close(fd);
	if (length <= 0)
		return -1;
	text[length] = '\0';
	text[strspn(text, "0123456789")] = '\0';
	return gv_parse(text, &number) ? number : -1;
}

/* address_room is what a limit on address space leaves to this process. */
static size_t address_room(void)
{
	struct rlimit limit;
	int64_t pages;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return SIZE_MAX;
	pages = first_number("/proc/self/statm");
	return pages > 0 && (rlim_t)pages < limit.rlim_cur / PAGE_BYTES ? limit.rlim_cur - (rlim_t)pages * PAGE_BYTES : 0;
}

/*
 * commit_is_scarce says whether what is mapped to be written counts against the program, touched or not: by a limit on its data (ulimit -d), or where the
 * kernel promises no more memory than there is (vm.overcommit_memory=2). Large blocks are bare addresses then.
 */
static bool commit_is_scarce(void)
{
	enum { NEVER_MORE = 2 };
	static int64_t policy = -2; /* not read */
	struct rlimit limit;

	if (policy == -2)
		policy = first_number("/proc/sys/vm/overcommit_memory");
	return policy == NEVER_MORE || (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY);
}

static void open_arena(int device)
{
	size_t bytes = round_up((size_t)gv_profile()->total_bytes * ARENA_TIMES_CAPACITY + CHUNK_BYTES, CHUNK_BYTES);
	size_t most = address_room() / 2 / CHUNK_BYTES * CHUNK_BYTES; /* the program's own memory needs addresses, too */
	char *p = MAP_FAILED;

	if (bytes > most)
		bytes = most;
	if (bytes > 2 * CHUNK_BYTES)
		p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) { /* every allocation is then mapped by itself */
		arena_bytes[device] = 0;
		arena[device] = NULL;
		return;
	}
	arena[device] = (char *)round_up((size_t)p, CHUNK_BYTES);
	arena_bytes[device] = (bytes - (size_t)(arena[device] - p)) / CHUNK_BYTES * CHUNK_BYTES;
	chunks[device] = arena[device] + arena_bytes[device];
}

/* lowest_hole finds the lowest free range between two addresses, NULL when there is none. */
static char *lowest_hole(char *from, const char *end, size_t bytes, size_t alignment)
{
	ptrdiff_t i = last_at_or_below(from);

	for (i = i < 0 ? 0 : i; i < (ptrdiff_t)block_count && blocks[i].base < end; i++) {
		if (blocks[i].base + blocks[i].bytes <= from)
			continue;
		if (blocks[i].base >= from && (size_t)(blocks[i].base - from) >= bytes)
			return from;
		from = (char *)round_up((size_t)(blocks[i].base + blocks[i].bytes), alignment);
	}
	return from < end && (size_t)(end - from) >= bytes ? from : NULL;
}

/* hole finds where the driver would put memory, or a range of addresses without memory (reserved), NULL where the device's arena has no room. */
static char *hole(int device, size_t bytes, size_t alignment, bool reserved)
{
	size_t chunk = round_up(bytes, CHUNK_BYTES);
	char *at;

	if (!arena[device])
		open_arena(device);
	if (!arena[device])
		return NULL;
	if (reserved)
		return lowest_hole(arena[device], chunks[device], bytes, alignment);
	at = lowest_hole(chunks[device], arena[device] + arena_bytes[device], bytes, alignment);
	if (at || (size_t)(chunks[device] - arena[device]) < chunk || lowest_hole(chunks[device] - chunk, chunks[device], chunk, PAGE_BYTES) != chunks[device] - chunk)
		return at; /* no new chunk where ranges are reserved */
	chunks[device] -= chunk;
	return chunks[device];
}

/*
 * mark tells whoever measures this process from outside what the pages are: those of a card, which a node with a GPU does not have, or pinned ones, of which it
 * has all. Not to be in core files and to be read at random are marks that change nothing here, and that no other program sets together.
 */
static void mark(const struct gv_block *block)
{
	char *from = (char *)((size_t)block->base / PAGE_BYTES * PAGE_BYTES);
	size_t bytes = round_up((size_t)(block->base - from) + block->bytes, PAGE_BYTES);

	if (block->kind == GV_MANAGED) /* the host's where the host touches it */
		return;
	if (block->kind == GV_DEVICE)
		madvise(from, bytes, MADV_NOHUGEPAGE);
	madvise(from, bytes, MADV_DONTDUMP);
	madvise(from, bytes, MADV_RANDOM);
}

static void unmark(const struct gv_block *block)
{
	char *from = (char *)((size_t)block->base / PAGE_BYTES * PAGE_BYTES);
	size_t bytes = round_up((size_t)(block->base - from) + block->bytes, PAGE_BYTES);

	madvise(from, bytes, MADV_NORMAL);
	madvise(from, bytes, MADV_DODUMP);
}

/* map gives the block readable pages, or bare addresses where the system refuses to commit that much. */
static bool map(struct gv_block *block, char *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
	bool bare = block->kind == GV_DEVICE && block->bytes > GV_GRANULE && commit_is_scarce();
	char *p = bare ? MAP_FAILED : mmap(at, block->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	block->readable = p != MAP_FAILED;
	if (p == MAP_FAILED && block->kind == GV_DEVICE)
		p = mmap(at, block->bytes, PROT_NONE, flags, -1, 0);
	if (p == MAP_FAILED)
		return false;
	block->base = p;
	mark(block);
	return true;
}

static bool in_arena(const struct gv_block *block)
{
	const char *start = arena[block->device];

	return start && block->base >= start && block->base < start + arena_bytes[block->device];
}

static void unmap(const struct gv_block *block)
{
	if (in_arena(block)) /* the addresses stay ours */
		mmap(block->base, block->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap(block->base, block->bytes);
}

/* room is what the device has beside the context and the libraries in use. */
static uint64_t room(int device)
{
	uint64_t bytes = gv_profile()->total_bytes - gv_profile()->context_bytes;

	for (int i = 0; i < GV_LIBRARIES; i++) {
		uint64_t library = loaded[device][i] ? gv_profile()->library_bytes[i] : 0;
		bytes -= library < bytes ? library : bytes;
	}
	return bytes;
}

void gv_use(enum gv_library library)
{
	int device = gv_device();

	gv_count_handle(library);
	if (device < 0 || device >= GV_MAX_DEVICES)
		return;
	pthread_mutex_lock(&lock);
	loaded[device][library] = true;
	pthread_mutex_unlock(&lock);
}

void gv_offer_workspace(int64_t bytes)
{
	size_t i = 0;

	refused.bytes = 0;
	if (bytes < LEAST_OFFERED || bytes > INT64_MAX / 2)
		return;
	bytes = (int64_t)round_up((size_t)bytes, GV_GRANULE);
	pthread_mutex_lock(&lock);
	while (i < offered_count && offered[i] != bytes)
		i++;
	if (i == offered_count && i < MAX_OFFERED)
		offered[offered_count++] = bytes;
	pthread_mutex_unlock(&lock);
}

static void note_refusal(int device, int64_t bytes)
{
	counters[device].refused++;
	if (refused.bytes == bytes && refused.device == device)
		return;
	refused.device = device;
	refused.bytes = bytes;
	refused.workspace = false;
	for (size_t i = 0; i < offered_count && !refused.workspace; i++)
		refused.workspace = offered[i] == bytes;
	counters[device].passed_over += refused.workspace;
}

static void note_success(int device, int64_t bytes)
{
	if (refused.bytes == bytes && refused.device == device && refused.workspace)
		counters[device].passed_over--;
	refused.bytes = 0;
}

static int charge_locked(int device, int64_t bytes)
{
	struct gv_memory_counters *c = &counters[device];

	if (bytes > 0 && ((uint64_t)bytes > room(device) || c->used_bytes > room(device) - (uint64_t)bytes)) {
		note_refusal(device, bytes);
		return GV_ERROR_OUT_OF_MEMORY;
	}
	if (bytes > 0)
		note_success(device, bytes);
	c->used_bytes += (uint64_t)bytes;
	if (c->used_bytes > c->peak_bytes)
		c->peak_bytes = c->used_bytes;
	return GV_OK;
}

int gv_charge(int device, int64_t bytes)
{
	bool first = false;
	int status;

	pthread_mutex_lock(&lock);
	status = charge_locked(device, bytes);
	if (bytes > 0 && status == GV_OK) {
		first = !used_before;
		used_before = true;
		counters[device].allocations++;
	}
	pthread_mutex_unlock(&lock);
	if (first && gv_on_first_use)
		gv_on_first_use();
	return status;
}

static bool place(struct gv_block *block, size_t alignment, bool reserved)
{
	char *at = block->kind == GV_DEVICE ? hole(block->device, block->bytes, alignment, reserved) : NULL;

	if (!map(block, at))
		return false;
	if (insert(*block))
		return true;
	unmap(block);
	return false;
}

void *gv_alloc(size_t bytes, int device, enum gv_kind kind)
{
	struct gv_block block = {.device = device, .kind = kind, .owned = true, .charged = kind != GV_HOST};
	size_t granule = kind != GV_HOST && bytes > GV_MIB ? GV_GRANULE : PAGE_BYTES;
	bool first = false;

	if (bytes > (size_t)INT64_MAX / 2)
		return NULL;
	block.bytes = round_up(bytes ? bytes : 1, granule);
	pthread_mutex_lock(&lock);
	if (block.charged && charge_locked(device, (int64_t)block.bytes) != GV_OK) {
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	if (!place(&block, granule, false)) {
		if (block.charged) {
			counters[device].used_bytes -= block.bytes;
			counters[device].host_refused++;
		}
		pthread_mutex_unlock(&lock);
		return NULL;
	}
	if (block.charged) {
		first = !used_before;
		used_before = true;
		counters[device].allocations++;
	} else {
		pinned_bytes += block.bytes;
		if (pinned_bytes > pinned_peak)
			pinned_peak = pinned_bytes;
	}
	pthread_mutex_unlock(&lock);
	if (first && gv_on_first_use)
		gv_on_first_use();
	return block.base;
}

void *gv_reserve(size_t bytes, size_t alignment, int device)
{
	struct gv_block block = {.device = device, .kind = GV_DEVICE, .owned = true};
	void *base = NULL;

	if (bytes == 0 || bytes > (size_t)INT64_MAX / 2)
		return NULL;
	block.bytes = round_up(bytes, PAGE_BYTES);
	pthread_mutex_lock(&lock);
	if (place(&block, alignment > GV_GRANULE ? alignment : GV_GRANULE, true))
		base = block.base;
	pthread_mutex_unlock(&lock);
	return base;
}

int gv_register_host(void *base, size_t bytes)
{
	struct gv_block block = {.base = base, .bytes = bytes, .device = gv_device(), .kind = GV_HOST, .readable = true};
	bool ok;

	if (!base || !bytes)
		return GV_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	ok = insert(block);
	if (ok)
		mark(&block);
	pthread_mutex_unlock(&lock);
	return ok ? GV_OK : GV_ERROR_OUT_OF_MEMORY;
}

/* take removes the block that starts at base from the table. */
static bool take(void *base, bool owned, struct gv_block *block)
{
	ptrdiff_t i;
	bool found;

	pthread_mutex_lock(&lock);
	i = last_at_or_below(base);
	found = i >= 0 && blocks[i].base == base && blocks[i].owned == owned;
	if (found) {
		*block = blocks[i];
		block_count--;
		memmove(blocks + i, blocks + i + 1, (block_count - (size_t)i) * sizeof *blocks);
		if (block->charged)
			counters[block->device].used_bytes -= block->bytes;
		else if (block->kind == GV_HOST && owned)
			pinned_bytes -= block->bytes;
		if (owned) /* under the lock: the hole must not be handed out before it is empty */
			unmap(block);
		else
			unmark(block);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

int gv_unregister_host(void *base)
{
	struct gv_block block;

	return take(base, false, &block) ? GV_OK : GV_ERROR_INVALID_VALUE;
}

int gv_free(void *base)
{
	struct gv_block block;

	return take(base, true, &block) ? GV_OK : GV_ERROR_INVALID_VALUE;
}

bool gv_find(const void *p, struct gv_block *block)
{
	ptrdiff_t i;
	bool found;

	pthread_mutex_lock(&lock);
	i = last_at_or_below(p);
	found = i >= 0 && (const char *)p < blocks[i].base + blocks[i].bytes;
	if (found)
		*block = blocks[i];
	pthread_mutex_unlock(&lock);
	return found;
}

void gv_memory_info(int device, uint64_t *free_bytes, uint64_t *total_bytes)
{
	uint64_t all, used;

	pthread_mutex_lock(&lock);
	all = room(device);
	used = counters[device].used_bytes;
	pthread_mutex_unlock(&lock);
	*total_bytes = gv_profile()->total_bytes;
	*free_bytes = used < all ? all - used : 0; /* a library may have come when the card was full */
}

uint64_t gv_used_bytes(int device)
{
	return gv_memory_counters(device).used_bytes;
}

uint64_t gv_peak_bytes(int device)
{
	return gv_memory_counters(device).peak_bytes;
}

struct gv_memory_counters gv_memory_counters(int device)
{
	struct gv_memory_counters copy;

	pthread_mutex_lock(&lock);
	copy = counters[device];
	pthread_mutex_unlock(&lock);
	return copy;
}

uint64_t gv_pinned_peak_bytes(void)
{
	uint64_t bytes;

	pthread_mutex_lock(&lock);
	bytes = pinned_peak;
	pthread_mutex_unlock(&lock);
	return bytes;
}

void gv_memory_fork(int stage)
{
	if (stage == GV_FORK_PREPARE) {
		pthread_mutex_lock(&lock);
		return;
	}
	if (stage == GV_FORK_CHILD) {
		memset(counters, 0, sizeof counters);
		memset(loaded, 0, sizeof loaded);
		offered_count = 0;
		refused.bytes = 0;
		used_before = false;
	}
	pthread_mutex_unlock(&lock);
}
