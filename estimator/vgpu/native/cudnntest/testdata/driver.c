/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the sizes of workspaces from a test: a key a line on standard input, the answer a line on standard output. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../cudnn_workspace.h"
#include "../../cudnn_workspace_key.h"

static int64_t attribute(int number)
{
	return number;
}

int main(int argc, char **argv)
{
	static char line[4 * GV_CONV_KEY_MAX_BYTES], key[GV_CONV_KEY_MAX_BYTES];
	struct gv_cudnn_device device = {.name = "a \"card\"", .sm_count = 28, .total_bytes = (int64_t)12 << 30, .attribute = attribute};
	struct gv_plan plans[GV_CONV_MAX_PLANS];
	struct gv_workspace_report report;
	struct gv_conv conv;

	if (argc != 4)
		return 64;
	device.cudnn_version = atoi(argv[1]);
	device.cc_major = atoi(argv[2]);
	device.cc_minor = atoi(argv[3]);
	gv_cudnn_workspace_setup(&device);
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (!gv_conv_parse_key(line, &conv) || gv_conv_key(&conv, key, sizeof key) == 0) {
			puts("bad");
		} else {
			int count = gv_cudnn_plans(&conv, plans, GV_CONV_MAX_PLANS);
			printf("source %d high %" PRId64 " plans", plans[0].source, gv_cudnn_workspace_high(&conv));
			for (int i = 0; i < count; i++)
				printf(" %" PRId64 ":%" PRIu32, plans[i].workspace_bytes, plans[i].notes);
			printf(" key %s", key);
		}
		fflush(stdout);
	}
	gv_cudnn_workspace_report(&report);
	fprintf(stderr, "planned %" PRId64 " modelled %" PRId64 " bounded %" PRId64 " max %" PRId64 "\n", report.planned,
		report.modelled, report.bounded, report.max_workspace_bytes);
	return 0;
}
