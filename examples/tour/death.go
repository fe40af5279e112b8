package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/minicluster"
)

// outOfMemory lets an owner change a job's files while it waits: what was tried out is not what runs.
func (t *tour) outOfMemory(ctx context.Context) error {
	t.say("What no probe can know: the owner edits a file while the job waits in the queue. Somebody else has the small card for the moment:")
	if err := t.sbatch(ctx, "other", "--comment=gresize:off", "--gres=gpu:1", "--constraint=gpu12g", "--mem=100M", "--time=10", "--job-name=other", "--output=/dev/null", "--wrap=sleep 600"); err != nil {
		return err
	}
	if err := t.batch("4"); err != nil {
		return err
	}
	if err := t.sbatch(ctx, "edited", "edited.sh"); err != nil {
		return err
	}
	if err := t.until(ctx, "the job to be changed", func() (bool, error) {
		job, err := t.site.Cluster.Job(ctx, t.ids["edited"])
		return job["Features"] == "gpu12g", err
	}); err != nil {
		return err
	}
	job, err := t.site.Cluster.Job(ctx, t.ids["edited"])
	if err != nil {
		return err
	}
	if err := t.claim(job["JobState"] == "PENDING", "with batch 4 it fits: it waits for the small card"); err != nil {
		return err
	}
	if err := t.batch("24"); err != nil {
		return err
	}
	t.print("scancel "+t.ids["other"], "")
	if _, err := t.site.Cluster.Run(ctx, minicluster.DefaultUser, "scancel", t.ids["other"]); err != nil {
		return err
	}
	if err := t.until(ctx, "the alarm", func() (bool, error) {
		story, err := t.story(ctx, "edited")
		return strings.Contains(story, "[out_of_memory_after_rewrite]") && strings.Contains(story, "[request_restored]"), err
	}); err != nil {
		return err
	}
	out, err := t.site.Output("edited-" + t.ids["edited"] + ".out")
	if err != nil {
		return err
	}
	t.print("tail -n 1 edited-"+t.ids["edited"]+".out", shorten(lastLine(out), 160))
	if err := t.claim(strings.Contains(out, "CUDA out of memory"), "it died of GPU memory on the small card"); err != nil {
		return err
	}
	daemon, err := t.site.DaemonLog()
	if err != nil {
		return err
	}
	warning := grep(daemon, "level=WARN")
	t.print("journalctl -u gresized -p warning", shorten(lastLine(warning), 400))
	if err := t.claim(strings.Contains(warning, "died of GPU memory on what gresize had given it"), "it is an alarm"); err != nil {
		return err
	}
	if out, err = t.gresize(ctx, "log", "--verdict", "oom"); err != nil {
		return err
	}
	if err := t.claim(strings.Contains(out, " "+t.ids["edited"]+" ") && strings.Count(out, "\n") == 2, "it is counted, it alone"); err != nil {
		return err
	}
	if job, err = t.site.Cluster.Job(ctx, t.ids["edited"]); err != nil {
		return err
	}
	t.print("scontrol show job "+t.ids["edited"]+" | grep -e State -e Features -e Restarts", fmt.Sprintf("JobState=%s Restarts=%s Features=%s", job["JobState"], job["Restarts"], job["Features"]))
	if err := t.claim(job["Features"] == "gpu80g" && job["Restarts"] == "1", "it is in the queue again, with what its owner had asked for (Slurm keeps it back for two minutes)"); err != nil {
		return err
	}
	if err := t.sbatch(ctx, "edited again", "edited.sh"); err != nil {
		return err
	}
	if err := t.until(ctx, "the decision", func() (bool, error) {
		story, err := t.story(ctx, "edited again")
		return strings.Contains(story, "died_after_rewrite"), err
	}); err != nil {
		return err
	}
	t.ok("a job like it is left alone from now on")
	return nil
}

// margin shows what was learnt, and waits for the job that runs again.
func (t *tour) margin(ctx context.Context) error {
	decisions := map[string]decisionlog.Decision{}
	for _, name := range []string{"shadow small", "edited"} {
		d, err := t.decision(ctx, name)
		if err != nil {
			return err
		}
		decisions[name] = d
	}
	t.say("This site wants at most %.0f %% of its jobs to need more than estimate and margin (the default is 1 %%; that takes 99 runs where this takes four).", 100*targetFailureRate)
	if err := t.sbatch(ctx, "medium at last", "medium.sh"); err != nil {
		return err
	}
	if err := t.until(ctx, "the decision", func() (bool, error) {
		d, err := t.decision(ctx, "medium at last")
		decisions["medium at last"] = d
		return d.Verdict != "", err
	}); err != nil {
		return err
	}
	for _, name := range []string{"shadow small", "edited", "medium at last"} {
		story, err := t.story(ctx, name)
		if err != nil {
			return err
		}
		t.print("gresize show "+t.ids[name]+" | grep margin", grep(story, "margin "))
	}
	first, learnt, last := decisions["shadow small"], decisions["edited"], decisions["medium at last"]
	if err := t.claim(first.Margin.Kind == "fixed", "the first decision had the fixed margin, %.2f GiB", gib(first.MarginBytes)); err != nil {
		return err
	}
	if err := t.claim((learnt.Margin.Kind == "calibrated" || learnt.Margin.Kind == "floor") && learnt.Margin.Actuals >= 4 && learnt.Margin.Died == 0 && learnt.MarginBytes < first.MarginBytes,
		"that of the job with the edited file was learnt from %d runs that had all kept below their estimates: %.2f GiB", learnt.Margin.Actuals, gib(learnt.MarginBytes)); err != nil {
		return err
	}
	if err := t.claim(last.Margin.Kind == "calibrated" && last.Margin.Died == 1 && last.MarginBytes > first.MarginBytes && last.Verdict == decision.Keep,
		"after its death, one of %d, the margin is %.2f GiB, so that the next job keeps the large card: with more runs one death weighs less", last.Margin.Actuals, gib(last.MarginBytes)); err != nil {
		return err
	}
	for _, name := range []string{"medium at last", "edited", "edited again"} {
		job, err := t.ends(ctx, name, "COMPLETED")
		if err != nil {
			return err
		}
		want := map[string]string{"medium at last": "gpu2", "edited": "gpu2", "edited again": "gpu2"}[name]
		if err := t.claim(job["NodeList"] == want, "%s ran to its end on %s", name, job["NodeList"]); err != nil {
			return err
		}
	}
	if err := t.until(ctx, "the Epilogs' reports", func() (bool, error) {
		sum, err := t.sum(ctx)
		return sum.Actuals.Known == 10, err
	}); err != nil {
		return err
	}
	out, err := t.gresize(ctx, "report")
	if err != nil {
		return err
	}
	sum, err := t.sum(ctx)
	if err != nil {
		return err
	}
	a := sum.Actuals
	return t.claim(a.Died == 1 && a.DiedAfterRewrite == 1 && a.RanAgain == 1 && strings.Contains(out, "run again"),
		"the report says so: %d died of memory, on what it was given, and it ran again as its owner had asked", a.Died)
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// batch writes the file from which edited.sh takes its batch size, as its owner.
func (t *tour) batch(size string) error {
	dir, err := t.site.Cluster.WorkDir(minicluster.DefaultUser)
	if err != nil {
		return err
	}
	t.print("echo "+size+" >batch.txt", "")
	return os.WriteFile(filepath.Join(dir, "batch.txt"), []byte(size+"\n"), 0o644)
}
