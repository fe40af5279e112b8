/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The breaker on a clock of its own: prints what is wrong, exits 1 if anything is. */
#include <stdio.h>

#include "../breaker.h"
#include "../limits.h"

#define MS INT64_C(1000000)
#define FIRST (GRESIZE_LOCAL_BREAKER_FIRST_PAUSE_MS * MS)

static int wrong;

static void expect(int line, const char *what, int64_t got, int64_t want)
{
	if (got == want)
		return;
	printf("breaker_test.c:%d: %s: got %lld, want %lld\n", line, what, (long long)got,
	       (long long)want);
	wrong = 1;
}

#define EXPECT(call, want) expect(__LINE__, #call, (int64_t)(call), (int64_t)(want))

static void opens_after_three_failures_in_a_row(void)
{
	struct gresize_breaker b = {0};

	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, 1), 0);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, 1), 0);
	EXPECT(gresize_breaker_success(&b), 0);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, 1), 0);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, 1), 0);
	EXPECT(gresize_breaker_ask(&b, 2), GRESIZE_TICKET_NORMAL);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, 2), 10000);
	EXPECT(gresize_breaker_ask(&b, 3), GRESIZE_TICKET_NONE);
	EXPECT(gresize_breaker_paused(&b, 1 + FIRST), 1);
	EXPECT(gresize_breaker_paused(&b, 2 + FIRST), 0);
	EXPECT(gresize_breaker_ask(&b, 1 + FIRST), GRESIZE_TICKET_NONE);
}

static void pause_doubles_up_to_its_longest(void)
{
	static const int64_t pauses_ms[] = {20000, 40000, 80000, 120000, 120000};
	struct gresize_breaker b = {0};
	int64_t now = 5, until = now + FIRST;

	for (int i = 0; i < 3; i++)
		gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, now);
	for (size_t i = 0; i < sizeof(pauses_ms) / sizeof(pauses_ms[0]); i++) {
		EXPECT(gresize_breaker_ask(&b, until - 1), GRESIZE_TICKET_NONE);
		now = until;
		EXPECT(gresize_breaker_ask(&b, now), GRESIZE_TICKET_TRIAL);
		EXPECT(gresize_breaker_ask(&b, now), GRESIZE_TICKET_NONE); /* one alone */
		EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_TRIAL, now), pauses_ms[i]);
		until = now + pauses_ms[i] * MS;
	}
	EXPECT(gresize_breaker_ask(&b, until), GRESIZE_TICKET_TRIAL);
	EXPECT(gresize_breaker_success(&b), 1);
	EXPECT(gresize_breaker_ask(&b, until), GRESIZE_TICKET_NORMAL);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, until), 0);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, until), 0);
	EXPECT(gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, until), 10000); /* short again */
}

static void calls_that_fail_together_make_one_pause(void)
{
	struct gresize_breaker b = {0};
	int pauses = 0;

	for (int i = 0; i < 100; i++)
		pauses += gresize_breaker_failure(&b, GRESIZE_TICKET_NORMAL, 7) > 0;
	EXPECT(pauses, 1);
	EXPECT(gresize_breaker_ask(&b, 7 + FIRST), GRESIZE_TICKET_TRIAL);
}

int main(void)
{
	opens_after_three_failures_in_a_row();
	pause_doubles_up_to_its_longest();
	calls_that_fail_together_make_one_pause();
	return wrong;
}
