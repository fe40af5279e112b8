package probe

import (
	"slices"
	"strings"
	"testing"
)

func TestContainerOf(t *testing.T) {
	for text, want := range map[string]string{
		"apptainer exec --nv image.sif python train.py":            "",
		"#!/bin/sh\n/opt/bin/singularity exec x python train.py":   "",
		"srun --container-image=nvcr.io#x python train.py":         "--container-image",
		"srun --container-name x python train.py":                  "--container-name",
		"cd x && enroot start pyxis_1 python a.py":                 "enroot",
		"python train.py --dataset docker-logs --container_size 3": "",
		"python apptainer.py":                                      "",
		"python train.py --containers=4":                           "",
		"echo done":                                                "",
	} {
		if got := containerOf(nil, []byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if got := containerOf([]string{text}, nil); got != want {
			t.Errorf("as a command, %q: %q, want %q", text, got, want)
		}
	}
}

// TestContainerEnvironment: what a job says of its containers stays, under whichever name it says it.
func TestContainerEnvironment(t *testing.T) {
	add := []string{"LD_AUDIT=/lib/vgpu/a.so", "LD_LIBRARY_PATH=/lib/vgpu", "PATH=/lib/bin:/bin", "PYTHONPATH=/lib/python", "GRESIZE_PROBE=1"}
	env := []string{"SINGULARITY_BIND=/scratch", "APPTAINER_BINDPATH=/data:/d", "APPTAINERENV_PREPEND_PATH=/opt/bin"}
	got := containerEnvironment(env, add, "/lib", "/.gresize/files", "/.gresize/reports", "/.gresize/shims")
	want := []string{
		"SINGULARITY_BIND=/scratch,/lib,/.gresize", "SINGULARITY_BINDPATH=/lib,/.gresize", "APPTAINER_BINDPATH=/data:/d,/lib,/.gresize", "SINGULARITY_USERNS=1", "SINGULARITY_UNSQUASH=1",
		"SINGULARITYENV_PREPEND_PATH=/.gresize/shims:/lib/bin", "SINGULARITYENV_LD_AUDIT=/lib/vgpu/a.so", "SINGULARITYENV_GRESIZE_PROBE=1",
		"APPTAINERENV_PREPEND_PATH=/opt/bin:/.gresize/shims:/lib/bin", "APPTAINERENV_LD_AUDIT=/lib/vgpu/a.so", "APPTAINERENV_GRESIZE_PROBE=1",
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%q\nwant %q", got, want)
	}
	if got := containerEnvironment(nil, add, "/l", "/p/files", "/p/reports", ""); slices.Contains(got, "SINGULARITY_USERNS=1") || !slices.Contains(got, "SINGULARITY_BIND=/l,/p/files,/p/reports") {
		t.Errorf("without a sandbox: %q", got)
	}
	if got := containerEnvironment(nil, add, "/l:ib", "/p", "/p", ""); got != nil {
		t.Errorf("a folder that cannot be named: %q", got)
	}
}

func TestUnpacked(t *testing.T) {
	if got := unpacked([]string{"bash", "job.sh"}, []byte("#!/bin/sh\nsrun apptainer exec x.sif python a.py\n")); !strings.Contains(got, "apptainer build --sandbox") {
		t.Error(got)
	}
	if got := unpacked([]string{"python", "apptainer.py"}, nil); got != "" {
		t.Error(got)
	}
}
