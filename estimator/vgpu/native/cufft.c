/* libcufft: plans. The work area is bounded by one copy of the transformed data. */
#include "gv.h"

GV_EXPORT int cufftCreate(int *plan)
{
	static int last;

	*plan = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	gv_use(GV_LIB_CUFFT);
	return 0;
}

static size_t complex_bytes(int type)
{
	enum { REAL_DOUBLE = 1, REAL_HALF = 2, COMPLEX_DOUBLE = 5, COMPLEX_HALF = 6 };

	return type == REAL_DOUBLE || type == COMPLEX_DOUBLE ? 16 : type == REAL_HALF || type == COMPLEX_HALF ? 4 : 8;
}

GV_EXPORT int cufftXtMakePlanMany(int plan, int rank, const int64_t *n, const int64_t *in_embed, int64_t in_stride, int64_t in_distance, int in_type,
	const int64_t *out_embed, int64_t out_stride, int64_t out_distance, int out_type, int64_t batch, size_t *work_bytes, int execution_type)
{
	size_t elements = (size_t)batch;

	for (int i = 0; i < rank; i++)
		elements *= (size_t)n[i];
	*work_bytes = elements * complex_bytes(out_type);
	gv_bounded(GV_BOUND_FFT, *work_bytes);
	return 0;
}
