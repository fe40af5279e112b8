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
GV_EXPORT int cublasLtMatrixLayoutDestroy(void *layout) { return drop(layout); }
GV_EXPORT int cublasLtMatmulPreferenceCreate(void **out) { return new_descriptor(out); }
GV_EXPORT int cublasLtMatmulPreferenceDestroy(void *preference) { return drop(preference); }

/* ---- layouts: XLA reads back what it set */

enum {
	LAYOUT_TYPE = 0,
	LAYOUT_ROWS = 2,
	LAYOUT_COLUMNS = 3,
	LAYOUT_STRIDE = 4,
	LAYOUT_BATCH = 5,
	LAYOUT_ATTRIBUTES = 16
};

struct layout { uint64_t value[LAYOUT_ATTRIBUTES]; };

GV_EXPORT int cublasLtMatrixLayoutCreate(struct layout **out, int type, uint64_t rows, uint64_t columns, int64_t stride)
{
	struct layout *layout = gv_new(sizeof *layout);

	layout->value[LAYOUT_TYPE] = (uint64_t)type;
	layout->value[LAYOUT_ROWS] = rows;
	layout->value[LAYOUT_COLUMNS] = columns;
	layout->value[LAYOUT_STRIDE] = (uint64_t)stride;
	layout->value[LAYOUT_BATCH] = 1;
	*out = layout;
	return 0;
}

GV_EXPORT int cublasLtMatrixLayoutSetAttribute(struct layout *layout, unsigned attribute, const void *from, size_t bytes)
{
	if (attribute < LAYOUT_ATTRIBUTES && bytes <= sizeof *layout->value)
		memcpy(&layout->value[attribute], from, bytes);
	return 0;
}

GV_EXPORT int cublasLtMatrixLayoutGetAttribute(const struct layout *layout, unsigned attribute, void *to, size_t bytes, size_t *written)
{
	enum { INVALID_VALUE = 7 };

	if (attribute >= LAYOUT_ATTRIBUTES || bytes > sizeof *layout->value)
		return INVALID_VALUE;
	memcpy(to, &layout->value[attribute], bytes);
	if (written)
		*written = bytes;
	return 0;
}

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
