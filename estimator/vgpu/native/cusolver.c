/* libcusolver: the handle; everything else is in answers.txt. */
#include "gv.h"

GV_EXPORT int cusolverDnCreate(void **handle)
{
	*handle = gv_new(0);
	gv_use(GV_LIB_CUSOLVER);
	return 0;
}

GV_EXPORT int cusolverGetVersion(int *version)
{
	*version = GV_SONAME_MAJOR * 1000;
	return 0;
}
