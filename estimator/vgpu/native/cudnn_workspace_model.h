/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces of convolutions where no libcudnn can be asked: a model per
 * cuDNN version and architecture. The evidence is in docs/accuracy/cudnn.md. */
#ifndef GRESIZE_CUDNN_MODEL_H
#define GRESIZE_CUDNN_MODEL_H

#include "cudnn_workspace.h"

/* Writes the modelled plans and the upper end of the first one's interval;
 * returns the number of plans, at least 1. The convolution is well formed. */
int gv_model_plans(const struct gv_cudnn_device *device, const struct gv_conv *conv, struct gv_plan *plans, int max,
		   int64_t *high_bytes);

#endif
