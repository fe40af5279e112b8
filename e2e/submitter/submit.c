/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Submits many small jobs that ask for a GPU, as fast as slurmctld takes them or at a given rate: sbatch itself takes some 30 ms each. For every job it
 * prints its id, when it was asked for (ms since 1970) and for how long (us); or "refused" with Slurm's reason. A controller that is away is asked again,
 * and that is one line "again".
 *
 *   submit COUNT PER_SECOND WORK_DIR CONSTRAINT [BEGIN_SECONDS SCRIPT_BYTES]
 *
 * BEGIN_SECONDS says in how many seconds a job may begin, SCRIPT_BYTES how long its script is.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

static int64_t now_us(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Whether the job was not looked at: the controller is away, starting or too busy to answer. */
static int away(int error)
{
	return (error >= 1001 && error <= 1099) || (error >= 1800 && error <= 1999) || error == SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT ||
	       error == ESLURM_IN_STANDBY_MODE || error == ETIMEDOUT || error == ECONNREFUSED || error == ECONNRESET || error == EPIPE || error == EAGAIN || (error >= 5000 && error <= 5099);
}

int main(int argc, char **argv)
{
	if (argc != 5 && argc != 7) {
		fprintf(stderr, "submit COUNT PER_SECOND WORK_DIR CONSTRAINT [BEGIN_SECONDS SCRIPT_BYTES]\n");
		return 2;
	}
	static const char head[] = "#!/bin/sh\nexit 0\n";
	long begin_seconds = argc == 7 ? strtol(argv[5], NULL, 10) : 0, script_bytes = argc == 7 ? strtol(argv[6], NULL, 10) : 0;
	if (script_bytes < (long)sizeof head)
		script_bytes = sizeof head;
	char *script = malloc((size_t)script_bytes + 1);
	if (!script)
		return 2;
	memset(script, '#', (size_t)script_bytes);
	memcpy(script, head, sizeof head - 1);
	script[script_bytes - 1] = '\n';
	script[script_bytes] = 0;
	long count = strtol(argv[1], NULL, 10);
	double rate = strtod(argv[2], NULL);
	char *environment[] = {"PATH=/usr/bin:/bin", NULL};
	char *words[] = {"/load.sh", NULL};
	slurm_init(NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	int64_t begin = now_us(CLOCK_MONOTONIC);
	for (long i = 0; i < count; i++) {
		int64_t due = rate > 0 ? begin + (int64_t)(1e6 * (double)i / rate) : 0;
		while (due > now_us(CLOCK_MONOTONIC))
			usleep((useconds_t)(due - now_us(CLOCK_MONOTONIC) > 1000 ? due - now_us(CLOCK_MONOTONIC) : 1000));
		job_desc_msg_t job;
		slurm_init_job_desc_msg(&job);
		job.name = "load";
		job.script = script;
		if (begin_seconds > 0)
			job.begin_time = time(NULL) + begin_seconds;
		job.argc = 1;
		job.argv = words;
		job.environment = environment;
		job.env_size = 1;
		job.user_id = geteuid();
		job.group_id = getegid();
		job.work_dir = argv[3];
		job.std_in = job.std_out = job.std_err = "/dev/null";
		job.tres_per_node = "gres:gpu:1";
		job.features = argv[4];
		job.min_cpus = 1;
		job.pn_min_memory = 1;
		job.time_limit = 5;
		submit_response_msg_t *answer = NULL;
		int64_t at = now_us(CLOCK_REALTIME) / 1000, from = now_us(CLOCK_MONOTONIC);
		if (slurm_submit_batch_job(&job, &answer) == SLURM_SUCCESS && answer) {
			printf("%u %lld %lld\n", answer->job_id, (long long)at, (long long)(now_us(CLOCK_MONOTONIC) - from));
			slurm_free_submit_response_response_msg(answer);
			continue;
		}
		int error = slurm_get_errno();
		if (away(error)) {
			printf("again %d %s\n", error, slurm_strerror(error));
			usleep(300000);
			i--;
			continue;
		}
		printf("refused %d %s\n", error, slurm_strerror(error));
	}
	free(script);
	return 0;
}
