/* SPDX-License-Identifier: Apache-2.0 */
/* The client of gresize-cudnn-plan: convolutions planned by the job's own
 * libcudnn. Every failure means "no answer", once and for all. Not
 * thread-safe: the caller holds a lock. */
#ifndef GRESIZE_CUDNN_PLANNER_H
#define GRESIZE_CUDNN_PLANNER_H

#include "cudnn_workspace.h"

/* Writes the plans for the convolution of this key and returns their number,
 * or 0 when there is no planner or it has no answer. The helper is started by
 * the first question. */
int gv_planner_plans(const struct gv_cudnn_device *device, const char *key, int key_length,
		     struct gv_plan *plans, int max);

/* The version of the libcudnn that plans, or 0 while none does. */
int gv_planner_version(void);

#endif
