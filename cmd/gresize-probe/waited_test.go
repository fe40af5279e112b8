package main

import (
	"slices"
	"testing"

	"github.com/gresize/gresize/daemon/launch"
)

// TestTheJobsVariablesGetTheirNamesBack: the script finds the job's own variables under their names, beside what Slurm and the site's prologs put there, and neither the key nor the address nor
// what was meant for sbatch and the shell.
func TestTheJobsVariablesGetTheirNamesBack(t *testing.T) {
	url, key, rest := takeSecrets([]string{"LC_ALL=C", "PATH=/usr/bin:/bin", "SLURM_CONF=/etc/slurm.conf", "SLURM_JOB_ID=5", "SITE=prolog", "HOME=/from/prolog", launch.KeyVariable + "=k", launch.URLVariable + "=u",
		launch.JobPrefix + "LD_PRELOAD=/opt/lib.so", launch.JobPrefix + "BASH_FUNC_module%%=() { :\n}", launch.JobPrefix + "PATH=/opt/conda/bin:/usr/bin", launch.JobPrefix + "HOME=/home/ada", launch.JobPrefix + "B=" + launch.JobPrefix})
	want := []string{"SLURM_JOB_ID=5", "SITE=prolog", "LD_PRELOAD=/opt/lib.so", "BASH_FUNC_module%%=() { :\n}", "PATH=/opt/conda/bin:/usr/bin", "HOME=/home/ada", "B=" + launch.JobPrefix}
	if url != "u" || key != "k" || !slices.Equal(rest, want) {
		t.Errorf("%q %q %q, want %q", url, key, rest, want)
	}
	// By hand nothing has the prefix, and the environment is the caller's.
	byHand := []string{"LC_ALL=C", "PATH=/usr/bin:/bin", "A=1"}
	if _, _, rest := takeSecrets(byHand); !slices.Equal(rest, byHand) {
		t.Errorf("by hand: %q", rest)
	}
}
