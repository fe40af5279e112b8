/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_LIMITS_H
#define GRESIZE_LIMITS_H

/*
 * The limits of both sides, as in slurm/wire/limits.go, which says why each is
 * what it is. A test of slurm/wire reads this header and compares the values, so
 * keep to plain numbers.
 */
#define GRESIZE_PROTOCOL_VERSION 1
#define GRESIZE_HEADER_BYTES 12
#define GRESIZE_FIELD_HEADER_BYTES 6
#define GRESIZE_MAX_REQUEST_BYTES 2097152
#define GRESIZE_MAX_REPLY_BYTES 16384
#define GRESIZE_MAX_STRING_BYTES 65536
#define GRESIZE_MAX_SCRIPT_BYTES 1048576
#define GRESIZE_MAX_ENVIRONMENT_BYTES 262144
#define GRESIZE_MAX_ARGV_BYTES 65536
#define GRESIZE_MAX_LIST_ENTRIES 16384
#define GRESIZE_MAX_REWRITE_BYTES 1023
#define GRESIZE_MAX_HOLD_SECONDS 300
#define GRESIZE_MAX_TOKEN_BYTES 64
#define GRESIZE_MAX_ENV_DROP_ENTRIES 32
#define GRESIZE_MAX_ENV_NAME_BYTES 128

/* The limits below are the plugin's alone. */

/* A script is looked through for the opt-out line up to here. A longer one is
 * far over Slurm's own limit (4 MiB by default) and is left to Slurm. */
#define GRESIZE_LOCAL_MAX_SCAN_BYTES 16777216

/* The time that a submission may lose to gresize, connect included. */
#define GRESIZE_LOCAL_DEFAULT_DEADLINE_MS 50
#define GRESIZE_LOCAL_MAX_DEADLINE_MS 1000

/* The breaker: so many failures in a row, then silence for a growing time. */
#define GRESIZE_LOCAL_BREAKER_FAILURES 3
#define GRESIZE_LOCAL_BREAKER_FIRST_PAUSE_MS 10000
#define GRESIZE_LOCAL_BREAKER_LONGEST_PAUSE_MS 120000

/* plugin.conf: a handful of short lines. */
#define GRESIZE_LOCAL_MAX_CONFIG_BYTES 4096

/* sun_path of a unix socket, with its NUL. */
#define GRESIZE_LOCAL_MAX_SOCKET_PATH_BYTES 108

#endif
