/* libnvrtc: compiling gives an empty program, since no kernel ever runs. */
#include "gv.h"

#include <stdlib.h>
#include <string.h>

enum { IMAGE_BYTES = 16 };

GV_EXPORT const char *nvrtcGetErrorString(int status)
{
	return status ? "NVRTC_ERROR_INTERNAL_ERROR" : "NVRTC_SUCCESS";
}

GV_EXPORT int nvrtcVersion(int *major, int *minor)
{
	*major = gv_cuda_version() / 1000;
	*minor = gv_cuda_version() % 1000 / 10;
	return 0;
}

GV_EXPORT int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *texts, const char *const *names)
{
	*program = gv_new(0);
	gv_use(GV_LIB_NVRTC);
	return 0;
}

GV_EXPORT int nvrtcDestroyProgram(void **program)
{
	free(*program);
	*program = NULL;
	return 0;
}

static int image_size(size_t *bytes)
{
	*bytes = IMAGE_BYTES;
	return 0;
}

static int image(char *out)
{
	memset(out, 0, IMAGE_BYTES);
	return 0;
}

GV_EXPORT int nvrtcGetPTXSize(void *program, size_t *bytes) { return image_size(bytes); }
GV_EXPORT int nvrtcGetCUBINSize(void *program, size_t *bytes) { return image_size(bytes); }
GV_EXPORT int nvrtcGetPTX(void *program, char *out) { return image(out); }
GV_EXPORT int nvrtcGetCUBIN(void *program, char *out) { return image(out); }

GV_EXPORT int nvrtcGetProgramLogSize(void *program, size_t *bytes)
{
	*bytes = 1;
	return 0;
}

GV_EXPORT int nvrtcGetProgramLog(void *program, char *out)
{
	*out = '\0';
	return 0;
}

GV_EXPORT int nvrtcGetLoweredName(void *program, const char *expression, const char **name)
{
	*name = "kernel";
	return 0;
}
