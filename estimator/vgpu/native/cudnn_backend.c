/*
 * libcudnn: the backend (graph) interface. A descriptor is a bag of attributes: what was set is what is got. The caller
 * may destroy a descriptor once another that names it is finalized, so whatever is wanted later is copied then: the
 * decoded convolution goes from operation to graph to heuristic to engine to plan. For a convolution the heuristic offers
 * one engine per plan of cudnn_workspace.h, in its order; for any other graph one engine that needs no workspace.
 */
#include "cudnn.h"

#include <stdlib.h>
#include <string.h>

enum descriptor_type {
	TYPE_CONVOLUTION = 1,
	TYPE_ENGINE = 2,
	TYPE_ENGINE_CONFIG = 3,
	TYPE_HEURISTIC = 4,
	TYPE_PLAN = 5,
	TYPE_CONV_FORWARD = 10,
	TYPE_CONV_BACKWARD_FILTER = 11,
	TYPE_CONV_BACKWARD_DATA = 12,
	TYPE_GRAPH = 15,
	TYPE_TENSOR = 17
};

enum attribute_name {
	CONV_COMPUTE_TYPE = 100,
	CONV_MODE = 101,
	CONV_DILATIONS = 102,
	CONV_STRIDES = 103,
	CONV_PADS_AFTER = 104,
	CONV_PADS_BEFORE = 105,
	CONV_SPATIAL = 106,
	HEURISTIC_GRAPH = 201,
	HEURISTIC_RESULTS = 202,
	CONFIG_ENGINE = 300,
	CONFIG_WORKSPACE = 303,
	PLAN_CONFIG = 401,
	PLAN_WORKSPACE = 402,
	PLAN_JSON = 405,
	FORWARD_CONV = 702,
	FORWARD_W = 703,
	FORWARD_X = 704,
	FORWARD_Y = 705,
	BACKWARD_DATA_CONV = 708,
	BACKWARD_DATA_W = 709,
	BACKWARD_DATA_DX = 710,
	BACKWARD_DATA_DY = 711,
	BACKWARD_FILTER_CONV = 714,
	BACKWARD_FILTER_DW = 715,
	BACKWARD_FILTER_X = 716,
	BACKWARD_FILTER_DY = 717,
	GRAPH_OPERATIONS = 801,
	TENSOR_ALIGNMENT = 900,
	TENSOR_TYPE = 901,
	TENSOR_SIZES = 902,
	TENSOR_STRIDES = 903,
	ENGINE_GRAPH = 1300,
	ENGINE_INDEX = 1301,
	ENGINE_KNOBS = 1302,
	ENGINE_NUMERICAL_NOTES = 1303,
	ENGINE_BEHAVIOR_NOTES = 1305
};

enum attribute_type {
	AS_HANDLE = 0,
	AS_BOOLEAN = 2,
	AS_INT64 = 3,
	AS_DOUBLE = 5,
	AS_POINTER = 6,
	AS_DESCRIPTOR = 15,
	AS_CHARACTER = 24,
	AS_FRACTION = 26
};

enum {
	MAX_ATTRIBUTES = 64,
	MAX_ELEMENTS = 1 << 16,
	MAX_DIMENSIONS = GV_CONV_MAX_DIMS
};

struct attribute {
	int name, type;
	int64_t count;
	void *values;
};

struct descriptor {
	int type;
	int attribute_count;
	struct attribute attributes[MAX_ATTRIBUTES];
	bool is_conv;
	struct gv_conv conv; /* when is_conv, from the operation to the plan */
	int64_t engine_index;
};

static size_t type_bytes(int type)
{
	switch (type) {
	case AS_HANDLE:
	case AS_INT64:
	case AS_DOUBLE:
	case AS_POINTER:
	case AS_DESCRIPTOR:
		return 8;
	case AS_BOOLEAN:
	case AS_CHARACTER:
		return 1;
	case AS_FRACTION:
		return 16;
	default:
		return 4;
	}
}

static const struct attribute *find(const struct descriptor *d, int name)
{
	for (int i = 0; d && i < d->attribute_count; i++) {
		if (d->attributes[i].name == name)
			return &d->attributes[i];
	}
	return NULL;
}

static struct descriptor *descriptor_in(const struct descriptor *d, int name, int64_t index)
{
	const struct attribute *a = find(d, name);

	return a && a->type == AS_DESCRIPTOR && index < a->count ? ((struct descriptor **)a->values)[index] : NULL;
}

/* integers copies up to room 64-bit values and returns how many there are. */
static int64_t integers(const struct descriptor *d, int name, int64_t *out, int64_t room)
{
	const struct attribute *a = find(d, name);

	if (!a || a->type != AS_INT64)
		return 0;
	memcpy(out, a->values, (size_t)(a->count < room ? a->count : room) * sizeof *out);
	return a->count;
}

static int small_integer(const struct descriptor *d, int name)
{
	const struct attribute *a = find(d, name);
	int value = 0;

	if (a && a->count > 0 && type_bytes(a->type) == sizeof value)
		memcpy(&value, a->values, sizeof value);
	return value;
}

/* ---- decoding a convolution */

static int64_t attribute_of_first_device(int attribute)
{
	return gv_attribute(attribute, 0);
}

void gv_cudnn_describe_device(void)
{
	const struct gv_profile *profile = gv_profile();
	struct gv_cudnn_device device = {
		.cc_major = profile->cc_major,
		.cc_minor = profile->cc_minor,
		.sm_count = gv_attribute(GV_ATTR_MULTIPROCESSORS, 0),
		.cudnn_version = gv_dnn_version(),
		.driver_version = profile->cuda_driver_version,
		.total_bytes = (int64_t)profile->total_bytes,
		.attribute = attribute_of_first_device,
	};

	_Static_assert(sizeof device.name == sizeof profile->name, "the device's name is copied whole");
	memcpy(device.name, profile->name, sizeof device.name);
	gv_cudnn_workspace_setup(&device);
}

static const struct {
	int type;
	enum gv_conv_op op;
	int conv, x, w, y;
} conv_operations[] = {
	{TYPE_CONV_FORWARD, GV_CONV_FORWARD, FORWARD_CONV, FORWARD_X, FORWARD_W, FORWARD_Y},
	{TYPE_CONV_BACKWARD_DATA, GV_CONV_DGRAD, BACKWARD_DATA_CONV, BACKWARD_DATA_DX, BACKWARD_DATA_W, BACKWARD_DATA_DY},
	{TYPE_CONV_BACKWARD_FILTER, GV_CONV_WGRAD, BACKWARD_FILTER_CONV, BACKWARD_FILTER_X, BACKWARD_FILTER_DW, BACKWARD_FILTER_DY},
};

static bool decode_tensor(const struct descriptor *d, int dimensions, struct gv_conv_tensor *t)
{
	int64_t alignment = 0;

	if (integers(d, TENSOR_SIZES, t->dim, dimensions) != dimensions || integers(d, TENSOR_STRIDES, t->stride, dimensions) != dimensions)
		return false;
	integers(d, TENSOR_ALIGNMENT, &alignment, 1);
	t->dims = dimensions;
	t->dtype = small_integer(d, TENSOR_TYPE);
	t->alignment_bytes = alignment;
	return true;
}

static bool decode_operation(const struct descriptor *op, struct gv_conv *c)
{
	int64_t sizes[MAX_DIMENSIONS], dimensions;
	const struct descriptor *conv;
	size_t i, kinds = sizeof conv_operations / sizeof *conv_operations;

	for (i = 0; i < kinds && conv_operations[i].type != op->type; i++)
		;
	if (i == kinds)
		return false;
	memset(c, 0, sizeof *c);
	dimensions = integers(descriptor_in(op, conv_operations[i].x, 0), TENSOR_SIZES, sizes, MAX_DIMENSIONS);
	if (dimensions < 3 || dimensions > MAX_DIMENSIONS || !decode_tensor(descriptor_in(op, conv_operations[i].x, 0), (int)dimensions, &c->x) ||
	    !decode_tensor(descriptor_in(op, conv_operations[i].w, 0), (int)dimensions, &c->w) ||
	    !decode_tensor(descriptor_in(op, conv_operations[i].y, 0), (int)dimensions, &c->y))
		return false;
	conv = descriptor_in(op, conv_operations[i].conv, 0);
	c->op = conv_operations[i].op;
	c->spatial = (int)dimensions - 2;
	c->compute_dtype = small_integer(conv, CONV_COMPUTE_TYPE);
	c->mode = small_integer(conv, CONV_MODE);
	return integers(conv, CONV_DILATIONS, c->dilation, c->spatial) == c->spatial && integers(conv, CONV_STRIDES, c->filter_stride, c->spatial) == c->spatial &&
	       integers(conv, CONV_PADS_BEFORE, c->pre_pad, c->spatial) == c->spatial && integers(conv, CONV_PADS_AFTER, c->post_pad, c->spatial) == c->spatial;
}

/* inherit copies the convolution that a finalized descriptor knows of. */
static void inherit(struct descriptor *d, const struct descriptor *from)
{
	if (!from || !from->is_conv)
		return;
	d->is_conv = true;
	d->conv = from->conv;
	d->engine_index = from->engine_index;
}

static void inherit_from_operations(struct descriptor *graph)
{
	const struct attribute *operations = find(graph, GRAPH_OPERATIONS);

	if (!operations || operations->type != AS_DESCRIPTOR)
		return;
	for (int64_t i = 0; i < operations->count && !graph->is_conv; i++)
		inherit(graph, ((struct descriptor **)operations->values)[i]);
}

/* plan_of is the plan that an engine stands for; a graph that is no convolution has one, without workspace. */
static struct gv_plan plan_of(const struct descriptor *d)
{
	struct gv_plan plans[GV_CONV_MAX_PLANS] = {{0}};
	int count = d->is_conv ? gv_cudnn_plans(&d->conv, plans, GV_CONV_MAX_PLANS) : 1;

	return plans[d->engine_index >= 0 && d->engine_index < count ? d->engine_index : count - 1];
}

static int64_t workspace_bytes(const struct descriptor *d)
{
	return plan_of(d).workspace_bytes;
}

/* report_plan counts the sizes that the job's own cuDNN did not plan, by how much larger than the plan they may be. */
static void report_plan(const struct descriptor *d)
{
	if (!d->is_conv)
		gv_bounded(GV_BOUND_DNN_GRAPH, 0);
	else if (plan_of(d).source != GV_WORKSPACE_PLANNED)
		gv_bounded(GV_BOUND_CONV, (uint64_t)(gv_cudnn_workspace_high(&d->conv) - gv_cudnn_workspace(&d->conv)));
}

/* ---- the interface */

GV_EXPORT int cudnnBackendCreateDescriptor(int type, struct descriptor **out)
{
	*out = gv_new(sizeof **out);
	(*out)->type = type;
	return DNN_OK;
}

GV_EXPORT int cudnnBackendDestroyDescriptor(struct descriptor *d)
{
	if (!d)
		return DNN_OK;
	for (int i = 0; i < d->attribute_count; i++)
		free(d->attributes[i].values);
	free(d);
	return DNN_OK;
}

GV_EXPORT int cudnnBackendFinalize(struct descriptor *d)
{
	if (!d)
		return DNN_BAD_PARAM;
	switch (d->type) {
	case TYPE_CONV_FORWARD:
	case TYPE_CONV_BACKWARD_DATA:
	case TYPE_CONV_BACKWARD_FILTER:
		d->is_conv = decode_operation(d, &d->conv);
		break;
	case TYPE_GRAPH:
		inherit_from_operations(d);
		break;
	case TYPE_HEURISTIC:
		inherit(d, descriptor_in(d, HEURISTIC_GRAPH, 0));
		break;
	case TYPE_ENGINE:
		inherit(d, descriptor_in(d, ENGINE_GRAPH, 0));
		integers(d, ENGINE_INDEX, &d->engine_index, 1);
		break;
	case TYPE_ENGINE_CONFIG:
		inherit(d, descriptor_in(d, CONFIG_ENGINE, 0));
		break;
	case TYPE_PLAN:
		inherit(d, descriptor_in(d, PLAN_CONFIG, 0));
		report_plan(d);
		break;
	default:
		break;
	}
	return DNN_OK;
}

GV_EXPORT int cudnnBackendExecute(void *handle, void *plan, void *variant_pack)
{
	gv_launched();
	return DNN_OK;
}

GV_EXPORT int cudnnBackendSetAttribute(struct descriptor *d, int name, int type, int64_t count, const void *values)
{
	struct attribute *a = (struct attribute *)(uintptr_t)find(d, name);
	void *copy;

	if (!d || count < 0 || count > MAX_ELEMENTS)
		return DNN_BAD_PARAM;
	if (!a) {
		if (d->attribute_count == MAX_ATTRIBUTES)
			return DNN_NOT_SUPPORTED;
		a = &d->attributes[d->attribute_count++];
		memset(a, 0, sizeof *a);
	}
	copy = gv_new((size_t)count * type_bytes(type));
	if (values)
		memcpy(copy, values, (size_t)count * type_bytes(type));
	free(a->values);
	*a = (struct attribute){name, type, count, copy};
	return DNN_OK;
}

static int64_t copy_out(const struct attribute *a, int type, int64_t wanted, void *out)
{
	int64_t n = wanted < a->count ? wanted : a->count;

	/* Descriptors are filled by the library into objects of the caller; none of PyTorch's needs that but engines. */
	if (out && n > 0 && type == a->type && type != AS_DESCRIPTOR)
		memcpy(out, a->values, (size_t)n * type_bytes(type));
	return a->count;
}

static int64_t heuristic_results(const struct descriptor *d, int64_t wanted, struct descriptor **out)
{
	struct gv_plan plans[GV_CONV_MAX_PLANS];
	int64_t offered = 1;

	if (d->is_conv) {
		gv_cudnn_describe_device();
		offered = gv_cudnn_plans(&d->conv, plans, GV_CONV_MAX_PLANS);
	}
	if (!out || wanted <= 0)
		return offered;
	if (wanted > offered)
		wanted = offered;
	for (int64_t i = 0; i < wanted; i++) {
		if (!out[i])
			continue;
		inherit(out[i], d);
		out[i]->engine_index = i;
	}
	return wanted;
}

/* PyTorch leaves out engines by their notes: when it must be deterministic, and when TF32 is not allowed. */
static int64_t numerical_notes(const struct descriptor *d, int64_t wanted, int *out)
{
	uint32_t notes = plan_of(d).notes;
	int64_t n = 0;

	for (int note = 0; note < 32; note++) {
		if (!(notes >> note & 1))
			continue;
		if (out && n < wanted)
			out[n] = note;
		n++;
	}
	return n;
}

static int64_t one_integer(int64_t value, int64_t wanted, void *out)
{
	if (out && wanted > 0)
		memcpy(out, &value, sizeof value);
	return 1;
}

static int64_t empty_json(int64_t wanted, char *out)
{
	static const char json[] = "{}";

	if (out && wanted > 0)
		memcpy(out, json, (size_t)(wanted < (int64_t)sizeof json ? wanted : (int64_t)sizeof json));
	return sizeof json;
}

GV_EXPORT int cudnnBackendGetAttribute(struct descriptor *d, int name, int type, int64_t wanted, int64_t *count, void *out)
{
	int64_t n = 0;
	const struct attribute *a = find(d, name);

	if (!d)
		return DNN_BAD_PARAM;
	if (name == HEURISTIC_RESULTS) {
		n = heuristic_results(d, wanted, out);
	} else if (name == CONFIG_ENGINE) { /* the caller brings an engine descriptor to be filled */
		if (out && wanted > 0 && *(struct descriptor **)out)
			inherit(*(struct descriptor **)out, d);
		n = 1;
	} else if (name == PLAN_WORKSPACE || name == CONFIG_WORKSPACE) {
		n = one_integer(workspace_bytes(d), wanted, out);
		if (d->is_conv)
			gv_offer_workspace(workspace_bytes(d));
	} else if (name == ENGINE_INDEX) {
		n = one_integer(d->engine_index, wanted, out);
	} else if (name == ENGINE_NUMERICAL_NOTES) {
		n = numerical_notes(d, wanted, out);
	} else if (name >= ENGINE_KNOBS && name <= ENGINE_BEHAVIOR_NOTES) {
		n = 0; /* no knobs, no notes */
	} else if (name == PLAN_JSON) {
		n = empty_json(wanted, out);
	} else if (a) {
		n = copy_out(a, type, wanted, out);
	} else if (wanted > 0) { /* never set: zero, which is every attribute's plainest value */
		if (out && type != AS_DESCRIPTOR)
			memset(out, 0, type_bytes(type));
		n = 1;
	}
	if (count)
		*count = n;
	return DNN_OK;
}
