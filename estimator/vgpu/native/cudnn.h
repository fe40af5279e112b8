/* Shared between the files of the libcudnn stub. Numbers are those of cuDNN's published interface. */
#ifndef GRESIZE_CUDNN_H
#define GRESIZE_CUDNN_H

#include "gv.h"

enum { DNN_OK = 0, DNN_BAD_PARAM = 2000, DNN_NOT_SUPPORTED = 3000 };

enum gv_dnn_type {
	GV_DNN_FLOAT = 0, GV_DNN_DOUBLE = 1, GV_DNN_HALF = 2, GV_DNN_INT8 = 3, GV_DNN_INT32 = 4, GV_DNN_BFLOAT16 = 9, GV_DNN_INT64 = 10,
	GV_DNN_FP8_E4M3 = 12, GV_DNN_FP8_E5M2 = 13
};

/* gv_dnn_type_bytes is the size of one element. */
size_t gv_dnn_type_bytes(int type);

enum gv_conv_operation { GV_CONV_FORWARD, GV_CONV_BACKWARD_DATA, GV_CONV_BACKWARD_FILTER };

enum { GV_CONV_MAX_SPATIAL = 3 };

/*
 * One convolution, whichever interface asked for it. x is the input side (dx of a backward-data), y the output side (dy),
 * w the filter (dw). Only the first `spatial` entries of the arrays count.
 */
struct gv_conv {
	enum gv_conv_operation operation;
	int x_type, w_type, y_type, compute_type; /* enum gv_dnn_type */
	int spatial;                              /* 1, 2 or 3 */
	int64_t n, c, k;                          /* batch, input channels, output channels, over all groups */
	int64_t groups;
	int64_t in[GV_CONV_MAX_SPATIAL], filter[GV_CONV_MAX_SPATIAL], out[GV_CONV_MAX_SPATIAL];
	int64_t pad_before[GV_CONV_MAX_SPATIAL], pad_after[GV_CONV_MAX_SPATIAL];
	int64_t stride[GV_CONV_MAX_SPATIAL], dilation[GV_CONV_MAX_SPATIAL];
	bool channels_last; /* by the strides of x */
	bool fused;         /* other operations are in the same graph (bias, activation) */
	int compute_capability; /* 86 is sm_86 */
	int multiprocessors;
	int cudnn_version; /* 90100 */
};

/*
 * gv_cudnn_workspace is the workspace in bytes that cuDNN's first choice for c would ask for: the one place where the size is modelled.
 * A plan without workspace is always offered behind it, as cuDNN does.
 */
int64_t gv_cudnn_workspace(const struct gv_conv *c);

/* gv_conv_device fills in the fields that do not come from a descriptor. */
void gv_conv_device(struct gv_conv *c);

/* One structure stands for every descriptor of the legacy interface. */
enum { DNN_MAX_DIMENSIONS = 8 };

struct dnn_descriptor {
	int type, format, dimensions;
	int size[DNN_MAX_DIMENSIONS], stride[DNN_MAX_DIMENSIONS];
	/* convolution */
	int spatial, pad[GV_CONV_MAX_SPATIAL], step[GV_CONV_MAX_SPATIAL], dilation[GV_CONV_MAX_SPATIAL], groups;
	/* recurrent network */
	int cell, bias_mode, bidirectional, input, hidden, projection, layers;
};

#endif
