/* libcudnn: recurrent networks: the layout of packed weights, and the sizes of workspace and reserve, which are a model. */
#include "cudnn.h"

enum {
	CELL_LSTM = 2,
	CELL_GRU = 3
};
enum {
	BIAS_NONE = 0,
	BIAS_INPUT = 1,
	BIAS_DOUBLE = 2,
	BIAS_RECURRENT = 3
};

GV_EXPORT int cudnnSetRNNDescriptor_v8(struct dnn_descriptor *d, int algorithm, int cell, int bias_mode, int direction, int input_mode, int type, int precision, int math, int input, int hidden, int projection, int layers, void *dropout, unsigned flags)
{
	d->cell = cell;
	d->bias_mode = bias_mode;
	d->bidirectional = direction != 0;
	d->type = type;
	d->input = input;
	d->hidden = hidden;
	d->projection = projection;
	d->layers = layers;
	return DNN_OK;
}

GV_EXPORT int cudnnSetRNNDataDescriptor(struct dnn_descriptor *d, int type, int layout, int steps, int batch, int width, const int *lengths, const void *padding)
{
	d->type = type;
	d->dimensions = 3;
	d->size[0] = steps;
	d->size[1] = batch;
	d->size[2] = width;
	return DNN_OK;
}

static int gate_count(const struct dnn_descriptor *d)
{
	return d->cell == CELL_LSTM ? 4 :
	       d->cell == CELL_GRU  ? 3 :
				      1;
}

static int directions(const struct dnn_descriptor *d)
{
	return d->bidirectional ? 2 : 1;
}

static bool has_projection(const struct dnn_descriptor *d)
{
	return d->projection && d->projection != d->hidden;
}

static int output_width(const struct dnn_descriptor *d)
{
	return has_projection(d) ? d->projection : d->hidden;
}

static int bias_sets(const struct dnn_descriptor *d)
{
	return d->bias_mode == BIAS_NONE   ? 0 :
	       d->bias_mode == BIAS_DOUBLE ? 2 :
					     1;
}

struct matrix {
	size_t offset;
	int rows, columns;
};

/*
 * The packed buffer: for every layer and direction the input matrices of all gates, then the recurrent ones, then the
 * projection; behind all matrices the biases. weights_end walks it to its end and notes the wanted matrix on the way.
 */
static size_t weights_end(const struct dnn_descriptor *d, int layer, int id, struct matrix *wanted)
{
	int gates = gate_count(d), out = output_width(d);
	size_t at = 0;

	for (int l = 0; l < d->layers * directions(d); l++) {
		int in = l < directions(d) ? d->input : out * directions(d);
		for (int g = 0; g < 2 * gates; g++) {
			int columns = g < gates ? in : out;
			if (l == layer && g == id)
				*wanted = (struct matrix){at, d->hidden, columns};
			at += (size_t)d->hidden * (size_t)columns;
		}
		if (has_projection(d)) {
			if (l == layer && id == 2 * gates)
				*wanted = (struct matrix){at, out, d->hidden};
			at += (size_t)out * (size_t)d->hidden;
		}
	}
	return at;
}

GV_EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, const struct dnn_descriptor *d, size_t *bytes)
{
	struct matrix none;
	size_t elements = weights_end(d, -1, 0, &none);

	elements += (size_t)(d->layers * directions(d) * bias_sets(d) * gate_count(d)) * (size_t)d->hidden;
	*bytes = elements * gv_dnn_type_bytes(d->type);
	return DNN_OK;
}

static void describe(struct dnn_descriptor *out, int type, bool present, int rows, int columns)
{
	out->type = type;
	out->dimensions = present ? 3 : 0;
	out->size[0] = 1;
	out->size[1] = rows;
	out->size[2] = columns;
	out->stride[0] = rows * columns;
	out->stride[1] = columns;
	out->stride[2] = 1;
}

/* Any of the four last out-parameters may be NULL. */
GV_EXPORT int cudnnGetRNNWeightParams(void *handle, const struct dnn_descriptor *d, int layer, size_t bytes, char *space, int id, struct dnn_descriptor *matrix, char **matrix_at, struct dnn_descriptor *bias, char **bias_at)
{
	int gates = gate_count(d);
	size_t element = gv_dnn_type_bytes(d->type);
	struct matrix m = {0};
	size_t end = weights_end(d, layer, id, &m);
	size_t bias_offset = end + ((size_t)layer * (size_t)(bias_sets(d) * gates) + (size_t)id) * (size_t)d->hidden;
	bool has_bias = id < 2 * gates && (d->bias_mode == BIAS_DOUBLE || (d->bias_mode == BIAS_INPUT && id < gates) || (d->bias_mode == BIAS_RECURRENT && id >= gates));

	if (matrix)
		describe(matrix, d->type, m.columns > 0, m.rows, m.columns);
	if (matrix_at)
		*matrix_at = m.columns > 0 ? space + m.offset * element : NULL;
	if (bias)
		describe(bias, d->type, has_bias, d->hidden, 1);
	if (bias_at)
		*bias_at = has_bias ? space + bias_offset * element : NULL;
	return DNN_OK;
}

/* Activations of all gates, the state and the cell of every step and layer, once for work and once kept for backward. */
GV_EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, const struct dnn_descriptor *d, int training, const struct dnn_descriptor *x, size_t *workspace, size_t *reserve)
{
	size_t unit = (size_t)x->size[0] * (size_t)x->size[1] * (size_t)d->hidden * (size_t)(directions(d) * d->layers) * gv_dnn_type_bytes(d->type);
	size_t bytes = unit * (size_t)(gate_count(d) + 2);

	if (workspace)
		*workspace = bytes;
	if (reserve)
		*reserve = training ? bytes : 0;
	gv_bounded(GV_BOUND_RNN, training ? 2 * bytes : bytes);
	return DNN_OK;
}
