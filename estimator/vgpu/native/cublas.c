/* libcublas: handles and their state. The work itself is launches without host results. */
#include "gv.h"

#include <stdlib.h>

struct blas {
	void *stream;
	int math_mode, pointer_mode;
};

GV_EXPORT int cublasCreate_v2(struct blas **handle)
{
	*handle = gv_new(sizeof **handle);
	gv_use(GV_LIB_CUBLAS);
	return 0;
}

GV_EXPORT int cublasDestroy_v2(struct blas *handle)
{
	free(handle);
	return 0;
}

GV_EXPORT int cublasSetStream_v2(struct blas *handle, void *stream)
{
	handle->stream = stream;
	return 0;
}

GV_EXPORT int cublasGetStream_v2(struct blas *handle, void **stream)
{
	*stream = handle->stream;
	return 0;
}

GV_EXPORT int cublasSetMathMode(struct blas *handle, int mode)
{
	handle->math_mode = mode;
	return 0;
}

GV_EXPORT int cublasGetMathMode(struct blas *handle, int *mode)
{
	*mode = handle->math_mode;
	return 0;
}

GV_EXPORT int cublasSetPointerMode_v2(struct blas *handle, int mode)
{
	handle->pointer_mode = mode;
	return 0;
}

GV_EXPORT int cublasGetPointerMode_v2(struct blas *handle, int *mode)
{
	*mode = handle->pointer_mode;
	return 0;
}

GV_EXPORT int cublasGetVersion_v2(struct blas *handle, int *version)
{
	*version = gv_cuda_version() * 10; /* 12.4 is 120400 */
	return 0;
}

GV_EXPORT const char *cublasGetStatusString(int status)
{
	return status ? "CUBLAS_STATUS_INTERNAL_ERROR" : "CUBLAS_STATUS_SUCCESS";
}
