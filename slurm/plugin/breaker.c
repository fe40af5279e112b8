/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "breaker.h"

#include "limits.h"

#define NS_PER_MS INT64_C(1000000)

static const int64_t first_pause_ns = GRESIZE_LOCAL_BREAKER_FIRST_PAUSE_MS * NS_PER_MS;
static const int64_t longest_pause_ns = GRESIZE_LOCAL_BREAKER_LONGEST_PAUSE_MS * NS_PER_MS;

bool gresize_breaker_paused(struct gresize_breaker *breaker, int64_t now_ns)
{
	return now_ns < atomic_load(&breaker->paused_until_ns);
}

enum gresize_ticket gresize_breaker_ask(struct gresize_breaker *breaker, int64_t now_ns)
{
	int64_t until = atomic_load(&breaker->paused_until_ns);

	if (until == 0)
		return GRESIZE_TICKET_NORMAL;
	if (now_ns < until)
		return GRESIZE_TICKET_NONE;
	/* Whoever moves the mark has the trial; to the others the pause goes on. */
	if (atomic_compare_exchange_strong(&breaker->paused_until_ns, &until,
					   now_ns + first_pause_ns))
		return GRESIZE_TICKET_TRIAL;
	return GRESIZE_TICKET_NONE;
}

bool gresize_breaker_success(struct gresize_breaker *breaker)
{
	atomic_store(&breaker->failures, 0);
	return atomic_exchange(&breaker->paused_until_ns, 0) != 0;
}

int64_t gresize_breaker_failure(struct gresize_breaker *breaker, enum gresize_ticket ticket,
				int64_t now_ns)
{
	if (ticket == GRESIZE_TICKET_TRIAL) {
		int64_t pause = 2 * atomic_load(&breaker->pause_ns);

		if (pause > longest_pause_ns)
			pause = longest_pause_ns;
		atomic_store(&breaker->pause_ns, pause);
		atomic_store(&breaker->paused_until_ns, now_ns + pause);
		return pause / NS_PER_MS;
	}

	if (atomic_fetch_add(&breaker->failures, 1) + 1 < GRESIZE_LOCAL_BREAKER_FAILURES)
		return 0;
	/*
	 * Calls that were under way together fail together: the first of them
	 * starts the pause, the rest must neither stretch nor double it.
	 */
	int64_t none = 0;
	atomic_store(&breaker->pause_ns, first_pause_ns);
	if (!atomic_compare_exchange_strong(&breaker->paused_until_ns, &none,
					    now_ns + first_pause_ns))
		return 0;
	return first_pause_ns / NS_PER_MS;
}
