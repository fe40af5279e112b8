/*
 * Puts the Python layer into an interpreter that was started without it: by python -I, with a PYTHONPATH of the job's
 * own, or with an environment that lost ours. It is done when the process first takes device memory, from the
 * interpreter's own list of pending calls: the next time it is between two instructions, in its main thread.
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <stdlib.h>

static const char late[] =
	"exec('''\n"
	"import sys\n"
	"if 'gresize_vgpu' not in sys.modules:\n"
	"    import os\n"
	"    place = os.environ['GRESIZE_VGPU_PYTHON']\n"
	"    sys.path.append(place)\n"
	"    try:\n"
	"        import gresize_vgpu\n"
	"        gresize_vgpu.install_late()\n"
	"    except Exception:\n"
	"        pass\n"
	"    finally:\n"
	"        sys.path.remove(place)\n"
	"''', {'__name__': 'gresize_late'})\n";

static int run_late(void *unused)
{
	int (*run)(const char *);

	*(void **)&run = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
	if (run)
		run(late);
	return 0;
}

void gv_python_late(void)
{
	int (*add)(int (*)(void *), void *);
	const char *place = getenv("GRESIZE_VGPU_PYTHON"), *reports = getenv("GRESIZE_VGPU_REPORT_DIR");

	if (!place || !*place || !reports || !*reports)
		return;
	*(void **)&add = dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
	if (add)
		add(run_late, NULL);
}
