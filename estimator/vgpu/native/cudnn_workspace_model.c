/* SPDX-License-Identifier: Apache-2.0 */
#include "cudnn_workspace_model.h"

int gv_model_plans(const struct gv_cudnn_device *device, const struct gv_conv *conv, struct gv_plan *plans, int max,
                   int64_t *high_bytes)
{
    (void)device;
    (void)conv;
    (void)max;
    plans[0].workspace_bytes = 0;
    plans[0].notes = 0;
    plans[0].source = GV_WORKSPACE_BOUNDED;
    *high_bytes = 0;
    return 1;
}
