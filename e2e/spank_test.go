package e2e

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/e2e/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
)

// spankPlugin is a site's plugin for sbatch, srun and slurmstepd, as plugstack.conf names them: it has an option of its own, refuses a job whose option is "never", puts a variable
// into the environment of every task, and writes down in whose jobs it was.
const spankPlugin = `#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <slurm/spank.h>
SPANK_PLUGIN(site, 1);
static char tag[64];
static int take(int val, const char *text, int remote) { (void)val; (void)remote; if (!text || !strcmp(text, "never")) return -1; snprintf(tag, sizeof tag, "%s", text); return 0; }
static struct spank_option option = {"site-tag", "TEXT", "what the site wants to know", 1, 0, take};
int slurm_spank_init(spank_t sp, int ac, char **av) { (void)ac; (void)av; return spank_option_register(sp, &option); }
int slurm_spank_user_init(spank_t sp, int ac, char **av)
{
	FILE *f = fopen(av[0], "a");
	unsigned id = 0;
	(void)ac;
	spank_get_item(sp, S_JOB_ID, &id);
	if (f) { fprintf(f, "job %u tag %s\n", id, tag); fclose(f); }
	return spank_setenv(sp, "SITE_TAG", tag[0] ? tag : "none", 1);
}
`

// TestSpankPlugin: a site's SPANK plugin with an option of its own is in force for jobs and for probes, and neither minds the other.
func TestSpankPlugin(t *testing.T) {
	s := newFakeSiteOf(t, site.Options{Cluster: minicluster.Default(), Mode: "enforce", Hold: 2 * time.Minute})
	etc := filepath.Dir(s.Cluster.Conf())
	plugin, told := filepath.Join(etc, "site.so"), filepath.Join(s.Cluster.Dir(), "share", "told")
	compile := exec.Command("cc", "-I"+cmp.Or(strings.TrimPrefix(minicluster.IncludeArgument(""), "SLURM_INCLUDE="), "/usr/include"), "-shared", "-fPIC", "-O1", "-o", plugin, "-x", "c", "-")
	compile.Stdin = strings.NewReader(spankPlugin)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, os.WriteFile(told, nil, 0o666))
	must(t, os.Chmod(told, 0o666))
	must(t, os.WriteFile(filepath.Join(etc, "plugstack.conf"), []byte("required "+plugin+" "+told+"\n"), 0o644))
	s.answer(says(t, 7, estimator.Exact))
	id := s.submit(append(tooLarge, "--site-tag=mine")...)
	job, story := s.completed(id, 2*time.Minute), s.finished(id, time.Minute)
	if story.Job.State != jobs.StateVerified || job["NodeList"] != "gpu1" {
		t.Errorf("the story is %q with %+v, and the job ran on %s", states(story), story.Decisions, job["NodeList"])
	}
	text, err := os.ReadFile(told)
	must(t, err)
	if !strings.Contains(string(text), "job "+id+" tag mine\n") || strings.Count(string(text), " tag \n") == 0 {
		t.Errorf("the plugin was in no job, or in no probe:\n%s", text)
	}
	t.Logf("%s\n%s", states(story), text)
	if out, err := s.Cluster.Run(t.Context(), minicluster.DefaultUser, "sbatch", append(tooLarge, "--site-tag=never", "--wrap", "true")...); err == nil {
		t.Errorf("the plugin's word counts no more: %s", out)
	}
}
