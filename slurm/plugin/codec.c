/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "codec.h"

#include <string.h>

static const uint8_t magic[4] = {'G', 'R', 'S', 'Z'};

#define IGNORABLE_TAG 0x8000

/* ---- writing ---- */

enum field_type {
	FIELD_NUMBER,
	FIELD_TEXT,
	FIELD_LIST
};

struct request_field {
	uint16_t tag;
	enum field_type type;
	size_t offset;
	size_t max_bytes;
};

#define NUMBER(tag, member) {tag, FIELD_NUMBER, offsetof(struct gresize_request, member), 8}
#define TEXT(tag, member) \
	{tag, FIELD_TEXT, offsetof(struct gresize_request, member), GRESIZE_MAX_STRING_BYTES}

/* In the order of the tags: that order is the format. */
static const struct request_field request_fields[] = {
	NUMBER(1, slurm_version),
	NUMBER(2, submit_uid),
	NUMBER(3, user_id),
	NUMBER(4, group_id),
	NUMBER(5, flags),
	NUMBER(6, begin_time),
	NUMBER(7, deadline),
	TEXT(16, name),
	TEXT(17, partition),
	TEXT(18, account),
	TEXT(19, qos),
	TEXT(20, reservation),
	TEXT(21, features),
	TEXT(22, prefer),
	TEXT(23, tres_per_job),
	TEXT(24, tres_per_node),
	TEXT(25, tres_per_socket),
	TEXT(26, tres_per_task),
	TEXT(27, cpus_per_tres),
	TEXT(28, mem_per_tres),
	TEXT(29, array_inx),
	TEXT(30, comment),
	TEXT(31, admin_comment),
	TEXT(32, dependency),
	TEXT(33, licenses),
	TEXT(34, work_dir),
	TEXT(35, req_nodes),
	TEXT(36, exc_nodes),
	TEXT(37, skip_reason),
	NUMBER(48, pn_min_memory),
	NUMBER(49, pn_min_cpus),
	NUMBER(50, min_cpus),
	NUMBER(51, min_nodes),
	NUMBER(52, max_nodes),
	NUMBER(53, num_tasks),
	NUMBER(54, cpus_per_task),
	NUMBER(55, ntasks_per_node),
	NUMBER(56, ntasks_per_tres),
	NUMBER(57, time_limit),
	NUMBER(58, priority),
	{64, FIELD_LIST, offsetof(struct gresize_request, argv), GRESIZE_MAX_ARGV_BYTES},
	NUMBER(65, argv_total),
	{66, FIELD_TEXT, offsetof(struct gresize_request, script), GRESIZE_MAX_SCRIPT_BYTES},
	NUMBER(67, script_total),
	{68, FIELD_LIST, offsetof(struct gresize_request, environment),
	 GRESIZE_MAX_ENVIRONMENT_BYTES},
	NUMBER(69, environment_total),
};

#define REQUEST_FIELDS (sizeof(request_fields) / sizeof(request_fields[0]))

static uint8_t *put_u16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
	return at + 2;
}

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
	return put_u16(put_u16(at, (uint16_t)(value >> 16)), (uint16_t)value);
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
	return put_u32(put_u32(at, (uint32_t)(value >> 32)), (uint32_t)value);
}

static uint8_t *put_bytes(uint8_t *at, const char *bytes, size_t length)
{
	memcpy(at, bytes, length);
	return at + length;
}

static const void *member(const struct gresize_request *request, const struct request_field *field)
{
	return (const uint8_t *)request + field->offset;
}

static size_t list_bytes(const struct gresize_list *list)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i < list->count; i++)
		bytes += 4 + strlen(list->entries[i]);
	return bytes;
}

/* The bytes of the value; *present is false for a field that is left out. */
static size_t value_bytes(const struct gresize_request *request, const struct request_field *field,
			  bool *present)
{
	switch (field->type) {
	case FIELD_NUMBER: {
		const struct gresize_number *number = member(request, field);
		*present = number->set;
		return 8;
	}
	case FIELD_TEXT: {
		const struct gresize_text *text = member(request, field);
		*present = text->bytes && text->length > 0;
		return text->length;
	}
	case FIELD_LIST: {
		const struct gresize_list *list = member(request, field);
		*present = list->count > 0;
		return *present ? list_bytes(list) : 0;
	}
	}
	*present = false;
	return 0;
}

size_t gresize_request_size(const struct gresize_request *request)
{
	size_t body = 0;

	if (request->argv.count > GRESIZE_MAX_LIST_ENTRIES ||
	    request->environment.count > GRESIZE_MAX_LIST_ENTRIES)
		return 0;
	for (size_t i = 0; i < REQUEST_FIELDS; i++) {
		bool present;
		size_t bytes = value_bytes(request, &request_fields[i], &present);

		if (!present)
			continue;
		if (bytes > request_fields[i].max_bytes)
			return 0;
		body += GRESIZE_FIELD_HEADER_BYTES + bytes;
	}
	if (body > GRESIZE_MAX_REQUEST_BYTES)
		return 0;
	return GRESIZE_HEADER_BYTES + body;
}

static uint8_t *put_value(uint8_t *at, const struct gresize_request *request,
			  const struct request_field *field)
{
	switch (field->type) {
	case FIELD_NUMBER: {
		const struct gresize_number *number = member(request, field);
		return put_u64(at, number->value);
	}
	case FIELD_TEXT: {
		const struct gresize_text *text = member(request, field);
		return put_bytes(at, text->bytes, text->length);
	}
	case FIELD_LIST: {
		const struct gresize_list *list = member(request, field);

		for (uint32_t i = 0; i < list->count; i++) {
			size_t length = strlen(list->entries[i]);

			at = put_u32(at, (uint32_t)length);
			at = put_bytes(at, list->entries[i], length);
		}
		return at;
	}
	}
	return at;
}

void gresize_encode_request(const struct gresize_request *request, uint8_t *frame)
{
	uint8_t *at = frame + GRESIZE_HEADER_BYTES;

	for (size_t i = 0; i < REQUEST_FIELDS; i++) {
		bool present;
		size_t bytes = value_bytes(request, &request_fields[i], &present);

		if (!present)
			continue;
		at = put_u16(at, request_fields[i].tag);
		at = put_u32(at, (uint32_t)bytes);
		at = put_value(at, request, &request_fields[i]);
	}

	uint8_t *header = frame;
	memcpy(header, magic, sizeof(magic));
	header = put_u16(header + sizeof(magic), GRESIZE_PROTOCOL_VERSION);
	header = put_u16(header, GRESIZE_KIND_REQUEST);
	put_u32(header, (uint32_t)(at - frame - GRESIZE_HEADER_BYTES));
}

/* ---- reading ---- */

static uint16_t get_u16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t get_u32(const uint8_t *at)
{
	return (uint32_t)get_u16(at) << 16 | get_u16(at + 2);
}

static uint64_t get_u64(const uint8_t *at)
{
	return (uint64_t)get_u32(at) << 32 | get_u32(at + 4);
}

bool gresize_decode_header(const uint8_t header[GRESIZE_HEADER_BYTES], enum gresize_kind kind,
			   uint32_t max_bytes, uint32_t *body_bytes)
{
	if (memcmp(header, magic, sizeof(magic)) != 0)
		return false;
	if (get_u16(header + 4) != GRESIZE_PROTOCOL_VERSION || get_u16(header + 6) != kind)
		return false;
	*body_bytes = get_u32(header + 8);
	return *body_bytes <= max_bytes;
}

static bool alphanumeric(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool valid_token(const uint8_t *bytes, size_t length)
{
	if (length == 0 || length > GRESIZE_MAX_TOKEN_BYTES)
		return false;
	for (size_t i = 0; i < length; i++)
		if (!alphanumeric(bytes[i]) && bytes[i] != '_' && bytes[i] != '-')
			return false;
	return true;
}

static bool valid_env_name(const uint8_t *bytes, size_t length)
{
	if (length == 0 || length > GRESIZE_MAX_ENV_NAME_BYTES)
		return false;
	if (bytes[0] >= '0' && bytes[0] <= '9')
		return false;
	for (size_t i = 0; i < length; i++)
		if (!alphanumeric(bytes[i]) && bytes[i] != '_')
			return false;
	return true;
}

static bool valid_rewrite(const uint8_t *bytes, size_t length)
{
	if (length > GRESIZE_MAX_REWRITE_BYTES)
		return false;
	for (size_t i = 0; i < length; i++)
		if (bytes[i] < 0x20 || bytes[i] > 0x7e)
			return false;
	return true;
}

static bool get_number(const uint8_t *value, size_t length, uint64_t largest, uint64_t *number)
{
	if (length != 8)
		return false;
	*number = get_u64(value);
	return *number <= largest;
}

static bool get_rewrite_number(const uint8_t *value, size_t length, uint64_t largest,
			       struct gresize_number *number)
{
	number->set = true;
	return get_number(value, length, largest, &number->value);
}

static bool get_rewrite_text(const uint8_t *value, size_t length, struct gresize_text *text)
{
	if (!valid_rewrite(value, length))
		return false;
	text->bytes = (const char *)value;
	text->length = length;
	return true;
}

static bool get_env_drop(const uint8_t *value, size_t length, struct gresize_reply *reply)
{
	if (length == 0)
		return false;
	while (length > 0) {
		if (length < 4 || reply->env_drop_count == GRESIZE_MAX_ENV_DROP_ENTRIES)
			return false;
		uint32_t entry = get_u32(value);
		value += 4;
		length -= 4;
		if (entry > length || !valid_env_name(value, entry))
			return false;
		reply->env_drop[reply->env_drop_count].bytes = (const char *)value;
		reply->env_drop[reply->env_drop_count].length = entry;
		reply->env_drop_count++;
		value += entry;
		length -= entry;
	}
	return true;
}

/* The largest values that are not Slurm's marks for "unset" or "no limit". */
#define LARGEST_U64 UINT64_C(0xfffffffffffffffd)
#define LARGEST_U32 UINT64_C(0xfffffffd)
#define LARGEST_PN_MIN_CPUS UINT64_C(0xfff0)

static bool get_reply_field(uint16_t tag, const uint8_t *value, size_t length,
			    struct gresize_reply *reply)
{
	uint64_t number;

	switch (tag) {
	case 1:
		if (!get_number(value, length, GRESIZE_VERDICT_HOLD, &number) || number == 0)
			return false;
		reply->verdict = (enum gresize_verdict)number;
		return true;
	case 2:
		if (!get_number(value, length, GRESIZE_MAX_HOLD_SECONDS, &number))
			return false;
		reply->hold_seconds = (uint32_t)number;
		return true;
	case 3:
		if (!valid_token(value, length))
			return false;
		reply->token.bytes = (const char *)value;
		reply->token.length = length;
		return true;
	case 4:
		return get_env_drop(value, length, reply);
	case 21:
		return get_rewrite_text(value, length, &reply->features);
	case 23:
		return get_rewrite_text(value, length, &reply->tres_per_job);
	case 24:
		return get_rewrite_text(value, length, &reply->tres_per_node);
	case 25:
		return get_rewrite_text(value, length, &reply->tres_per_socket);
	case 26:
		return get_rewrite_text(value, length, &reply->tres_per_task);
	case 27:
		return get_rewrite_text(value, length, &reply->cpus_per_tres);
	case 28:
		return get_rewrite_text(value, length, &reply->mem_per_tres);
	case 48:
		return get_rewrite_number(value, length, LARGEST_U64, &reply->pn_min_memory);
	case 49:
		return get_rewrite_number(value, length, LARGEST_PN_MIN_CPUS, &reply->pn_min_cpus);
	case 50:
		return get_rewrite_number(value, length, LARGEST_U32, &reply->min_cpus);
	default:
		return (tag & IGNORABLE_TAG) != 0;
	}
}

static bool rewrites_something(const struct gresize_reply *reply)
{
	return reply->features.bytes || reply->tres_per_job.bytes || reply->tres_per_node.bytes ||
	       reply->tres_per_socket.bytes || reply->tres_per_task.bytes ||
	       reply->cpus_per_tres.bytes || reply->mem_per_tres.bytes ||
	       reply->pn_min_memory.set || reply->pn_min_cpus.set || reply->min_cpus.set;
}

static bool consistent(const struct gresize_reply *reply)
{
	bool holds = reply->hold_seconds != 0 || reply->token.bytes || reply->env_drop_count != 0;

	switch (reply->verdict) {
	case GRESIZE_VERDICT_PASS:
		return !holds && !rewrites_something(reply);
	case GRESIZE_VERDICT_REWRITE:
		return !holds && rewrites_something(reply);
	case GRESIZE_VERDICT_HOLD:
		return reply->token.bytes != NULL; /* 0 seconds: a stamp */
	}
	return false;
}

bool gresize_decode_reply(const uint8_t *body, size_t body_bytes, struct gresize_reply *reply)
{
	const unsigned required_tags = 1u << 1 | 1u << 2; /* verdict, hold_seconds */
	unsigned seen = 0;
	int last_tag = -1;

	memset(reply, 0, sizeof(*reply));
	while (body_bytes > 0) {
		if (body_bytes < GRESIZE_FIELD_HEADER_BYTES)
			return false;
		uint16_t tag = get_u16(body);
		uint32_t length = get_u32(body + 2);
		body += GRESIZE_FIELD_HEADER_BYTES;
		body_bytes -= GRESIZE_FIELD_HEADER_BYTES;
		if (length > body_bytes || tag <= last_tag)
			return false;
		last_tag = tag;
		if (!get_reply_field(tag, body, length, reply))
			return false;
		if (tag < 8)
			seen |= 1u << tag;
		body += length;
		body_bytes -= length;
	}
	return (seen & required_tags) == required_tags && consistent(reply);
}
