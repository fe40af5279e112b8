/* libcusparse: the handle; everything else is in answers.txt. */
#include "gv.h"

GV_EXPORT int cusparseCreate(void **handle)
{
	*handle = gv_new(0);
	gv_use(GV_LIB_CUSPARSE);
	return 0;
}

GV_EXPORT const char *cusparseGetErrorString(int status)
{
	return status ? "CUSPARSE_STATUS_INTERNAL_ERROR" : "CUSPARSE_STATUS_SUCCESS";
}
