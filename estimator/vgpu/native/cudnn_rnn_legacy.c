/*
 * libcudnn 8: recurrent networks as PyTorch before 2.5 asks for them. The older interface learns the width of the input
 * and the batch of each time step from the descriptors of the data; the layout and the sizes are those of cudnn_rnn.c.
 */
#include "cudnn.h"

#if GV_SONAME_MAJOR < 9

enum { BIAS_DOUBLE = 2 };
enum { MAX_TIME_STEPS = 1 << 20 };

int cudnnGetRNNWeightSpaceSize(void *handle, const struct dnn_descriptor *d, size_t *bytes);
int cudnnGetRNNWeightParams(void *handle, const struct dnn_descriptor *d, int layer, size_t bytes, char *space, int id, struct dnn_descriptor *matrix, char **matrix_at, struct dnn_descriptor *bias, char **bias_at);
int cudnnGetRNNTempSpaceSizes(void *handle, const struct dnn_descriptor *d, int training, const struct dnn_descriptor *x, size_t *workspace, size_t *reserve);

GV_EXPORT int cudnnSetRNNDescriptor_v6(void *handle, struct dnn_descriptor *d, int hidden, int layers, void *dropout, int input_mode, int direction, int cell, int algorithm, int precision)
{
	d->cell = cell;
	d->bias_mode = BIAS_DOUBLE;
	d->bidirectional = direction != 0;
	d->hidden = hidden;
	d->projection = hidden;
	d->layers = layers;
	return DNN_OK;
}

GV_EXPORT int cudnnSetRNNProjectionLayers(void *handle, struct dnn_descriptor *d, int recurrent, int output)
{
	d->projection = recurrent;
	return DNN_OK;
}

/* of_input is the network as it is for an input of that shape and type: batch, width, 1. */
static struct dnn_descriptor of_input(const struct dnn_descriptor *d, const struct dnn_descriptor *x)
{
	struct dnn_descriptor all = *d;

	all.input = x->size[1];
	all.type = x->type;
	return all;
}

GV_EXPORT int cudnnGetRNNParamsSize(void *handle, const struct dnn_descriptor *d, const struct dnn_descriptor *x, size_t *bytes, int type)
{
	struct dnn_descriptor all = of_input(d, x);

	all.type = type;
	return cudnnGetRNNWeightSpaceSize(handle, &all, bytes);
}

GV_EXPORT int cudnnGetRNNLinLayerMatrixParams(void *handle, const struct dnn_descriptor *d, int layer, const struct dnn_descriptor *x, const struct dnn_descriptor *w, const void *space, int id, struct dnn_descriptor *matrix, char **at)
{
	struct dnn_descriptor all = of_input(d, x);

	return cudnnGetRNNWeightParams(handle, &all, layer, 0, (char *)(uintptr_t)space, id, matrix, at, NULL, NULL);
}

GV_EXPORT int cudnnGetRNNLinLayerBiasParams(void *handle, const struct dnn_descriptor *d, int layer, const struct dnn_descriptor *x, const struct dnn_descriptor *w, const void *space, int id, struct dnn_descriptor *bias, char **at)
{
	struct dnn_descriptor all = of_input(d, x);

	return cudnnGetRNNWeightParams(handle, &all, layer, 0, (char *)(uintptr_t)space, id, NULL, NULL, bias, at);
}

static int temporary_bytes(void *handle, const struct dnn_descriptor *d, int steps, const struct dnn_descriptor *const *x, size_t *workspace, size_t *reserve)
{
	struct dnn_descriptor all, data = {.size = {1, 0}};

	if (steps < 1 || steps > MAX_TIME_STEPS)
		return DNN_BAD_PARAM;
	all = of_input(d, x[0]);
	for (int i = 0; i < steps; i++)
		data.size[1] += x[i]->size[0];
	return cudnnGetRNNTempSpaceSizes(handle, &all, reserve != NULL, &data, workspace, reserve);
}

GV_EXPORT int cudnnGetRNNWorkspaceSize(void *handle, const struct dnn_descriptor *d, int steps, const struct dnn_descriptor *const *x, size_t *bytes)
{
	return temporary_bytes(handle, d, steps, x, bytes, NULL);
}

GV_EXPORT int cudnnGetRNNTrainingReserveSize(void *handle, const struct dnn_descriptor *d, int steps, const struct dnn_descriptor *const *x, size_t *bytes)
{
	return temporary_bytes(handle, d, steps, x, NULL, bytes);
}

#endif
