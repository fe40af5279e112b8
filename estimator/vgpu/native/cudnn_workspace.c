/* How much workspace cuDNN's first choice for a convolution takes. */
#include "cudnn.h"

int64_t gv_cudnn_workspace(const struct gv_conv *c)
{
	(void)c;
	return 0;
}
