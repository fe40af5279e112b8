/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_CODEC_H
#define GRESIZE_CODEC_H

/*
 * The C side of slurm/wire/FORMAT.md: write a request, read a reply. It knows
 * nothing of Slurm, allocates nothing and keeps nothing.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"

enum gresize_kind {
	GRESIZE_KIND_REQUEST = 1,
	GRESIZE_KIND_REPLY = 2,
};

enum gresize_verdict {
	GRESIZE_VERDICT_PASS = 1,
	GRESIZE_VERDICT_REWRITE = 2,
	GRESIZE_VERDICT_HOLD = 3,
};

enum gresize_flag {
	GRESIZE_FLAG_EXCLUSIVE = 1 << 0,
	GRESIZE_FLAG_OVERSUBSCRIBE = 1 << 1,
	GRESIZE_FLAG_REQUEUE = 1 << 2,
	GRESIZE_FLAG_NO_REQUEUE = 1 << 3,
	GRESIZE_FLAG_OVERCOMMIT = 1 << 4,
	GRESIZE_FLAG_CONTIGUOUS = 1 << 5,
};

/* A number that may be unset. */
struct gresize_number {
	bool set;
	uint64_t value;
};

/* Bytes that belong to someone else; bytes == NULL means unset. */
struct gresize_text {
	const char *bytes;
	size_t length;
};

/* NUL-terminated strings that belong to someone else. */
struct gresize_list {
	char *const *entries;
	uint32_t count;
};

struct gresize_request {
	struct gresize_number slurm_version;
	struct gresize_number submit_uid;
	struct gresize_number user_id;
	struct gresize_number group_id;
	struct gresize_number flags;
	struct gresize_number begin_time;
	struct gresize_number deadline;

	struct gresize_text name;
	struct gresize_text partition;
	struct gresize_text account;
	struct gresize_text qos;
	struct gresize_text reservation;
	struct gresize_text features;
	struct gresize_text prefer;
	struct gresize_text tres_per_job;
	struct gresize_text tres_per_node;
	struct gresize_text tres_per_socket;
	struct gresize_text tres_per_task;
	struct gresize_text cpus_per_tres;
	struct gresize_text mem_per_tres;
	struct gresize_text array_inx;
	struct gresize_text comment;
	struct gresize_text admin_comment;
	struct gresize_text dependency;
	struct gresize_text licenses;
	struct gresize_text work_dir;
	struct gresize_text req_nodes;
	struct gresize_text exc_nodes;
	struct gresize_text skip_reason;

	struct gresize_number pn_min_memory;
	struct gresize_number pn_min_cpus;
	struct gresize_number min_cpus;
	struct gresize_number min_nodes;
	struct gresize_number max_nodes;
	struct gresize_number num_tasks;
	struct gresize_number cpus_per_task;
	struct gresize_number ntasks_per_node;
	struct gresize_number ntasks_per_tres;
	struct gresize_number time_limit;
	struct gresize_number priority;

	struct gresize_list argv;
	struct gresize_number argv_total;
	struct gresize_text script;
	struct gresize_number script_total;
	struct gresize_list environment;
	struct gresize_number environment_total;
};

struct gresize_reply {
	enum gresize_verdict verdict;
	uint32_t hold_seconds;
	struct gresize_text token;
	struct gresize_text env_drop[GRESIZE_MAX_ENV_DROP_ENTRIES];
	uint32_t env_drop_count;

	/* The fields to rewrite. A text of length 0 with bytes set means "clear". */
	struct gresize_text features;
	struct gresize_text tres_per_job;
	struct gresize_text tres_per_node;
	struct gresize_text tres_per_socket;
	struct gresize_text tres_per_task;
	struct gresize_text cpus_per_tres;
	struct gresize_text mem_per_tres;
	struct gresize_number pn_min_memory;
	struct gresize_number pn_min_cpus;
	struct gresize_number min_cpus;
};

/* The size of the whole frame, or 0 when a field or the frame is over its limit. */
size_t gresize_request_size(const struct gresize_request *request);

/* Writes the frame into a buffer of exactly gresize_request_size() bytes. */
void gresize_encode_request(const struct gresize_request *request, uint8_t *frame);

/* Reads a frame header. False when it is not a frame of this kind and version,
 * or when its body is longer than max_bytes. */
bool gresize_decode_header(const uint8_t header[GRESIZE_HEADER_BYTES], enum gresize_kind kind,
			   uint32_t max_bytes, uint32_t *body_bytes);

/* Reads the body of a reply. False unless every rule of FORMAT.md is kept.
 * The texts of the reply point into the body. */
bool gresize_decode_reply(const uint8_t *body, size_t body_bytes, struct gresize_reply *reply);

#endif
