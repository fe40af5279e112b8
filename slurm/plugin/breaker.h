/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef GRESIZE_BREAKER_H
#define GRESIZE_BREAKER_H

/*
 * The circuit breaker: after some failures in a row the daemon is left alone for
 * a while, so that a dead daemon costs the submissions nothing. Then a single
 * submission tries again; the pause doubles while that fails. Safe to use from
 * many threads: slurmctld calls job_submit concurrently from 23.02 on.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct gresize_breaker {
	atomic_int failures;
	_Atomic int64_t paused_until_ns; /* 0: no pause */
	_Atomic int64_t pause_ns;        /* length of the last pause */
};

enum gresize_ticket {
	GRESIZE_TICKET_NONE,   /* paused: do not try */
	GRESIZE_TICKET_NORMAL, /* no pause: try */
	GRESIZE_TICKET_TRIAL,  /* the pause is over and this call alone may try */
};

/* Is a pause running? Takes no ticket: for leaving early. */
bool gresize_breaker_paused(struct gresize_breaker *breaker, int64_t now_ns);

enum gresize_ticket gresize_breaker_ask(struct gresize_breaker *breaker, int64_t now_ns);

/* The call went well. True when that ended a pause. */
bool gresize_breaker_success(struct gresize_breaker *breaker);

/* The call failed. The pause that begins now in milliseconds, 0 when none does. */
int64_t gresize_breaker_failure(struct gresize_breaker *breaker, enum gresize_ticket ticket,
				int64_t now_ns);

#endif
