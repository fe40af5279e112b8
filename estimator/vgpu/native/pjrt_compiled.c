/*
 * Keeps compiled programs as files beside the reports, and finds those of an earlier run in the folder that GRESIZE_VGPU_COMPILED names. A file has the
 * whole source before the program, so that no two sources are taken for one. It is whole or not there: it gets its name when it has been written.
 */
#define _GNU_SOURCE
#include "state.h"
#include "pjrt_compiled.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PATH = 4096 };

/* What one process leaves at most; the folder of the reports is in memory. */
static const size_t most_bytes = 64u << 20, most_each = 16u << 20;
static size_t kept_bytes;

static uint64_t mixed(uint64_t hash, const void *bytes, size_t size)
{
	const unsigned char *text = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ text[i]) * 0x100000001b3u;
	return (hash ^ size) * 0x100000001b3u;
}

static uint64_t hash(const struct gv_source *source)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (int p = 0; p < GV_COMPILED_PARTS; p++)
		h = mixed(h, source->parts[p].text, source->parts[p].size);
	return h;
}

/* ---- options */

/* Options are a message of protocol buffers. A map in it is written in another order each time. */
struct field {
	uint64_t tag;
	const unsigned char *payload;
	size_t size;
};
enum { WIRE_NUMBER = 0,
       WIRE_8_BYTES = 1,
       WIRE_BYTES = 2,
       WIRE_4_BYTES = 5,
       MAX_DEPTH = 8 };

static bool number(const unsigned char **at, const unsigned char *end, uint64_t *value)
{
	*value = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		unsigned char c = *(*at)++;
		*value |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80))
			return true;
	}
	return false;
}

static bool next_field(const unsigned char **at, const unsigned char *end, struct field *f)
{
	uint64_t size = 0, ignored;

	if (!number(at, end, &f->tag) || !(f->tag >> 3))
		return false;
	f->payload = *at;
	switch (f->tag & 7) {
	case WIRE_NUMBER:
		if (!number(at, end, &ignored))
			return false;
		f->size = (size_t)(*at - f->payload);
		return true;
	case WIRE_BYTES:
		if (!number(at, end, &size))
			return false;
		f->payload = *at;
		break;
	case WIRE_8_BYTES:
		size = 8;
		break;
	case WIRE_4_BYTES:
		size = 4;
		break;
	default:
		return false;
	}
	if (size > (size_t)(end - *at))
		return false;
	f->size = (size_t)size;
	*at += size;
	return true;
}

/* How many fields text has as a message, -1 where it is none; what fields there are of a map's entry, whose numbers are 1 and 2, is in entry. */
static int fields(const unsigned char *text, size_t size, bool *entry)
{
	const unsigned char *at = text, *end = text + size;
	struct field f;
	int count = 0;

	*entry = true;
	while (at < end) {
		if (!next_field(&at, end, &f))
			return -1;
		*entry = *entry && f.tag >> 3 == (uint64_t)++count && (count > 1 || (f.tag & 7) == WIRE_BYTES);
	}
	*entry = *entry && count == 2;
	return count;
}

static uint64_t digest(const unsigned char *text, size_t size, uint64_t seed, int depth)
{
	const unsigned char *at = text, *end = text + size;
	uint64_t h = seed, entries = 0, entries_tag = 0;
	struct field f;
	bool entry;

	if (!depth || fields(text, size, &entry) <= 0)
		return mixed(seed, text, size);
	while (at < end && next_field(&at, end, &f)) {
		uint64_t d = (f.tag & 7) == WIRE_BYTES ? digest(f.payload, f.size, seed, depth - 1) : mixed(seed, f.payload, f.size);
		bool of_map = (f.tag & 7) == WIRE_BYTES && fields(f.payload, f.size, &entry) == 2 && entry;
		if (entries_tag && (!of_map || f.tag != entries_tag)) {
			h = mixed(h, &entries, sizeof entries);
			entries = entries_tag = 0;
		}
		if (of_map) {
			entries_tag = f.tag;
			entries += d;
			continue;
		}
		h = mixed(h, &f.tag, sizeof f.tag);
		h = mixed(h, &d, sizeof d);
	}
	return mixed(h, &entries, sizeof entries);
}

void gv_compiled_options(const void *options, size_t size, uint64_t to[2])
{
	to[0] = digest(options, size, 0xcbf29ce484222325u, MAX_DEPTH);
	to[1] = digest(options, size, 0x9e3779b97f4a7c15u, MAX_DEPTH);
}

/* ---- files */

static bool path_of(char path[MAX_PATH], const char *variable, const struct gv_source *source, const char *tail)
{
	const char *folder = getenv(variable);

	return folder && *folder && snprintf(path, MAX_PATH, "%s/compiled-%016llx%s", folder, (unsigned long long)hash(source), tail) < MAX_PATH;
}

static char *content(const char *path, size_t *size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	size_t have = 0;
	off_t end;

	if (file < 0)
		return NULL;
	/* Of a pipe and of a device this is no size. fstat would want glibc 2.33. */
	end = lseek(file, 0, SEEK_END);
	if (end > 0 && (size_t)end <= most_each && !lseek(file, 0, SEEK_SET))
		text = malloc((size_t)end);
	while (text && have < (size_t)end) {
		ssize_t n = read(file, text + have, (size_t)end - have);
		if (n <= 0)
			break;
		have += (size_t)n;
	}
	close(file);
	*size = have;
	return text;
}

/* How much of text is the source; 0 where it is another one. */
static size_t begins_with(const char *text, size_t size, const struct gv_source *source)
{
	size_t at = 0;

	for (int p = 0; p < GV_COMPILED_PARTS; p++) {
		size_t length = source->parts[p].size;
		if (size - at < sizeof length || memcmp(text + at, &length, sizeof length))
			return 0;
		at += sizeof length;
		if (size - at < length || (length && memcmp(text + at, source->parts[p].text, length)))
			return 0;
		at += length;
	}
	return at;
}

static void *from(const char *variable, const struct gv_source *source, size_t *size)
{
	char path[MAX_PATH], *text;
	size_t all = 0, at;

	text = path_of(path, variable, source, ".bin") ? content(path, &all) : NULL;
	at = text ? begins_with(text, all, source) : 0;
	if (!at || at == all) {
		free(text);
		return NULL;
	}
	*size = all - at;
	memmove(text, text + at, *size);
	return text;
}

void *gv_compiled_kept(const struct gv_source *source, size_t *size)
{
	void *found = from("GRESIZE_VGPU_COMPILED", source, size);

	return found ? found : from("GRESIZE_VGPU_REPORT_DIR", source, size);
}

static bool put(int file, const void *text, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t n = write(file, (const char *)text + done, size - done);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

void gv_compiled_keep(const struct gv_source *source, const void *compiled, size_t size)
{
	char part[MAX_PATH], path[MAX_PATH], tail[32];
	size_t all = size;
	bool whole = true;
	int file;

	for (int p = 0; p < GV_COMPILED_PARTS; p++)
		all += sizeof source->parts[p].size + source->parts[p].size;
	snprintf(tail, sizeof tail, ".%d.part", getpid());
	if (!size || all > most_each || !path_of(path, "GRESIZE_VGPU_REPORT_DIR", source, ".bin") || !path_of(part, "GRESIZE_VGPU_REPORT_DIR", source, tail))
		return;
	if (__atomic_add_fetch(&kept_bytes, all, __ATOMIC_RELAXED) > most_bytes)
		return;
	file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file < 0)
		return;
	for (int p = 0; p < GV_COMPILED_PARTS; p++)
		whole = whole && put(file, &source->parts[p].size, sizeof source->parts[p].size) && put(file, source->parts[p].text, source->parts[p].size);
	whole = whole && put(file, compiled, size);
	if (close(file) || !whole || rename(part, path))
		unlink(part);
}
