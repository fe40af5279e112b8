/*
 * libcufft: plans. The work area is not documented beyond this: sizes whose prime factors are small need room for about
 * the transformed data, others go through Bluestein's algorithm, a convolution of at least 2n - 1 points. It is a bound.
 */
#include "gv.h"

enum {
	LARGEST_DIRECT_FACTOR = 127,
	MAX_RANK = 3
};

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
	enum {
		REAL_DOUBLE = 1,
		REAL_HALF = 2,
		COMPLEX_DOUBLE = 5,
		COMPLEX_HALF = 6
	};

	return type == REAL_DOUBLE || type == COMPLEX_DOUBLE ? 16 :
	       type == REAL_HALF || type == COMPLEX_HALF     ? 4 :
							       8;
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

/* ---- the plans of XLA, whose types have other numbers */

static int plan(int rank, const int *n, int type, int batch, size_t *work_bytes)
{
	enum {
		FIRST_DOUBLE = 0x69,
		DOUBLE_BYTES = 16,
		SINGLE_BYTES = 8
	};
	size_t elements = (size_t)batch;

	for (int i = 0; i < rank && i < MAX_RANK; i++)
		elements *= points(n[i]);
	*work_bytes = elements * (type >= FIRST_DOUBLE ? DOUBLE_BYTES : SINGLE_BYTES);
	gv_bounded(GV_BOUND_FFT, *work_bytes);
	return 0;
}

GV_EXPORT int cufftMakePlanMany(int handle, int rank, const int *n, const int *in_embed, int in_stride, int in_distance,
				const int *out_embed, int out_stride, int out_distance, int type, int batch, size_t *work_bytes)
{
	return plan(rank, n, type, batch, work_bytes);
}

GV_EXPORT int cufftMakePlanMany64(int handle, int rank, const int64_t *n, const int64_t *in_embed, int64_t in_stride, int64_t in_distance,
				  const int64_t *out_embed, int64_t out_stride, int64_t out_distance, int type, int64_t batch, size_t *work_bytes)
{
	int lengths[MAX_RANK] = {0};

	for (int i = 0; i < rank && i < MAX_RANK; i++)
		lengths[i] = (int)n[i];
	return plan(rank, lengths, type, (int)batch, work_bytes);
}

GV_EXPORT int cufftMakePlan1d(int handle, int n, int type, int batch, size_t *work_bytes)
{
	return plan(1, &n, type, batch, work_bytes);
}

GV_EXPORT int cufftMakePlan2d(int handle, int n, int m, int type, size_t *work_bytes)
{
	return plan(2, (const int[]){n, m}, type, 1, work_bytes);
}

GV_EXPORT int cufftMakePlan3d(int handle, int n, int m, int k, int type, size_t *work_bytes)
{
	return plan(3, (const int[]){n, m, k}, type, 1, work_bytes);
}
