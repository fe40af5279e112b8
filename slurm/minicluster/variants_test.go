package minicluster

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/release"
)

// TestVariants runs a step on clusters as sites have them: how Slurm authenticates, where its nodes have their configuration from, and who makes a job's steps.
func TestVariants(t *testing.T) {
	for _, name := range Releases() {
		for _, v := range []struct {
			name   string
			since  *release.Change
			change func(*Options)
			// want is what a job sees of it.
			want string
		}{
			{"auth slurm", release.AuthSlurm, func(o *Options) { o.SlurmAuth = true }, "no munge"},
			{"configless", nil, func(o *Options) { o.Configless = true }, "/spool/gpu1/conf-cache/slurm.conf"},
			{"extern step", nil, func(o *Options) { o.Settings = map[string]string{"PrologFlags": "contain"} }, ".extern"},
			{"stepmgr", release.Stepmgr, func(o *Options) {
				o.Settings = map[string]string{"PrologFlags": "contain", "SlurmctldParameters": "enable_stepmgr"}
			}, "SLURM_STEPMGR=gpu1"},
		} {
			t.Run(name+" "+v.name, func(t *testing.T) {
				NeedsRelease(t, name, v.since)
				options := Default()
				options.Root = RootForTest(t, name)
				v.change(&options)
				c := ForTest(t, options)
				_, out := run(t, c, "--gpus=rtx3060:1", "--wrap", "srun sh -c 'echo step on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES'; env; scontrol show step $SLURM_JOB_ID; test -e "+c.MungeSocket()+" || echo no munge")
				if !strings.Contains(out, "step on gpu1 with 0\n") || !strings.Contains(out, v.want) {
					t.Errorf("%q is not in:\n%s", v.want, out)
				}
			})
		}
	}
}
