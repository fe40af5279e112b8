package probe

import "testing"

func TestContainerOf(t *testing.T) {
	for text, want := range map[string]string{
		"apptainer exec --nv image.sif python train.py":            "apptainer",
		"#!/bin/sh\n/opt/bin/singularity exec x python train.py":   "singularity",
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
