/* libcupti: a profiler that sees no device activity. */
#include "gv.h"

GV_EXPORT int cuptiGetVersion(unsigned *version)
{
	*version = gv_cuda_major() >= 13 ? (unsigned)gv_cuda_version() * 10 : 22;
	return 0;
}

GV_EXPORT int cuptiGetResultString(int result, const char **text)
{
	*text = result ? "CUPTI_ERROR_UNKNOWN" : "CUPTI_SUCCESS";
	return 0;
}

GV_EXPORT int cuptiActivityGetNextRecord(void *buffer, size_t bytes, void **record)
{
	enum { NO_MORE_RECORDS = 12 };

	*record = NULL;
	return NO_MORE_RECORDS;
}
