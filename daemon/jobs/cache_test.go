package jobs

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
)

// withCache is a bench with a way of answering from earlier jobs.
func withCache(t *testing.T, mode Cache) *bench {
	b := newBench(t, Shadow, time.Minute)
	s := *b.manager.settings()
	s.Cache = mode
	b.manager.Configure(s)
	return b
}

// probed plays a job whose probe leaves a bundle and the files that it read.
func (b *bench) probed(n int) {
	b.t.Helper()
	b.until("a probe to be asked for", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) >= n })
	p := b.slurm.asked[n-1]
	if err := b.manager.ProbeInputs(p.Name, p.Key, 3, []byte("list")); err != nil {
		b.t.Fatal(err)
	}
	b.report(n)
}

func TestSecondSubmissionIsAnsweredWithoutARun(t *testing.T) {
	b := withCache(t, CacheVerify)
	first, token := b.submit(sample())
	b.probed(1)
	b.ends(token, StateShadowed, decision.CodeSmaller)

	_, again := b.submit(sample())
	b.until("a second probe", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) >= 2 })
	p := b.slurm.asked[1]
	job, err := b.manager.ProbeJob(p.Name, p.Key)
	if err != nil || string(job.Inputs) != "list" || job.InputsOf == 0 || !job.RecordInputs {
		t.Fatalf("%+v %v", job, err)
	}
	for _, row := range []int64{0, job.InputsOf + 1} {
		if err := b.manager.ProbeUnchanged(p.Name, p.Key, row); err == nil {
			t.Errorf("row %d was taken", row)
		}
	}
	if err := b.manager.ProbeUnchanged(p.Name, p.Key, job.InputsOf); err != nil {
		t.Fatal(err)
	}
	story := b.ends(again, StateShadowed, decision.CodeSmaller)
	var said string
	for _, e := range story.Events {
		if e.Code == decision.CodeFromCache {
			said = e.Detail
		}
	}
	if want := "answered from cache of job "; !strings.Contains(said, want) || len(story.Estimates) != 1 || first == 0 {
		t.Errorf("%q, %d estimates", said, len(story.Estimates))
	}

	// Another user, other arguments, another environment: nothing is taken over.
	for name, change := range map[string]func() string{
		"user": func() string { r := sample(); r.UserID = 1002; _, token := b.submit(r); return token },
		"arguments": func() string {
			r := sample()
			r.Argv = []string{"/w/job.sh", "y"}
			_, token := b.submit(r)
			return token
		},
		"environment": func() string {
			r := sample()
			r.Environment = []string{"CUDA_MODULE_LOADING=EAGER"}
			_, token := b.submit(r)
			return token
		},
	} {
		n := len(b.slurm.asked)
		token := change()
		b.until("a probe of another "+name, func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) > n })
		p := b.slurm.asked[n]
		if job, err := b.manager.ProbeJob(p.Name, p.Key); err != nil || job.Inputs != nil {
			t.Errorf("another %s: %+v %v", name, job, err)
		}
		if err := b.manager.ProbeUnchanged(p.Name, p.Key, job.InputsOf); err == nil {
			t.Errorf("another %s was answered with what is not its own", name)
		}
		b.report(n + 1)
		b.ends(token, StateShadowed, decision.CodeSmaller)
	}
}

func TestScriptSufficesWhereTheSiteSaysSo(t *testing.T) {
	b := withCache(t, CacheScript)
	_, token := b.submit(sample())
	b.report(1)
	b.ends(token, StateShadowed, decision.CodeSmaller)
	_, again := b.submit(sample())
	story := b.ends(again, StateShadowed, decision.CodeSmaller)
	if len(story.Probes) != 0 || len(b.slurm.asked) != 1 {
		t.Errorf("%d probes", len(story.Probes))
	}
	s := *b.manager.settings()
	s.Cache = CacheOff
	b.manager.Configure(s)
	_, off := b.submit(sample())
	b.report(2)
	b.ends(off, StateShadowed, decision.CodeSmaller)
}

func TestAnswersOfAnotherReleaseAreNotTaken(t *testing.T) {
	b := withCache(t, CacheScript)
	b.manager.config.Release, b.manager.config.Estimator = "2", ofRelease("1")
	for n := 1; n <= 2; n++ {
		_, token := b.submit(sample())
		b.report(n)
		b.ends(token, StateShadowed, decision.CodeSmaller)
	}
}

// ofRelease is the estimator of an earlier release.
type ofRelease string

func (r ofRelease) Estimate(ctx context.Context, job estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error) {
	e, err := sevenGiB{}.Estimate(ctx, job, bundle, profile)
	e.Versions.Gresize = string(r)
	return e, err
}
