/* libcublasLt: one algorithm that needs no workspace of its own; PyTorch allocates what it offers in any case. */
#include "gv.h"

#include <stdlib.h>
#include <string.h>

enum { DESCRIPTOR_BYTES = 256 };

/* The answer of the heuristic: an opaque algorithm, its workspace, whether it works, and how busy it keeps the device. */
struct heuristic_result {
	uint64_t algorithm[8];
	size_t workspace_bytes;
	int status;
	float waves;
	int reserved[4];
};

static int new_descriptor(void **out)
{
	*out = gv_new(DESCRIPTOR_BYTES);
	return 0;
}

static int drop(void *descriptor)
{
	free(descriptor);
	return 0;
}

static void answer(struct heuristic_result *out)
{
	memset(out, 0, sizeof *out);
	out->waves = 1.0f;
}

GV_EXPORT int cublasLtCreate(void **handle)
{
	gv_use(GV_LIB_CUBLASLT);
	return new_descriptor(handle);
}

GV_EXPORT int cublasLtDestroy(void *handle) { return drop(handle); }
GV_EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale) { return new_descriptor(out); }
GV_EXPORT int cublasLtMatmulDescDestroy(void *descriptor) { return drop(descriptor); }
GV_EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t stride) { return new_descriptor(out); }
GV_EXPORT int cublasLtMatrixLayoutDestroy(void *layout) { return drop(layout); }
GV_EXPORT int cublasLtMatmulPreferenceCreate(void **out) { return new_descriptor(out); }
GV_EXPORT int cublasLtMatmulPreferenceDestroy(void *preference) { return drop(preference); }

GV_EXPORT size_t cublasLtGetVersion(void)
{
	return (size_t)gv_cuda_version() * 10;
}

GV_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int wanted, struct heuristic_result *results, int *found)
{
	gv_use(GV_LIB_CUBLASLT);
	*found = wanted > 0;
	if (wanted > 0)
		answer(results);
	return 0;
}

GV_EXPORT int cublasLtMatmulAlgoCheck(void *handle, void *operation, void *a, void *b, void *c, void *d, const void *algorithm, struct heuristic_result *result)
{
	answer(result);
	return 0;
}

GV_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const void *algorithm, int attribute, void *out, size_t bytes, size_t *written)
{
	if (out)
		memset(out, 0, bytes);
	if (written)
		*written = bytes;
	return 0;
}
