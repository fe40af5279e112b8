package plugintest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// changesFeatures is a site's own filter in Lua: every job goes to the large cards.
const changesFeatures = `
function slurm_job_submit(job, parts, uid)
	job.features = "gpu80g"
	return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid)
	return slurm.SUCCESS
end
return slurm.SUCCESS
`

// TestPluginsBeside is JobSubmitPlugins as sites write it, on a real slurmctld: Lua before ours, Lua behind it, ours twice. Every job is held once, with one token, and keeps what the others made
// of it; behind ours is what ours does not see.
func TestPluginsBeside(t *testing.T) {
	lua := filepath.Join(t.TempDir(), "job_submit.lua")
	if err := os.WriteFile(lua, []byte(changesFeatures), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range minicluster.Releases() {
		root := minicluster.RootForTest(t, name)
		plugin := buildFor(t, root)
		for _, c := range []struct{ plugins, seen, features string }{
			{"lua,gresize", "gpu80g", "gpu80g"},
			{"gresize,lua", "", "gpu80g"},
			{"gresize,gresize", "", "(null)"},
			{"lua,gresize,lua,gresize", "gpu80g", "gpu80g"},
		} {
			t.Run(name+" "+c.plugins, func(t *testing.T) {
				cluster, peer := realSlurmWith(t, plugin, root, func(o *minicluster.Options) {
					o.Settings = map[string]string{"JobSubmitPlugins": c.plugins}
					o.Lua = lua
				})
				peer.answer(&wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 200, Token: "once"})
				id := sbatch(t, cluster, "#!/bin/sh\ntrue\n", "--gres=gpu:1", "--comment=mine")
				job, err := cluster.Job(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if job["AdminComment"] != wire.TokenPrefix+"once" || job["Reason"] != "BeginTime" || job["Features"] != c.features || job["Comment"] != "mine" {
					t.Errorf("the job: %v", job)
				}
				// A second call finds the mark of the first: gresized is told, and asked for nothing.
				heard := peer.heard()
				if len(heard) != strings.Count(c.plugins, "gresize") || heard[0].Features != c.seen || heard[0].SkipReason != "" {
					t.Errorf("told %d times, first %+v", len(heard), heard[0])
				}
				for _, again := range heard[1:] {
					if again.SkipReason == "" {
						t.Errorf("asked again: %+v", again)
					}
				}
			})
		}
	}
}

// TestPluginOfAnotherRelease: slurmctld itself refuses to start with it, and says why.
func TestPluginOfAnotherRelease(t *testing.T) {
	known := minicluster.KnownReleases()
	for _, name := range minicluster.Releases() {
		other := known[0]
		if other == name {
			other = known[len(known)-1]
		}
		t.Run("slurmctld "+name+" plugin "+other, func(t *testing.T) {
			options := minicluster.Default()
			options.Root, options.Plugin = minicluster.RootForTest(t, name), buildFor(t, minicluster.RootForTest(t, other))
			cluster, err := minicluster.Start(t.Context(), options)
			if err == nil {
				cluster.Stop()
				t.Fatal("slurmctld has started")
			}
			if !strings.Contains(strings.ToLower(err.Error()), "incompatible") {
				t.Errorf("it does not say so: %v", err)
			}
		})
	}
}
