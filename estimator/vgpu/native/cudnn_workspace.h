/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much workspace does a cuDNN convolution take?
 *
 * The cuDNN stub decodes the operation graph that PyTorch built into a struct
 * gv_conv and asks for its plans; it then shows one engine configuration per
 * plan, in the same order, with the workspace and the numerical notes given
 * here. PyTorch filters the notes itself (deterministic, allow_tf32), takes
 * the first plan whose workspace it can allocate, and with benchmark=True
 * tries them all: so the whole list matters, not its head alone.
 *
 * Where the figures come from, best first:
 *   planned   the job's own libcudnn (9.8 and later) planned the convolution
 *             for the described device, in a helper process without a GPU;
 *   modelled  a model calibrated on measured runs of the cuDNN version and
 *             the architecture (docs/accuracy/cudnn.md);
 *   bounded   nothing is known: an upper bound is the answer for the high
 *             figure, and a plain guess for the plan.
 */
#ifndef GRESIZE_CUDNN_WORKSPACE_H
#define GRESIZE_CUDNN_WORKSPACE_H

#include <stdint.h>

#define GV_CONV_MAX_SPATIAL 3
#define GV_CONV_MAX_DIMS (GV_CONV_MAX_SPATIAL + 2)
/* No caller needs to show more engine configurations than this. */
#define GV_CONV_MAX_PLANS 16

enum gv_conv_op {
	GV_CONV_FORWARD = 0,
	GV_CONV_DGRAD = 1,
	GV_CONV_WGRAD = 2
};

/* cudnnDataType_t, by its public numbers. */
enum gv_conv_dtype {
	GV_DTYPE_FLOAT = 0,
	GV_DTYPE_DOUBLE = 1,
	GV_DTYPE_HALF = 2,
	GV_DTYPE_INT8 = 3,
	GV_DTYPE_INT32 = 4,
	GV_DTYPE_BFLOAT16 = 9
};

/* cudnnBackendNumericalNote_t, by its public numbers, as bits of a mask. */
#define GV_NOTE_TENSOR_CORE (1u << 0)
#define GV_NOTE_DOWN_CONVERT_INPUTS (1u << 1)
#define GV_NOTE_REDUCED_PRECISION (1u << 2)
#define GV_NOTE_FFT (1u << 3)
#define GV_NOTE_NONDETERMINISTIC (1u << 4)
#define GV_NOTE_WINOGRAD (1u << 5)

enum gv_workspace_source {
	GV_WORKSPACE_PLANNED = 0,
	GV_WORKSPACE_MODELLED = 1,
	GV_WORKSPACE_BOUNDED = 2
};

/* A tensor as its descriptor says: dim[0]=N dim[1]=C dim[2..]=spatial; for the
 * filter dim[0]=K dim[1]=C/groups. Strides are in elements; they hold the
 * layout (stride[1] == 1 with several channels: channels last). */
struct gv_conv_tensor {
	int32_t dtype;
	int32_t dims; /* spatial + 2 */
	int64_t dim[GV_CONV_MAX_DIMS];
	int64_t stride[GV_CONV_MAX_DIMS];
	int64_t alignment_bytes; /* 0: not told */
};

/* The device that is modelled and the library that the job believes to have. */
struct gv_cudnn_device {
	char name[96];
	int32_t cc_major, cc_minor; /* compute capability */
	int32_t sm_count;
	int32_t cudnn_version;  /* as cudnnGetVersion: 8902, 90100, 91900 */
	int32_t driver_version; /* as cuDriverGetVersion: 12040 */
	int64_t total_bytes;
	/* Any CUDA device attribute by its public number; must be callable from
     * every thread and answer 0 for an unknown one. */
	int64_t (*attribute)(int cuda_attribute);
	/* The device description that cuDNN wrote on a real card (one line of
     * JSON), or NULL: it is then composed from the attributes. */
	const char *description;
};

/* One convolution. Fill with zeroes first. Unused spatial slots stay 0. */
struct gv_conv {
	int32_t op;            /* enum gv_conv_op */
	int32_t spatial;       /* 1, 2 or 3 */
	int32_t compute_dtype; /* of the convolution descriptor */
	int32_t mode;          /* cudnnConvolutionMode_t: 0 convolution, 1 cross correlation */
	struct gv_conv_tensor x, w, y; /* for dgrad x is dx, for wgrad w is dw, y is dy */
	int64_t pre_pad[GV_CONV_MAX_SPATIAL];
	int64_t post_pad[GV_CONV_MAX_SPATIAL];
	int64_t filter_stride[GV_CONV_MAX_SPATIAL];
	int64_t dilation[GV_CONV_MAX_SPATIAL];
	int64_t groups; /* 0: derive it as x.dim[1] / w.dim[1] */
};

struct gv_plan {
	int64_t workspace_bytes;
	uint32_t notes; /* GV_NOTE_* */
	int32_t source; /* enum gv_workspace_source */
};

/* What the process report says at the end. */
struct gv_workspace_report {
	int64_t planned, modelled, bounded; /* convolutions, each shape counted once */
	int64_t max_workspace_bytes;        /* largest first plan */
	int64_t max_high_bytes;             /* largest upper end of a first plan */
	int64_t sum_workspace_bytes;        /* sums over distinct convolutions */
	int64_t sum_high_bytes;
};

/* Says which device and library are modelled; the struct is copied. Call it
 * once, before the first question; a second call is ignored. */
void gv_cudnn_workspace_setup(const struct gv_cudnn_device *device);

/* Writes the plans of a convolution in the order in which cuDNN's heuristic
 * would propose them and returns their number: at least 1 for any input, at
 * most max (max >= 1). Thread-safe, answered from a table after the first
 * time. A last plan with workspace 0 is always there when max > 1, so that
 * PyTorch can fall back as it does on a real card near its limit. */
int gv_cudnn_plans(const struct gv_conv *conv, struct gv_plan *plans, int max);

/* Workspace of the first plan, and the upper end of its interval. */
int64_t gv_cudnn_workspace(const struct gv_conv *conv);
int64_t gv_cudnn_workspace_high(const struct gv_conv *conv);

void gv_cudnn_workspace_report(struct gv_workspace_report *report);

#endif
