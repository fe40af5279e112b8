/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gresize-cudnn-plan: asks the job's own libcudnn, without a GPU, which plans
 * its heuristic proposes for a convolution and how much workspace each takes.
 *
 *   gresize-cudnn-plan LIBCUDNN [LIBRARY_TO_LOAD_FIRST...]
 *
 * cuDNN 9.8 and later plan for a described device ("deviceless ahead-of-time
 * compilation"). The libraries to load first are the virtual GPU's
 * libcuda.so.1 and libcublasLt.so.N; nothing in them pretends to be NVIDIA's:
 * a library that wants more than names from its driver is refused, and then
 * this program fails.
 *
 * It is a process of its own because cuDNN belongs neither into the traced
 * program nor behind its loader settings, and because it may crash.
 *
 * Standard input: the description of the device, JSON on one line, then one
 * request a line, the numbers of gv_conv_key() (see cudnn_workspace_key.h). Standard
 * output: first "ready VERSION" or "failed REASON", then for each request
 * "plans N WORKSPACE:NOTES ..." or "none REASON". The end of input ends it.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cudnn_workspace_key.h"
#include "cudnn_workspace.h"
#include "glibc.h"

#if defined(__x86_64__)
/*
 * The start files of a C library from 2.34 on ask for a new version of this
 * one name, and would keep the program from starting on an older library. The
 * linker leads them here (--wrap); nothing of ours wants constructors, which an
 * older library would not run for them.
 */
__asm__(".symver start_main,__libc_start_main@GLIBC_2.2.5");
typedef int main_function(int, char **, char **);
int start_main(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int __wrap___libc_start_main(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

int __wrap___libc_start_main(main_function *main, int count, char **words, void (*init)(void), void (*fini)(void),
			     void (*rtld_fini)(void), void *stack_end)
{
	return start_main(main, count, words, init, fini, rtld_fini, stack_end);
}
#endif

enum {
	DESCRIPTION_MAX_BYTES = 64 * 1024,
	/* A request that takes longer than this is a hang. */
	REQUEST_SECONDS = 20
};

/* Public numbers of the cuDNN backend interface. */
enum {
	DESCRIPTOR_CONVOLUTION = 1,
	DESCRIPTOR_ENGINE = 2,
	DESCRIPTOR_ENGINE_CONFIG = 3,
	DESCRIPTOR_ENGINE_HEURISTIC = 4,
	DESCRIPTOR_PLAN = 5,
	DESCRIPTOR_OPERATION_FORWARD = 10,
	DESCRIPTOR_OPERATION_WGRAD = 11,
	DESCRIPTOR_OPERATION_DGRAD = 12,
	DESCRIPTOR_GRAPH = 15,
	DESCRIPTOR_TENSOR = 17,
	DESCRIPTOR_DEVICE = 38,

	TYPE_DATA_TYPE = 1,
	TYPE_INT64 = 3,
	TYPE_FLOAT = 4,
	TYPE_DOUBLE = 5,
	TYPE_CONVOLUTION_MODE = 7,
	TYPE_HEURISTIC_MODE = 8,
	TYPE_NUMERICAL_NOTE = 11,
	TYPE_DESCRIPTOR = 15,
	TYPE_CHAR = 24,

	CONVOLUTION_COMPUTE_TYPE = 100,
	CONVOLUTION_MODE = 101,
	CONVOLUTION_DILATIONS = 102,
	CONVOLUTION_STRIDES = 103,
	CONVOLUTION_POST_PADS = 104,
	CONVOLUTION_PRE_PADS = 105,
	CONVOLUTION_SPATIAL = 106,
	HEURISTIC_MODE = 200,
	HEURISTIC_GRAPH = 201,
	HEURISTIC_RESULTS = 202,
	HEURISTIC_DEVICE = 204,
	CONFIG_ENGINE = 300,
	PLAN_CONFIG = 401,
	PLAN_WORKSPACE = 402,
	PLAN_DEVICE = 407,
	GRAPH_OPERATIONS = 801,
	TENSOR_ALIGNMENT = 900,
	TENSOR_DATA_TYPE = 901,
	TENSOR_DIMS = 902,
	TENSOR_STRIDES = 903,
	TENSOR_ID = 906,
	ENGINE_NUMERICAL_NOTES = 1303,
	DEVICE_JSON = 2702,

	HEURISTIC_INSTANT = 0,
	NUMERICAL_NOTES = 16
};

typedef void *descriptor;

static struct {
	int (*create)(int type, descriptor *out);
	int (*destroy)(descriptor);
	int (*set)(descriptor, int name, int type, int64_t count, const void *values);
	int (*get)(descriptor, int name, int type, int64_t room, int64_t *count, void *values);
	int (*finalize)(descriptor);
	size_t (*version)(void);
	descriptor device;
} cudnn;

/* Standard output as it was at the start: libraries may print. */
static FILE *answers;

static int set_up_answers(void)
{
	int copy = dup(STDOUT_FILENO);
	answers = copy < 0 ? NULL : fdopen(copy, "w");
	return answers != NULL && dup2(STDERR_FILENO, STDOUT_FILENO) == STDOUT_FILENO;
}

/* Every descriptor of one request, so that one call lets go of them all. */
enum { REQUEST_DESCRIPTORS = 96 };
static descriptor held[REQUEST_DESCRIPTORS];
static int held_count;

static descriptor make(int type)
{
	descriptor made = NULL;
	if (held_count == REQUEST_DESCRIPTORS || cudnn.create(type, &made) != 0)
		return NULL;
	held[held_count++] = made;
	return made;
}

static void let_go(void)
{
	while (held_count > 0)
		cudnn.destroy(held[--held_count]);
}

static int set(descriptor d, int name, int type, int64_t count, const void *values)
{
	return d != NULL && cudnn.set(d, name, type, count, values) == 0;
}

static int set_child(descriptor d, int name, descriptor child)
{
	return child != NULL && set(d, name, TYPE_DESCRIPTOR, 1, &child);
}

static int finish(descriptor d)
{
	return d != NULL && cudnn.finalize(d) == 0;
}

static descriptor make_tensor(const struct gv_conv_tensor *t, int64_t id)
{
	enum { USUAL_ALIGNMENT = 16 };
	descriptor d = make(DESCRIPTOR_TENSOR);
	int dtype = t->dtype;
	int64_t alignment = t->alignment_bytes > 0 ? t->alignment_bytes : USUAL_ALIGNMENT;
	return set(d, TENSOR_DATA_TYPE, TYPE_DATA_TYPE, 1, &dtype) &&
			       set(d, TENSOR_DIMS, TYPE_INT64, t->dims, t->dim) &&
			       set(d, TENSOR_STRIDES, TYPE_INT64, t->dims, t->stride) &&
			       set(d, TENSOR_ID, TYPE_INT64, 1, &id) &&
			       set(d, TENSOR_ALIGNMENT, TYPE_INT64, 1, &alignment) && finish(d) ?
		       d :
		       NULL;
}

static descriptor make_convolution(const struct gv_conv *conv)
{
	descriptor d = make(DESCRIPTOR_CONVOLUTION);
	int compute = conv->compute_dtype, mode = conv->mode;
	int64_t spatial = conv->spatial;
	return set(d, CONVOLUTION_COMPUTE_TYPE, TYPE_DATA_TYPE, 1, &compute) &&
			       set(d, CONVOLUTION_MODE, TYPE_CONVOLUTION_MODE, 1, &mode) &&
			       set(d, CONVOLUTION_DILATIONS, TYPE_INT64, spatial, conv->dilation) &&
			       set(d, CONVOLUTION_STRIDES, TYPE_INT64, spatial, conv->filter_stride) &&
			       set(d, CONVOLUTION_POST_PADS, TYPE_INT64, spatial, conv->post_pad) &&
			       set(d, CONVOLUTION_PRE_PADS, TYPE_INT64, spatial, conv->pre_pad) &&
			       set(d, CONVOLUTION_SPATIAL, TYPE_INT64, 1, &spatial) && finish(d) ?
		       d :
		       NULL;
}

static descriptor make_operation(const struct gv_conv *conv)
{
	static const struct {
		int descriptor, alpha, beta, convolution, w, x, y;
	} shapes[] = {
		[GV_CONV_FORWARD] = {DESCRIPTOR_OPERATION_FORWARD, 700, 701, 702, 703, 704, 705},
		[GV_CONV_DGRAD] = {DESCRIPTOR_OPERATION_DGRAD, 706, 707, 708, 709, 710, 711},
		[GV_CONV_WGRAD] = {DESCRIPTOR_OPERATION_WGRAD, 712, 713, 714, 715, 716, 717},
	};
	const float one = 1, zero = 0;
	const double one_double = 1, zero_double = 0;
	int as_double = conv->x.dtype == GV_DTYPE_DOUBLE;
	int scalar = as_double ? TYPE_DOUBLE : TYPE_FLOAT;
	descriptor d = make(shapes[conv->op].descriptor);
	return set(d, shapes[conv->op].alpha, scalar, 1, as_double ? (const void *)&one_double : &one) &&
			       set(d, shapes[conv->op].beta, scalar, 1, as_double ? (const void *)&zero_double : &zero) &&
			       set_child(d, shapes[conv->op].convolution, make_convolution(conv)) &&
			       set_child(d, shapes[conv->op].w, make_tensor(&conv->w, 'w')) &&
			       set_child(d, shapes[conv->op].x, make_tensor(&conv->x, 'x')) &&
			       set_child(d, shapes[conv->op].y, make_tensor(&conv->y, 'y')) && finish(d) ?
		       d :
		       NULL;
}

static uint32_t notes_of(descriptor config)
{
	descriptor engine = make(DESCRIPTOR_ENGINE);
	int64_t count = 0;
	int notes[NUMERICAL_NOTES];
	uint32_t mask = 0;
	if (engine == NULL || cudnn.get(config, CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &count, &engine) != 0)
		return 0;
	if (cudnn.get(engine, ENGINE_NUMERICAL_NOTES, TYPE_NUMERICAL_NOTE, NUMERICAL_NOTES, &count, notes) != 0)
		return 0;
	for (int64_t i = 0; i < count && i < NUMERICAL_NOTES; i++)
		if (notes[i] >= 0 && notes[i] < 32)
			mask |= 1u << notes[i];
	return mask;
}

static int plan_config(descriptor config, struct gv_plan *out)
{
	descriptor plan = make(DESCRIPTOR_PLAN);
	int64_t workspace = -1, count = 0;
	if (!set_child(plan, PLAN_CONFIG, config) || !set_child(plan, PLAN_DEVICE, cudnn.device) || !finish(plan))
		return 0;
	if (cudnn.get(plan, PLAN_WORKSPACE, TYPE_INT64, 1, &count, &workspace) != 0 || workspace < 0)
		return 0;
	out->workspace_bytes = workspace;
	out->notes = notes_of(config);
	return 1;
}

/* The reason for an answer without plans, or NULL. */
static const char *plan(const struct gv_conv *conv, struct gv_plan *plans, int *count)
{
	descriptor configs[GV_CONV_MAX_PLANS];
	descriptor graph, heuristic, operation;
	int mode = HEURISTIC_INSTANT;
	int64_t found = 0;

	*count = 0;
	operation = make_operation(conv);
	if (operation == NULL)
		return "operation_refused";
	graph = make(DESCRIPTOR_GRAPH);
	if (!set_child(graph, GRAPH_OPERATIONS, operation) || !finish(graph))
		return "graph_refused";
	heuristic = make(DESCRIPTOR_ENGINE_HEURISTIC);
	if (!set(heuristic, HEURISTIC_MODE, TYPE_HEURISTIC_MODE, 1, &mode) ||
	    !set_child(heuristic, HEURISTIC_GRAPH, graph) ||
	    !set_child(heuristic, HEURISTIC_DEVICE, cudnn.device) || !finish(heuristic))
		return "heuristic_refused";
	for (int i = 0; i < GV_CONV_MAX_PLANS; i++)
		if ((configs[i] = make(DESCRIPTOR_ENGINE_CONFIG)) == NULL)
			return "descriptor_refused";
	if (cudnn.get(heuristic, HEURISTIC_RESULTS, TYPE_DESCRIPTOR, GV_CONV_MAX_PLANS, &found, configs) != 0)
		return "no_results";
	for (int64_t i = 0; i < found && i < GV_CONV_MAX_PLANS; i++)
		*count += plan_config(configs[i], &plans[*count]);
	return *count > 0 ? NULL : "no_plan";
}

static void answer(const char *line)
{
	struct gv_plan plans[GV_CONV_MAX_PLANS];
	struct gv_conv conv;
	const char *reason = "bad_request";
	int count = 0;

	if (gv_conv_parse_key(line, &conv))
		reason = plan(&conv, plans, &count);
	let_go();
	if (count == 0) {
		fprintf(answers, "none %s\n", reason);
	} else {
		fprintf(answers, "plans %d", count);
		for (int i = 0; i < count; i++)
			fprintf(answers, " %" PRId64 ":%" PRIu32, plans[i].workspace_bytes, plans[i].notes);
		fputc('\n', answers);
	}
	fflush(answers);
}

static int fail(const char *reason)
{
	fprintf(answers, "failed %s\n", reason);
	fflush(answers);
	return 1;
}

static int load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL)
		return 0;
	*(void **)&cudnn.create = dlsym(library, "cudnnBackendCreateDescriptor");
	*(void **)&cudnn.destroy = dlsym(library, "cudnnBackendDestroyDescriptor");
	*(void **)&cudnn.set = dlsym(library, "cudnnBackendSetAttribute");
	*(void **)&cudnn.get = dlsym(library, "cudnnBackendGetAttribute");
	*(void **)&cudnn.finalize = dlsym(library, "cudnnBackendFinalize");
	*(void **)&cudnn.version = dlsym(library, "cudnnGetVersion");
	return cudnn.create && cudnn.destroy && cudnn.set && cudnn.get && cudnn.finalize && cudnn.version;
}

static int describe(void)
{
	static char text[DESCRIPTION_MAX_BYTES];
	size_t length;
	if (fgets(text, sizeof text, stdin) == NULL)
		return 0;
	length = strcspn(text, "\n");
	text[length] = '\0';
	return length > 0 && cudnn.create(DESCRIPTOR_DEVICE, &cudnn.device) == 0 &&
	       set(cudnn.device, DEVICE_JSON, TYPE_CHAR, (int64_t)length + 1, text) && finish(cudnn.device);
}

int main(int argc, char **argv)
{
	static char line[GV_CONV_KEY_MAX_BYTES];

	if (argc < 2) {
		fprintf(stderr, "usage: %s LIBCUDNN [LIBRARY_TO_LOAD_FIRST...]\n", argv[0]);
		return 64;
	}
	if (!set_up_answers())
		return 1;
	/* Whoever started this program waits for nothing: see cudnn_workspace_planner.c. */
	switch (fork()) {
	case -1:
		return fail("fork");
	case 0:
		break;
	default:
		_exit(0);
	}
	alarm(REQUEST_SECONDS);
	for (int i = 2; i < argc; i++)
		if (dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) == NULL)
			return fail("library_to_load_first");
	if (!load(argv[1]))
		return fail("libcudnn_not_loadable");
	if (cudnn.version() < GV_CUDNN_FIRST_DEVICELESS)
		return fail("libcudnn_too_old");
	if (!describe())
		return fail("device_description_refused");
	fprintf(answers, "ready %zu\n", cudnn.version());
	fflush(answers);
	alarm(0);
	while (fgets(line, sizeof line, stdin) != NULL) {
		alarm(REQUEST_SECONDS);
		answer(line);
		alarm(0);
	}
	/* cuDNN's destructors expect a driver: end without them. */
	_exit(0);
}
