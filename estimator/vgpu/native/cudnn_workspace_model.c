/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cuDNN's kernels need workspace for, as far as it decides their size:
 *
 *   - Tensor cores work on channels-last tensors. A convolution on NCHW
 *     tensors that uses them copies x, w and y into that order: the workspace
 *     is the sum of the three.
 *   - The filter gradient of a 1x1 convolution may be one small product per
 *     image, added up afterwards: one filter per image.
 *   - Without tensor cores, 3x3 convolutions of stride 1 go through the
 *     Winograd transform: 36 values for each 4x4 tile of output, for every
 *     channel of x and y, and for every filter.
 *
 * Which of these is taken is a decision of each release's heuristic. The rules
 * below were fitted, for cuDNN before 9.8, to measured runs of PyTorch 2.6 on
 * RTX 3060 and RTX 4060, and for later releases and the A100 to what cuDNN 9.10
 * and 9.19 plan themselves. docs/accuracy/cudnn.md holds the evidence and its limits.
 */
#include "cudnn_workspace_model.h"

#include "cudnn_workspace_key.h"

/* A convolution with so few input channels is the first of a network; cuDNN has kernels of its own for it. */
#define FEW_CHANNELS 4
/* Compute capability 8.9. */
#define ADA_MINOR 9
/* One filter per image: of images up to so many pixels, and of filters from the first size on; together they are never more than the third. */
#define PER_IMAGE_MAX_PIXELS 16
#define PER_IMAGE_MIN_FILTER_BYTES ((int64_t)700 << 10)
#define PER_IMAGE_MAX_BYTES ((int64_t)1 << 30)
/* Filters larger than the first are taken so only while all images together have at most so many pixels. */
#define PER_IMAGE_LARGE_FILTER_BYTES ((int64_t)1300 << 10)
#define PER_IMAGE_LARGE_MAX_PIXELS 4096
/* Ada: the first layer's filter gradient of up to so many filters goes through copies. */
#define FIRST_LAYER_NARROW 16
/* Larger images than this take the Winograd transform for the filter gradient even where there are tensor cores. */
#define WINOGRAD_MIN_PIXELS (64 * 64)
/* The largest such workspace that a measured run speaks for. */
#define WINOGRAD_MAX_BYTES ((int64_t)4 << 30)
/* In the tensor-core kernel for depthwise convolutions a channel is widened to a group of eight. */
#define DEPTHWISE_WIDENING 8
/* Up to this image size newer releases copy even for 1x1 convolutions. */
#define SMALL_IMAGE_PIXELS (16 * 16)

/* Hopper: the first layer with a filter of up to so many pixels is computed in place, and so are narrow 1x1 convolutions. */
#define FIRST_LAYER_PLAIN_PIXELS 16
#define NARROW_CHANNELS 96
#define WIDE_CHANNELS 512

/* Behind the copies. */
#define COPIES_HEADER_BYTES 16
/* The parts of a filter gradient before Hopper: together about so much, and at most so many. */
#define PARTIAL_SUMS_BYTES ((int64_t)6 << 20)
#define PARTIAL_SUMS_MAX 34
/* What a thread loads at once: copies have their channels rounded up to it. */
#define VECTOR_BYTES 16

#define WINOGRAD_TILE 4
#define WINOGRAD_VALUES 36

struct view {
	const struct gv_conv *conv;
	int64_t groups;
	int64_t pixels;        /* of one output image */
	int64_t filter_pixels; /* 1 for a 1x1 filter */
	int strided, channels_last, depthwise, half;
	int64_t x_bytes, w_bytes;
};

static int64_t element_bytes(int dtype)
{
	switch (dtype) {
	case GV_DTYPE_DOUBLE:
		return 8;
	case GV_DTYPE_HALF:
	case GV_DTYPE_BFLOAT16:
		return 2;
	case GV_DTYPE_INT8:
		return 1;
	default:
		return 4;
	}
}

/* Products of hostile sizes stop here, far above any GPU's memory and far below an overflow. */
static int64_t times(int64_t a, int64_t b)
{
	const int64_t limit = (int64_t)1 << 50;
	if (a == 0 || b == 0)
		return 0;
	return a > limit / b ? limit : a * b;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t tensor_bytes(const struct gv_conv_tensor *t)
{
	int64_t bytes = element_bytes(t->dtype);
	for (int i = 0; i < t->dims; i++)
		bytes = times(bytes, t->dim[i]);
	return bytes;
}

static struct view look_at(const struct gv_conv *conv)
{
	struct view v = {.conv = conv, .pixels = 1, .filter_pixels = 1};
	v.groups = conv->x.dim[1] / conv->w.dim[1];
	if (v.groups < 1)
		v.groups = 1;
	for (int i = 0; i < conv->spatial; i++) {
		v.pixels = times(v.pixels, conv->y.dim[i + 2]);
		v.filter_pixels = times(v.filter_pixels, conv->w.dim[i + 2]);
		v.strided |= conv->filter_stride[i] != 1;
	}
	v.channels_last = conv->x.dim[1] > 1 && conv->x.stride[1] == 1;
	v.depthwise = v.groups > 1 && v.groups == conv->x.dim[1];
	v.half = conv->x.dtype == GV_DTYPE_HALF || conv->x.dtype == GV_DTYPE_BFLOAT16;
	v.x_bytes = tensor_bytes(&conv->x);
	v.w_bytes = tensor_bytes(&conv->w);
	return v;
}

static int has_tensor_cores(const struct gv_cudnn_device *device, const struct gv_conv *conv)
{
	switch (conv->x.dtype) {
	case GV_DTYPE_HALF:
		return device->cc_major >= 7;
	case GV_DTYPE_BFLOAT16:
	case GV_DTYPE_FLOAT: /* TF32 */
		return device->cc_major >= 8;
	default:
		return 0;
	}
}

/*
 * GA10x and AD10x have half the tensor cores of GA100 in each multiprocessor: there the kernels that need no copies are
 * as fast in fp32, and releases before 9.8 choose them.
 */
static int narrow_tensor_cores(const struct gv_cudnn_device *device)
{
	return device->cc_major == 8 && device->cc_minor != 0;
}

static int64_t round_up(int64_t value, int64_t step)
{
	return (value + step - 1) / step * step;
}

/* A copy in channels-last order has its channels rounded up to whole vectors. */
static int64_t copy_bytes(const struct gv_conv_tensor *t, int rounded_axes)
{
	int64_t element = element_bytes(t->dtype), bytes = element;
	for (int i = 0; i < t->dims; i++)
		bytes = times(bytes, i >= 2 - rounded_axes && i < 2 ? round_up(t->dim[i], VECTOR_BYTES / element) : t->dim[i]);
	return bytes;
}

static int64_t copy_of_x(const struct view *v)
{
	return copy_bytes(&v->conv->x, 1);
}

static int64_t copy_of_w(const struct view *v)
{
	return v->filter_pixels > 1 ? copy_bytes(&v->conv->w, 2) : 0; /* a 1x1 filter is the same in both orders */
}

/*
 * Before Hopper a filter gradient with a small filter is added up in parts, so that all multiprocessors have work. How many
 * is the kernel's affair (2 to 34 were seen); that such a convolution takes a little more than its copies is what matters,
 * because a block cached for the copies is then too small.
 */
static int64_t partial_sums(const struct view *v)
{
	int64_t filter = copy_of_w(v), parts = filter > 0 ? PARTIAL_SUMS_BYTES / filter : 0;
	return filter * (parts < PARTIAL_SUMS_MAX ? parts : PARTIAL_SUMS_MAX);
}

static int64_t copies(const struct view *v)
{
	return COPIES_HEADER_BYTES + copy_of_x(v) + copy_of_w(v) + copy_bytes(&v->conv->y, 1);
}

static int is_pointwise(const struct view *v)
{
	return v->filter_pixels == 1 && v->groups == 1;
}

static int64_t per_image_sums(const struct view *v)
{
	return times(v->conv->x.dim[0], v->w_bytes);
}

static int winograd_fits(const struct view *v)
{
	const struct gv_conv *c = v->conv;
	return c->spatial == 2 && c->w.dim[2] == 3 && c->w.dim[3] == 3 && !v->strided && v->groups == 1 &&
	       c->dilation[0] == 1 && c->dilation[1] == 1 && c->x.dim[1] > FEW_CHANNELS && !v->channels_last &&
	       c->x.dtype == GV_DTYPE_FLOAT;
}

static int64_t winograd(const struct view *v)
{
	const struct gv_conv *c = v->conv;
	int64_t tiles = 1, channels = c->x.dim[1] + c->y.dim[1];
	for (int i = 2; i < 4; i++)
		tiles = times(tiles, (c->y.dim[i] + WINOGRAD_TILE - 1) / WINOGRAD_TILE);
	tiles = times(times(tiles, c->x.dim[0]), channels);
	return times(WINOGRAD_VALUES * element_bytes(c->x.dtype), tiles + times(c->x.dim[1], c->y.dim[1]));
}

static int one_filter_per_image(const struct view *v)
{
	if (v->pixels == 1 || v->pixels > PER_IMAGE_MAX_PIXELS || v->w_bytes < PER_IMAGE_MIN_FILTER_BYTES ||
	    per_image_sums(v) > PER_IMAGE_MAX_BYTES)
		return 0;
	return v->w_bytes < PER_IMAGE_LARGE_FILTER_BYTES || times(v->conv->x.dim[0], v->pixels) <= PER_IMAGE_LARGE_MAX_PIXELS;
}

/* cuDNN 8.9 to 9.7, fp32 with TF32, on cards with narrow tensor cores. */
static int64_t older_release(const struct gv_cudnn_device *device, const struct view *v)
{
	const struct gv_conv *c = v->conv;

	if (v->depthwise)
		return v->channels_last && c->op == GV_CONV_FORWARD ? times(DEPTHWISE_WIDENING, v->x_bytes) : 0;
	if (c->op != GV_CONV_WGRAD)
		return 0;
	if (c->x.dim[1] <= FEW_CHANNELS)
		return device->cc_minor >= ADA_MINOR && c->y.dim[1] <= FIRST_LAYER_NARROW ? COPIES_HEADER_BYTES + copy_of_x(v) + copy_bytes(&c->y, 1) : 0;
	if (v->strided)
		return 0;
	if (is_pointwise(v)) /* Ada's runs show none of it. */
		return device->cc_minor < ADA_MINOR && one_filter_per_image(v) ? per_image_sums(v) : 0;
	return winograd_fits(v) && v->pixels >= WINOGRAD_MIN_PIXELS && winograd(v) <= WINOGRAD_MAX_BYTES ? winograd(v) : 0;
}

/* cuDNN 9.8 and later, fp32 with TF32; every release with fp16 and bf16, and on GA100. */
static int64_t newer_release(const struct gv_cudnn_device *device, const struct view *v)
{
	const struct gv_conv *c = v->conv;
	int hopper = device->cc_major >= 9;

	if (v->depthwise || (v->channels_last && v->half))
		return 0;
	if (c->x.dim[1] <= FEW_CHANNELS)
		return hopper && v->filter_pixels > FIRST_LAYER_PLAIN_PIXELS ? copies(v) : 0;
	if (!is_pointwise(v)) {
		if (v->groups > 1 && !v->half && !hopper)
			return c->op == GV_CONV_WGRAD ? copies(v) : 0;
		/* Before Hopper the fp32 forward kernels write a result of whole vectors in the right order themselves. */
		return c->op == GV_CONV_FORWARD && !v->half && !hopper && c->y.dim[1] % (VECTOR_BYTES / element_bytes(c->y.dtype)) == 0 ? COPIES_HEADER_BYTES + copy_of_x(v) + copy_of_w(v) : copies(v) + (c->op == GV_CONV_WGRAD && !hopper ? partial_sums(v) : 0);
	}
	if (v->pixels == 1)
		return 0;
	if (c->op == GV_CONV_WGRAD)
		return hopper || v->pixels <= SMALL_IMAGE_PIXELS ? copies(v) :
		       v->half                                   ? 0 :
								   per_image_sums(v);
	if (!hopper || (!v->half && c->op == GV_CONV_FORWARD && larger(c->x.dim[1], c->y.dim[1]) <= NARROW_CHANNELS))
		return 0;
	/* From few channels the fp32 kernels of Hopper read x as a copy and write y as it is wanted. */
	return !v->half && c->op == GV_CONV_FORWARD && c->x.dim[1] < WIDE_CHANNELS ? copy_of_x(v) : copies(v);
}

static void add_plan(struct gv_plan *plans, int *count, int max, int64_t bytes, uint32_t notes)
{
	if (*count < max && (*count == 0 || plans[*count - 1].workspace_bytes != bytes)) {
		plans[*count].workspace_bytes = bytes;
		plans[*count].notes = notes;
		plans[*count].source = GV_WORKSPACE_MODELLED;
		(*count)++;
	}
}

int gv_model_plans(const struct gv_cudnn_device *device, const struct gv_conv *conv, struct gv_plan *plans, int max,
		   int64_t *high_bytes)
{
	struct view v = look_at(conv);
	int tensor_cores = has_tensor_cores(device, conv);
	int older = device->cudnn_version < GV_CUDNN_FIRST_DEVICELESS;
	int count = 0;
	int64_t first;

	if (tensor_cores) {
		first = older && !v.half && narrow_tensor_cores(device) ? older_release(device, &v) : newer_release(device, &v);
		add_plan(plans, &count, max, first, GV_NOTE_TENSOR_CORE);
	}
	if (winograd_fits(&v) && winograd(&v) <= WINOGRAD_MAX_BYTES)
		add_plan(plans, &count, max, winograd(&v), GV_NOTE_WINOGRAD);
	if (!tensor_cores && count == 0 && is_pointwise(&v) && conv->op == GV_CONV_WGRAD && v.pixels > 1 &&
	    v.pixels <= SMALL_IMAGE_PIXELS)
		add_plan(plans, &count, max, per_image_sums(&v), 0);
	add_plan(plans, &count, max, 0, 0);

	first = plans[0].workspace_bytes;
	*high_bytes = first + copies(&v);
	if (is_pointwise(&v) && conv->op == GV_CONV_WGRAD && per_image_sums(&v) <= PER_IMAGE_MAX_BYTES)
		*high_bytes = larger(*high_bytes, per_image_sums(&v));
	if (conv->x.dtype != GV_DTYPE_FLOAT && !v.half)
		for (int i = 0; i < count; i++)
			plans[i].source = GV_WORKSPACE_BOUNDED;
	return count;
}
