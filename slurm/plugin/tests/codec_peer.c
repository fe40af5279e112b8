/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The C codec for the tests of slurm/wire. Reads frames from standard input,
 * each after one byte 'q' (request) or 'r' (reply) and its length in four bytes,
 * and answers each with a line: "bad", or the fields in the order of FORMAT.md
 * as name=value, and for a request frame=, written again by the plugin's encoder.
 * Every frame lies in a block of exactly its size, so that a sanitizer sees a
 * read past its end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../codec.h"

enum type {
	NUMBER,
	TEXT,
	LIST
};

/* Written apart from codec.c, so that a swap of two members there is seen. */
static const struct {
	unsigned tag;
	enum type type;
	size_t offset;
	const char *name;
} fields[] = {
#define F(tag, type, member) {tag, type, offsetof(struct gresize_request, member), #member}
	/* clang-format off */
	F(1, NUMBER, slurm_version),    F(2, NUMBER, submit_uid),
	F(3, NUMBER, user_id),          F(4, NUMBER, group_id),
	F(5, NUMBER, flags),            F(6, NUMBER, begin_time),
	F(7, NUMBER, deadline),         F(16, TEXT, name),
	F(17, TEXT, partition),         F(18, TEXT, account),
	F(19, TEXT, qos),               F(20, TEXT, reservation),
	F(21, TEXT, features),          F(22, TEXT, prefer),
	F(23, TEXT, tres_per_job),      F(24, TEXT, tres_per_node),
	F(25, TEXT, tres_per_socket),   F(26, TEXT, tres_per_task),
	F(27, TEXT, cpus_per_tres),     F(28, TEXT, mem_per_tres),
	F(29, TEXT, array_inx),         F(30, TEXT, comment),
	F(31, TEXT, admin_comment),     F(32, TEXT, dependency),
	F(33, TEXT, licenses),          F(34, TEXT, work_dir),
	F(35, TEXT, req_nodes),         F(36, TEXT, exc_nodes),
	F(37, TEXT, skip_reason),
	F(48, NUMBER, pn_min_memory),   F(49, NUMBER, pn_min_cpus),
	F(50, NUMBER, min_cpus),        F(51, NUMBER, min_nodes),
	F(52, NUMBER, max_nodes),       F(53, NUMBER, num_tasks),
	F(54, NUMBER, cpus_per_task),   F(55, NUMBER, ntasks_per_node),
	F(56, NUMBER, ntasks_per_tres), F(57, NUMBER, time_limit),
	F(58, NUMBER, priority),        F(64, LIST, argv),
	F(65, NUMBER, argv_total),      F(66, TEXT, script),
	F(67, NUMBER, script_total),    F(68, LIST, environment),
	F(69, NUMBER, environment_total),
/* clang-format on */
#undef F
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "codec_peer: %s\n", why);
	exit(2);
}

static uint64_t big_endian(const uint8_t *at, size_t bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | *at++;
	return value;
}

static void print_hex(const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		printf("%02x", (unsigned char)bytes[i]);
}

static void print_text(const char *name, struct gresize_text text)
{
	if (!text.bytes)
		return;
	printf(" %s=", name);
	print_hex(text.bytes, text.length);
}

static void print_number(const char *name, struct gresize_number number)
{
	if (number.set)
		printf(" %s=%llu", name, (unsigned long long)number.value);
}

static struct gresize_list split(const uint8_t *value, size_t length)
{
	char **entries = calloc(length / 4 + 1, sizeof(*entries));
	uint32_t count = 0;

	while (length > 0) {
		size_t bytes = big_endian(value, 4);

		entries[count] = calloc(bytes + 1, 1);
		memcpy(entries[count++], value + 4, bytes);
		value += 4 + bytes;
		length -= 4 + bytes;
	}
	return (struct gresize_list){.entries = entries, .count = count};
}

static void print_list(const char *name, struct gresize_list list)
{
	if (list.count == 0)
		return;
	printf(" %s=", name);
	for (uint32_t i = 0; i < list.count; i++) {
		if (i > 0)
			putchar(',');
		print_hex(list.entries[i], strlen(list.entries[i]));
	}
}

static void release_list(struct gresize_list list)
{
	for (uint32_t i = 0; i < list.count; i++)
		free(list.entries[i]);
	free((void *)list.entries);
}

/* Requests come from the Go encoder, so this reader only stops at nonsense. */
static void read_request(const uint8_t *body, size_t left, struct gresize_request *request)
{
	memset(request, 0, sizeof(*request));
	for (size_t i = 0; left > 0; i++) {
		unsigned tag = (unsigned)big_endian(body, 2);
		size_t length = big_endian(body + 2, 4);
		const uint8_t *value = body + GRESIZE_FIELD_HEADER_BYTES;

		while (i < FIELDS && fields[i].tag != tag)
			i++;
		if (i == FIELDS)
			die("a request field of unknown tag");
		void *member = (char *)request + fields[i].offset;
		if (fields[i].type == NUMBER)
			*(struct gresize_number *)member = (struct gresize_number){
				.set = true, .value = big_endian(value, 8)};
		else if (fields[i].type == TEXT)
			*(struct gresize_text *)member = (struct gresize_text){
				.bytes = (const char *)value, .length = length};
		else
			*(struct gresize_list *)member = split(value, length);
		body += GRESIZE_FIELD_HEADER_BYTES + length;
		left -= GRESIZE_FIELD_HEADER_BYTES + length;
	}
}

static void print_request(const struct gresize_request *request)
{
	for (size_t i = 0; i < FIELDS; i++) {
		const void *member = (const char *)request + fields[i].offset;

		if (fields[i].type == NUMBER)
			print_number(fields[i].name, *(const struct gresize_number *)member);
		else if (fields[i].type == TEXT)
			print_text(fields[i].name, *(const struct gresize_text *)member);
		else
			print_list(fields[i].name, *(const struct gresize_list *)member);
	}
}

static void answer_request(const uint8_t *frame, size_t length)
{
	struct gresize_request request;
	uint32_t body_bytes;

	if (length < GRESIZE_HEADER_BYTES ||
	    !gresize_decode_header(frame, GRESIZE_KIND_REQUEST, GRESIZE_MAX_REQUEST_BYTES,
				   &body_bytes) ||
	    body_bytes != length - GRESIZE_HEADER_BYTES)
		die("a request with a bad header");
	read_request(frame + GRESIZE_HEADER_BYTES, body_bytes, &request);

	size_t size = gresize_request_size(&request);
	if (size == 0) {
		puts("bad");
	} else {
		uint8_t *again = malloc(size);

		gresize_encode_request(&request, again);
		printf("ok");
		print_request(&request);
		printf(" frame=");
		print_hex((const char *)again, size);
		putchar('\n');
		free(again);
	}
	release_list(request.argv);
	release_list(request.environment);
}

static void print_reply(const struct gresize_reply *reply)
{
	printf("ok verdict=%u hold_seconds=%u", (unsigned)reply->verdict, reply->hold_seconds);
	print_text("token", reply->token);
	if (reply->env_drop_count > 0)
		printf(" env_drop=");
	for (uint32_t i = 0; i < reply->env_drop_count; i++) {
		if (i > 0)
			putchar(',');
		print_hex(reply->env_drop[i].bytes, reply->env_drop[i].length);
	}
	print_text("features", reply->features);
	print_text("tres_per_job", reply->tres_per_job);
	print_text("tres_per_node", reply->tres_per_node);
	print_text("tres_per_socket", reply->tres_per_socket);
	print_text("tres_per_task", reply->tres_per_task);
	print_text("cpus_per_tres", reply->cpus_per_tres);
	print_text("mem_per_tres", reply->mem_per_tres);
	print_number("pn_min_memory", reply->pn_min_memory);
	print_number("pn_min_cpus", reply->pn_min_cpus);
	print_number("min_cpus", reply->min_cpus);
	putchar('\n');
}

static void answer_reply(const uint8_t *frame, size_t length)
{
	struct gresize_reply reply;
	uint32_t body_bytes;

	if (length < GRESIZE_HEADER_BYTES ||
	    !gresize_decode_header(frame, GRESIZE_KIND_REPLY, GRESIZE_MAX_REPLY_BYTES,
				   &body_bytes) ||
	    body_bytes > length - GRESIZE_HEADER_BYTES ||
	    !gresize_decode_reply(frame + GRESIZE_HEADER_BYTES, body_bytes, &reply))
		puts("bad");
	else
		print_reply(&reply);
}

int main(void)
{
	uint8_t head[5];

	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fread(head, sizeof(head), 1, stdin) == 1) {
		size_t length = big_endian(head + 1, 4);
		uint8_t *frame = malloc(length > 0 ? length : 1);

		if (length > 0 && fread(frame, length, 1, stdin) != 1)
			die("input ends inside a frame");
		if (head[0] == 'q')
			answer_request(frame, length);
		else
			answer_reply(frame, length);
		free(frame);
	}
	return 0;
}
