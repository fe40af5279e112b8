/* Shared between the files of the libcudnn stub. Numbers are those of cuDNN's published interface. */
#ifndef GRESIZE_CUDNN_H
#define GRESIZE_CUDNN_H

#include "gv.h"
#include "cudnn_workspace.h"

#if GV_SONAME_MAJOR >= 9
enum {
	DNN_OK = 0,
	DNN_BAD_PARAM = 2000,
	DNN_NOT_SUPPORTED = 3000
};
#else
enum {
	DNN_OK = 0,
	DNN_BAD_PARAM = 3,
	DNN_NOT_SUPPORTED = 9
};
#endif

enum gv_dnn_type {
	GV_DNN_FLOAT = 0,
	GV_DNN_DOUBLE = 1,
	GV_DNN_HALF = 2,
	GV_DNN_INT8 = 3,
	GV_DNN_INT32 = 4,
	GV_DNN_BFLOAT16 = 9,
	GV_DNN_INT64 = 10,
	GV_DNN_FP8_E4M3 = 12,
	GV_DNN_FP8_E5M2 = 13
};

/* gv_dnn_version is the library's version, in the form of its major version. */
int gv_dnn_version(void);

/* gv_dnn_type_bytes is the size of one element. */
size_t gv_dnn_type_bytes(int type);

/* gv_cudnn_describe_device tells the sizes of workspaces which device and library are modelled; call it before asking. */
void gv_cudnn_describe_device(void);

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
