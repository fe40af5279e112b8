/*
 * libcufft: plans. The work area is not documented beyond this: sizes whose prime factors are small need room for about
 * the transformed data, others go through Bluestein's algorithm, a convolution of at least 2n - 1 points. It is a bound.
 */
#include "gv.h"

enum { LARGEST_DIRECT_FACTOR = 127, MAX_RANK = 3 };

GV_EXPORT int cufftCreate(int *plan)
{
	static int last;

	*plan = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	gv_use(GV_LIB_CUFFT);
	return 0;
}

GV_EXPORT int cufftGetVersion(int *version)
{
	*version = GV_SONAME_MAJOR * 1000;
	return 0;
}

static size_t complex_bytes(int type)
{
	enum { REAL_DOUBLE = 1, REAL_HALF = 2, COMPLEX_DOUBLE = 5, COMPLEX_HALF = 6 };

	return type == REAL_DOUBLE || type == COMPLEX_DOUBLE ? 16 : type == REAL_HALF || type == COMPLEX_HALF ? 4 : 8;
}

/* What one axis of n points takes while it is transformed, in points. */
static size_t points(int64_t n)
{
	size_t length = n > 0 ? (size_t)n : 0, left = length, convolution = 1;

	for (size_t f = 2; f <= LARGEST_DIRECT_FACTOR && left > 1; f++) {
		while (left % f == 0)
			left /= f;
	}
	if (left <= 1)
		return length;
	while (convolution < 2 * length - 1 && convolution < SIZE_MAX / 2)
		convolution *= 2;
	return convolution;
}

GV_EXPORT int cufftXtMakePlanMany(int plan, int rank, const int64_t *n, const int64_t *in_embed, int64_t in_stride, int64_t in_distance, int in_type,
	const int64_t *out_embed, int64_t out_stride, int64_t out_distance, int out_type, int64_t batch, size_t *work_bytes, int execution_type)
{
	size_t elements = (size_t)batch;

	for (int i = 0; i < rank && i < MAX_RANK; i++)
		elements *= points(n[i]);
	*work_bytes = elements * complex_bytes(out_type);
	gv_bounded(GV_BOUND_FFT, *work_bytes);
	return 0;
}
