/* libcusparse: the handle; everything else is in answers.txt. */
#include "gv.h"

GV_EXPORT int cusparseCreate(void **handle)
{
	*handle = gv_new(0);
	gv_use(GV_LIB_CUSPARSE);
	return 0;
}

GV_EXPORT int cusparseGetVersion(void *handle, int *version)
{
	*version = gv_cuda_version() * 10;
	return 0;
}

GV_EXPORT int cusparseGetProperty(int kind, int *value)
{
	enum {
		MAJOR = 0,
		MINOR = 1
	};
	int version = gv_cuda_version();

	*value = kind == MAJOR ? version / 1000 :
		 kind == MINOR ? version % 1000 / 10 :
				 0;
	return 0;
}

GV_EXPORT const char *cusparseGetErrorString(int status)
{
	return status ? "CUSPARSE_STATUS_INTERNAL_ERROR" : "CUSPARSE_STATUS_SUCCESS";
}
