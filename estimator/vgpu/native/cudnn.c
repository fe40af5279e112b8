/* libcudnn: the handle, the legacy descriptors, the legacy convolution, normalisation, dropout and CTC queries. */
#include "cudnn.h"

#include <stdlib.h>
#include <string.h>

struct handle { void *stream; };

int gv_dnn_version(void)
{
	enum { LAST_WHEEL_OF_8 = 8902 }; /* what PyTorch's wheels pinned before they went on to 9 */
	int version = gv_cudnn_version();

	return GV_SONAME_MAJOR == 8 && version >= 90000 ? LAST_WHEEL_OF_8 : version;
}

size_t gv_dnn_type_bytes(int type)
{
	switch (type) {
	case GV_DNN_DOUBLE:
	case GV_DNN_INT64:
		return 8;
	case GV_DNN_HALF:
	case GV_DNN_BFLOAT16:
		return 2;
	case GV_DNN_INT8:
	case GV_DNN_FP8_E4M3:
	case GV_DNN_FP8_E5M2:
		return 1;
	default:
		return 4;
	}
}

GV_EXPORT int cudnnCreate(struct handle **out)
{
	*out = gv_new(sizeof **out);
	gv_use(GV_LIB_CUDNN);
	return DNN_OK;
}

GV_EXPORT int cudnnDestroy(struct handle *handle)
{
	free(handle);
	return DNN_OK;
}

GV_EXPORT int cudnnSetStream(struct handle *handle, void *stream)
{
	handle->stream = stream;
	return DNN_OK;
}

GV_EXPORT int cudnnGetStream(struct handle *handle, void **stream)
{
	*stream = handle->stream;
	return DNN_OK;
}

GV_EXPORT size_t cudnnGetVersion(void)
{
	return (size_t)gv_dnn_version();
}

GV_EXPORT size_t cudnnGetCudartVersion(void)
{
	return (size_t)gv_cuda_version();
}

GV_EXPORT int cudnnGetProperty(int kind, int *value)
{
	enum {
		MAJOR = 0,
		MINOR = 1
	};
	int version = gv_dnn_version();
	int major_unit = version >= 90000 ? 10000 : 1000;

	*value = kind == MAJOR ? version / major_unit :
		 kind == MINOR ? version % major_unit / 100 :
				 version % 100;
	return DNN_OK;
}

GV_EXPORT const char *cudnnGetErrorString(int status)
{
	return status == DNN_OK            ? "CUDNN_STATUS_SUCCESS" :
	       status == DNN_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" :
					     "CUDNN_STATUS_BAD_PARAM";
}

GV_EXPORT void cudnnGetLastErrorString(char *text, size_t bytes)
{
	if (bytes)
		*text = '\0';
}

/* ---- descriptors */

#define DESCRIPTOR(name)                                                         \
	GV_EXPORT int cudnnCreate##name##Descriptor(struct dnn_descriptor **out) \
	{                                                                        \
		*out = gv_new(sizeof **out);                                     \
		return DNN_OK;                                                   \
	}                                                                        \
	GV_EXPORT int cudnnDestroy##name##Descriptor(struct dnn_descriptor *d)   \
	{                                                                        \
		free(d);                                                         \
		return DNN_OK;                                                   \
	}

DESCRIPTOR(Activation)
DESCRIPTOR(Convolution)
DESCRIPTOR(CTCLoss)
DESCRIPTOR(Dropout)
DESCRIPTOR(Filter)
DESCRIPTOR(Pooling)
DESCRIPTOR(RNN)
DESCRIPTOR(RNNData)
DESCRIPTOR(SpatialTransformer)
DESCRIPTOR(Tensor)

GV_EXPORT int cudnnSetTensorNdDescriptor(struct dnn_descriptor *d, int type, int dimensions, const int *size, const int *stride)
{
	if (dimensions < 0 || dimensions > DNN_MAX_DIMENSIONS)
		return DNN_NOT_SUPPORTED;
	d->type = type;
	d->dimensions = dimensions;
	memcpy(d->size, size, (size_t)dimensions * sizeof *size);
	memcpy(d->stride, stride, (size_t)dimensions * sizeof *stride);
	return DNN_OK;
}

GV_EXPORT int cudnnGetTensorNdDescriptor(const struct dnn_descriptor *d, int room, int *type, int *dimensions, int *size, int *stride)
{
	int n = d->dimensions < room ? d->dimensions : room;

	*type = d->type;
	*dimensions = d->dimensions;
	for (int i = 0; i < n; i++) {
		size[i] = d->size[i];
		stride[i] = d->stride[i];
	}
	return DNN_OK;
}

GV_EXPORT int cudnnSetFilterNdDescriptor(struct dnn_descriptor *d, int type, int format, int dimensions, const int *size)
{
	if (dimensions < 0 || dimensions > DNN_MAX_DIMENSIONS)
		return DNN_NOT_SUPPORTED;
	d->type = type;
	d->format = format;
	d->dimensions = dimensions;
	memcpy(d->size, size, (size_t)dimensions * sizeof *size);
	return DNN_OK;
}

GV_EXPORT int cudnnGetFilterNdDescriptor(const struct dnn_descriptor *d, int room, int *type, int *format, int *dimensions, int *size)
{
	int n = d->dimensions < room ? d->dimensions : room;

	*type = d->type;
	*format = d->format;
	*dimensions = d->dimensions;
	for (int i = 0; i < n; i++)
		size[i] = d->size[i];
	return DNN_OK;
}

GV_EXPORT int cudnnSetConvolutionNdDescriptor(struct dnn_descriptor *d, int spatial, const int *pad, const int *stride, const int *dilation, int mode, int compute_type)
{
	if (spatial < 1 || spatial > GV_CONV_MAX_SPATIAL)
		return DNN_NOT_SUPPORTED;
	d->spatial = spatial;
	d->type = compute_type;
	memcpy(d->pad, pad, (size_t)spatial * sizeof *pad);
	memcpy(d->step, stride, (size_t)spatial * sizeof *stride);
	memcpy(d->dilation, dilation, (size_t)spatial * sizeof *dilation);
	return DNN_OK;
}

GV_EXPORT int cudnnSetConvolutionGroupCount(struct dnn_descriptor *d, int groups)
{
	d->groups = groups;
	return DNN_OK;
}

/* ---- legacy convolution: one algorithm, the modelled workspace */

struct algorithm_result {
	int algorithm, status;
	float milliseconds;
	size_t workspace_bytes;
	int deterministic, math_mode, reserved[3];
};

static void copy_legacy_tensor(const struct dnn_descriptor *from, struct gv_conv_tensor *to)
{
	int64_t packed = 1;

	to->dtype = from->type;
	to->dims = from->dimensions;
	for (int i = from->dimensions - 1; i >= 0; i--) {
		to->dim[i] = from->size[i];
		/* A filter's descriptor holds a format and no strides. */
		to->stride[i] = from->stride[i] > 0 ? from->stride[i] : packed;
		packed *= from->size[i];
	}
}

static bool decode_legacy(enum gv_conv_op op, const struct dnn_descriptor *x, const struct dnn_descriptor *w, const struct dnn_descriptor *y, const struct dnn_descriptor *conv, struct gv_conv *out)
{
	memset(out, 0, sizeof *out);
	if (conv->spatial < 1 || conv->spatial > GV_CONV_MAX_SPATIAL || x->dimensions != conv->spatial + 2 || w->dimensions != x->dimensions || y->dimensions != x->dimensions)
		return false;
	out->op = op;
	out->spatial = conv->spatial;
	out->compute_dtype = conv->type;
	out->mode = 1;
	copy_legacy_tensor(x, &out->x);
	copy_legacy_tensor(w, &out->w);
	copy_legacy_tensor(y, &out->y);
	for (int i = 0; i < conv->spatial; i++) {
		out->pre_pad[i] = out->post_pad[i] = conv->pad[i];
		out->filter_stride[i] = conv->step[i];
		out->dilation[i] = conv->dilation[i];
	}
	return true;
}

static size_t legacy_workspace(enum gv_conv_op op, const struct dnn_descriptor *x, const struct dnn_descriptor *w, const struct dnn_descriptor *y, const struct dnn_descriptor *conv)
{
	struct gv_conv c;
	int64_t bytes = 0;

	if (decode_legacy(op, x, w, y, conv, &c)) {
		gv_cudnn_describe_device();
		bytes = gv_cudnn_workspace(&c);
	}

	gv_bounded(GV_BOUND_CONV, (uint64_t)bytes);
	return (size_t)bytes;
}

static int one_algorithm(int *found, struct algorithm_result *out, size_t workspace_bytes)
{
	memset(out, 0, sizeof *out);
	out->algorithm = 1;
	out->milliseconds = 1.0f;
	out->workspace_bytes = workspace_bytes;
	out->deterministic = 1;
	out->math_mode = 1;
	*found = 1;
	return DNN_OK;
}

GV_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, void *x, void *w, void *conv, void *y, int wanted, int *found, struct algorithm_result *out)
{
	return one_algorithm(found, out, legacy_workspace(GV_CONV_FORWARD, x, w, y, conv));
}

GV_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, void *w, void *dy, void *conv, void *dx, int wanted, int *found, struct algorithm_result *out)
{
	return one_algorithm(found, out, legacy_workspace(GV_CONV_DGRAD, dx, w, dy, conv));
}

GV_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, void *x, void *dy, void *conv, void *dw, int wanted, int *found, struct algorithm_result *out)
{
	return one_algorithm(found, out, legacy_workspace(GV_CONV_WGRAD, x, dw, dy, conv));
}

GV_EXPORT int cudnnFindConvolutionForwardAlgorithmEx(void *handle, void *x, void *xp, void *w, void *wp, void *conv, void *y, void *yp, int wanted, int *found, struct algorithm_result *out)
{
	return one_algorithm(found, out, legacy_workspace(GV_CONV_FORWARD, x, w, y, conv));
}

GV_EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, void *w, void *wp, void *dy, void *dyp, void *conv, void *dx, void *dxp, int wanted, int *found, struct algorithm_result *out)
{
	return one_algorithm(found, out, legacy_workspace(GV_CONV_DGRAD, dx, w, dy, conv));
}

GV_EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, void *x, void *xp, void *dy, void *dyp, void *conv, void *dw, void *dwp, int wanted, int *found, struct algorithm_result *out)
{
	return one_algorithm(found, out, legacy_workspace(GV_CONV_WGRAD, x, dw, dy, conv));
}

GV_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x, void *w, void *conv, void *y, int algorithm, size_t *bytes)
{
	*bytes = legacy_workspace(GV_CONV_FORWARD, x, w, y, conv);
	return DNN_OK;
}

GV_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, void *w, void *dy, void *conv, void *dx, int algorithm, size_t *bytes)
{
	*bytes = legacy_workspace(GV_CONV_DGRAD, dx, w, dy, conv);
	return DNN_OK;
}

GV_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, void *x, void *dy, void *conv, void *dw, int algorithm, size_t *bytes)
{
	*bytes = legacy_workspace(GV_CONV_WGRAD, x, dw, dy, conv);
	return DNN_OK;
}

/* ---- normalisation: without a fused activation there is nothing to keep; the small workspace is bounded by zero */

static int no_norm_bytes(size_t *bytes)
{
	*bytes = 0;
	gv_bounded(GV_BOUND_NORM, 0);
	return DNN_OK;
}

GV_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode, int operations, void *x, void *z, void *y, void *scale, void *activation, size_t *bytes)
{
	return no_norm_bytes(bytes);
}

GV_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int operations, void *x, void *y, void *dy, void *dz, void *dx, void *scale, void *activation, size_t *bytes)
{
	return no_norm_bytes(bytes);
}

GV_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int operations, void *activation, void *x, size_t *bytes)
{
	return no_norm_bytes(bytes);
}

GV_EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes)
{
	enum { STATE_BYTES = 16 }; /* one generator a resident thread */

	*bytes = (size_t)gv_attribute(GV_ATTR_MULTIPROCESSORS, 0) * (size_t)gv_attribute(GV_ATTR_MAX_THREADS_PER_MULTIPROCESSOR, 0) * STATE_BYTES;
	return DNN_OK;
}

/* ---- CTC: the forward and backward variables and a copy of the probabilities, as a bound */

static size_t ctc_bytes(const struct dnn_descriptor *probabilities)
{
	enum { COPIES = 3 };
	size_t elements = 1;

	for (int i = 0; i < probabilities->dimensions; i++)
		elements *= (size_t)probabilities->size[i];
	gv_bounded(GV_BOUND_CTC, elements * COPIES * gv_dnn_type_bytes(probabilities->type));
	return elements * COPIES * gv_dnn_type_bytes(probabilities->type);
}

GV_EXPORT int cudnnGetCTCLossWorkspaceSize(void *handle, const struct dnn_descriptor *probabilities, void *gradients, const int *labels, const int *label_lengths, const int *input_lengths, int algorithm, void *ctc, size_t *bytes)
{
	*bytes = ctc_bytes(probabilities);
	return DNN_OK;
}

GV_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void *handle, int algorithm, void *ctc, const struct dnn_descriptor *probabilities, void *gradients, size_t *bytes)
{
	*bytes = ctc_bytes(probabilities);
	return DNN_OK;
}
