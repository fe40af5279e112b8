// Command tour goes the way of a site in some minutes on this machine: install,
// watch in shadow mode, read the report, enforce, see a job die of memory on
// what it was given, see the margin learn, and run a job on a card that is too
// small for it. Slurm, gresize and PyTorch are real, the cards are virtual. It
// prints what a person would type and what comes of it, and checks every claim
// that it makes: it ends with 1 when one is wrong.
// Run it by `make tour`.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gresize/gresize/e2e/site"
)

const (
	// wholeLimit is what the tour promises to take at most, the building before it not counted.
	wholeLimit = 10 * time.Minute
	// jobTimeout is far above what a job of the tour takes.
	jobTimeout = 4 * time.Minute
	// reportTimeout is for what a daemon does by itself: an Epilog's report, a step of a story.
	reportTimeout = 2 * time.Minute
	// targetFailureRate is that of the tour: the margin is learnt from four runs instead of the 99 that 1 % takes.
	targetFailureRate = 0.2
)

func main() {
	site.Guided("tour", func(ctx context.Context, g *site.Guide) error {
		ctx, cancel := context.WithTimeoutCause(ctx, wholeLimit, fmt.Errorf("the tour takes longer than %s", wholeLimit))
		defer cancel()
		err := (&tour{Guide: g, begin: time.Now()}).run(ctx)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errors.Join(err, context.Cause(ctx))
		}
		return err
	})
}

// tour is what the steps share.
type tour struct {
	*site.Guide
	begin time.Time
	// root is where gresize is installed, as / is on a site.
	root   string
	site   *site.Site
	checks int
	step   string
	// ids are the jobs by the name of their step and script.
	ids map[string]string
}

func (t *tour) run(ctx context.Context) error {
	fmt.Println(`A tour of gresize on one machine: a real Slurm of three nodes, cpu1 (no GPU), gpu1 (RTX 3060, 12 GB) and gpu2 (A100, 80 GB).
No GPU is used: both cards are virtual. Slurm, gresize, PyTorch and its memory allocator are real. Lines with a $ are what a person types;
what the tour claims is checked (ok), and it stops with exit code 1 where a claim is wrong.`)
	root, err := t.Scratch()
	if err != nil {
		return err
	}
	t.root, t.ids = root, map[string]string{}
	for i, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"Install", t.install}, {"Shadow: watch, change nothing", t.shadow}, {"Report", t.report}, {"Enforce", t.enforce},
		{"Out of memory after a change", t.outOfMemory}, {"The margin learns", t.margin},
		{"A card that is too small", t.tooSmall}} {
		t.step = step.name
		fmt.Printf("\n=== %d. %s  (%s)\n\n", i+1, step.name, time.Since(t.begin).Round(time.Second))
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, step.name, err)
		}
	}
	fmt.Printf("\nDone in %s: %d claims were checked.\n", time.Since(t.begin).Round(time.Second), t.checks)
	return nil
}

// install puts everything where a package would, below an empty folder.
func (t *tour) install(ctx context.Context) error {
	const plugins = "/usr/lib/slurm"
	t.say("The same list of files that the packages hold, below an empty folder (on a site: apt-get install ./gresize_*.deb, or dnf).")
	if _, err := t.command(ctx, "make install DESTDIR="+t.root+" SLURM_PLUGIN_DIR="+plugins, "make", "-s", "install", "BUILD="+t.Build, "DESTDIR="+t.root, "SLURM_PLUGIN_DIR="+plugins); err != nil {
		return err
	}
	for _, file := range []string{"usr/bin/gresize", "usr/bin/gresized", "usr/libexec/gresize/gresize-launch", "usr/libexec/gresize/gresize-probe", "usr/lib/gresize/vgpu/gresize-audit.so",
		"usr/lib/systemd/system/gresized.service", "usr/share/man/man8/gresized.8", "usr/share/bash-completion/completions/gresize", "etc/gresize/gresize.toml"} {
		if info, err := os.Stat(filepath.Join(t.root, file)); err != nil || info.Size() == 0 {
			return fmt.Errorf("/%s was not installed: %w", file, err)
		}
	}
	t.ok("programs, virtual GPU, units, manual, completions and a configuration are there")
	plugin := filepath.Join(plugins, "job_submit_gresize.so")
	out, err := t.command(ctx, "gresize slurm check --conf= "+plugin, filepath.Join(t.root, "usr/bin/gresize"), "slurm", "check", "--conf=", filepath.Join(t.root, plugin))
	if err != nil {
		return err
	}
	if err := t.claim(strings.Contains(out, "job_submit_gresize.so"), "slurmctld will load the plugin"); err != nil {
		return err
	}
	out, err = t.command(ctx, "gresized -check /etc/gresize/gresize.toml", filepath.Join(t.root, "usr/bin/gresized"), "-check", filepath.Join(t.root, "etc/gresize/gresize.toml"))
	if err != nil {
		return err
	}
	return t.claim(strings.Contains(out, "ok, mode shadow"), "a fresh installation only watches")
}

// shadow starts the site from what was installed and lets it watch.
func (t *tour) shadow(ctx context.Context) error {
	from, err := t.installed()
	if err != nil {
		return err
	}
	t.say("gresize.toml gets the two rows of this site; then Slurm, gresize-launch and gresized start from what was installed.")
	if t.site, err = t.Start(ctx, site.Options{Build: from, Mode: "shadow",
		Config: fmt.Sprintf("[margin]\ntarget_failure_rate = %g\n\n[oom]\nrequeue = true\n", targetFailureRate)}); err != nil {
		return err
	}
	text, err := os.ReadFile(t.site.ConfigPath())
	if err != nil {
		return err
	}
	t.print("grep -A2 -e mode -e target gresize.toml", grep(string(text), "mode = ", "[[target]]", "fits", "constraint", "[margin]", "target_failure_rate", "[oom]", "requeue"))
	if err := t.site.CopyScripts("examples", filepath.Join("examples", "tour")); err != nil {
		return err
	}
	t.say("Two training jobs, each asks for the 80 GB card:")
	for _, name := range []string{"small", "medium"} {
		if err := t.sbatch(ctx, "shadow "+name, name+".sh"); err != nil {
			return err
		}
	}
	for _, name := range []string{"small", "medium"} {
		job, err := t.ends(ctx, "shadow "+name, "COMPLETED")
		if err != nil {
			return err
		}
		if err := t.claim(job["NodeList"] == "gpu2" && job["Features"] == "gpu80g", "%s ran as asked, on %s with %s", name, job["NodeList"], job["Features"]); err != nil {
			return err
		}
	}
	if err := t.until(ctx, "both stories to end", func() (bool, error) {
		small, err := t.log(ctx, "--verdict", "rewrite")
		return strings.Count(small, " shadowed ") == 2, err
	}); err != nil {
		return err
	}
	out, err := t.gresize(ctx, "log")
	if err != nil {
		return err
	}
	return t.claim(strings.Count(out, "gpu12g") == 2, "both would have been given the small card")
}

// report reads what a manager reads.
func (t *tour) report(ctx context.Context) error {
	if err := t.until(ctx, "the Epilogs' reports", func() (bool, error) {
		sum, err := t.sum(ctx)
		return sum.Actuals.ShadowMeasured == 2, err
	}); err != nil {
		return err
	}
	if _, err := t.gresize(ctx, "report"); err != nil {
		return err
	}
	sum, err := t.sum(ctx)
	if err != nil {
		return err
	}
	if err := t.claim(sum.Total.GPUHoursFreed == 0.5, "two jobs of 15 minutes would have freed %.2f GPU-hours of the large card", sum.Total.GPUHoursFreed); err != nil {
		return err
	}
	if err := t.claim(sum.Actuals.WouldHaveDied == 0, "the memory that both took was measured: none would have died on the small card"); err != nil {
		return err
	}
	for _, e := range sum.Actuals.Errors {
		if err := t.claim(e.WorstPercent < 5, "on %s, %d runs took at most %+.1f %% of the upper end of the estimate", e.GPU, e.Runs, e.WorstPercent); err != nil {
			return err
		}
	}
	return nil
}

// enforce turns it on.
func (t *tour) enforce(ctx context.Context) error {
	text, err := os.ReadFile(t.site.ConfigPath())
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.site.ConfigPath(), bytes.Replace(text, []byte(`mode = "shadow"`), []byte(`mode = "enforce"`), 1), 0o644); err != nil {
		return err
	}
	t.print(`sed -i 's/mode = "shadow"/mode = "enforce"/' /etc/gresize/gresize.toml`, "")
	t.print("systemctl reload gresized", "")
	if err := t.site.ReloadDaemon(); err != nil {
		return err
	}
	if err := t.until(ctx, "the configuration to be read", func() (bool, error) {
		log, err := t.site.DaemonLog()
		return strings.Contains(log, "configuration read again"), err
	}); err != nil {
		return err
	}
	t.say("The same jobs again, twice each, and one that needs what it asks for:")
	names := []string{"small", "medium", "small again", "medium again", "large"}
	for _, name := range names {
		script, _, _ := strings.Cut(name, " ")
		if err := t.sbatch(ctx, name, script+".sh"); err != nil {
			return err
		}
	}
	for _, name := range names {
		job, err := t.ends(ctx, name, "COMPLETED")
		if err != nil {
			return err
		}
		want := "gpu1"
		if name == "large" {
			want = "gpu2"
		}
		if err := t.claim(job["NodeList"] == want, "%s ran to its end on %s", name, job["NodeList"]); err != nil {
			return err
		}
	}
	out, err := t.gresize(ctx, "log", "--since", "1d", "--limit", "5")
	if err != nil {
		return err
	}
	if err := t.claim(strings.Count(out, " rewrite ") == 4 && strings.Count(out, " keep ") == 1, "four requests were changed, one was right"); err != nil {
		return err
	}
	out, err = t.gresize(ctx, "explain", t.ids["small"])
	if err != nil {
		return err
	}
	if err := t.claim(strings.Contains(out, "cache"), "the probe of the shadow week answered for it: its files are unchanged, nothing was run again"); err != nil {
		return err
	}
	return t.until(ctx, "the Epilogs' reports", func() (bool, error) {
		sum, err := t.sum(ctx)
		return sum.Actuals.Known == 7, err
	})
}
