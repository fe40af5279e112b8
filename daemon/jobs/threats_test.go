package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/client"
)

// asked waits for the n-th probe and returns what was asked for.
func (b *bench) asked(n int) launch.Request {
	b.t.Helper()
	b.until("a probe to be asked for", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) >= n })
	b.slurm.mu.Lock()
	defer b.slurm.mu.Unlock()
	return b.slurm.asked[n-1]
}

// TestAKeyIsGoodForItsOwnProbeOnly: whoever holds the key of one probe, as every owner of a job does, can neither read the job of another one nor report for it.
func TestAKeyIsGoodForItsOwnProbeOnly(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	_, victim := b.submit(sample())
	first := b.asked(1)
	stranger := sample()
	stranger.UserID, stranger.Script = 2002, "#!/bin/sh\nstranger\n"
	stranger.ScriptTotal = uint64(len(stranger.Script))
	b.submit(stranger)
	second := b.asked(2)
	if _, err := b.manager.ProbeJob(first.Name, second.Key); !errors.Is(err, ErrUnknownProbe) {
		t.Errorf("the job was told: %v", err)
	}
	for what, report := range map[string]func() error{
		"a bundle": func() error { return b.manager.ProbeBundle(first.Name, second.Key, []byte("bundle")) },
		"a failure": func() error {
			return b.manager.ProbeFailure(first.Name, second.Key, estimator.Reason{Code: "script_failed"})
		},
		"a list of files": func() error { return b.manager.ProbeInputs(first.Name, second.Key, 1, []byte("x")) },
		"no change":       func() error { return b.manager.ProbeUnchanged(first.Name, second.Key, 1) },
	} {
		if err := report(); !errors.Is(err, ErrUnknownProbe) {
			t.Errorf("%s was taken: %v", what, err)
		}
	}
	if state := b.story(victim).Job.State; state != StateProbing {
		t.Errorf("the job is %s", state)
	}
}

// TestAReportIsTakenOnce sends a report again, and many at once: one is taken, and the bundle that is kept is the one whose hash is recorded.
func TestAReportIsTakenOnce(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	_, token := b.submit(sample())
	p := b.asked(1)
	var wait sync.WaitGroup
	results := make(chan error, 32)
	for i := range cap(results) {
		bundle := fmt.Appendf(nil, "bundle %d", i)
		if i == 0 { // takes so long to be written that the others come meanwhile
			bundle = make([]byte, 16<<20)
		}
		wait.Go(func() { results <- b.manager.ProbeBundle(p.Name, p.Key, bundle) })
	}
	wait.Wait()
	close(results)
	taken := 0
	for err := range results {
		switch {
		case err == nil:
			taken++
		case !errors.Is(err, ErrUnknownProbe):
			t.Error(err)
		}
	}
	if taken != 1 {
		t.Errorf("%d of %d reports were taken", taken, cap(results))
	}
	kept, err := b.manager.config.Spool.Bundle(token)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	b.until("the report to be recorded", func() bool { s := b.story(token); return len(s.Probes) == 1 && s.Probes[0].BundleSHA256 != "" })
	if sum := sha256.Sum256(kept); err == nil && hex.EncodeToString(sum[:]) != b.story(token).Probes[0].BundleSHA256 {
		t.Errorf("the bundle %q is kept, and the hash of another one is recorded", kept)
	}
	for name, again := range map[string]func() error{
		"the bundle":     func() error { return b.manager.ProbeBundle(p.Name, p.Key, []byte("bundle")) },
		"a failure":      func() error { return b.manager.ProbeFailure(p.Name, p.Key, estimator.Reason{Code: "script_failed"}) },
		"the job's page": func() error { _, err := b.manager.ProbeJob(p.Name, p.Key); return err },
	} {
		if err := again(); !errors.Is(err, ErrUnknownProbe) {
			t.Errorf("%s, with a key that was used: %v", name, err)
		}
	}
}

// TestAnotherUsersAnswerIsNotOffered: one user's probe leaves an answer, and another submits the very same job. He is probed, and cannot name the other's answer either.
func TestAnotherUsersAnswerIsNotOffered(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	settings := *b.manager.settings()
	settings.Cache = CacheVerify
	b.manager.Configure(settings)
	id, token := b.submit(sample())
	p := b.asked(1)
	if err := b.manager.ProbeInputs(p.Name, p.Key, 1, []byte("files")); err != nil {
		t.Fatal(err)
	}
	b.report(1)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	b.slurm.change(id, func(j *client.Job) { j.State, j.NodeList = "RUNNING", "gpu1" })
	b.ends(token, StateVerified, decision.CodeRunning)
	row := b.story(token).Job.ID

	other := sample()
	other.UserID = 2002
	b.submit(other)
	q := b.asked(2)
	job, err := b.manager.ProbeJob(q.Name, q.Key)
	if err != nil || job.InputsOf != 0 || job.Inputs != nil {
		t.Errorf("another user's probe is told of row %d, %q: %v", job.InputsOf, job.Inputs, err)
	}
	if err := b.manager.ProbeUnchanged(q.Name, q.Key, row); !errors.Is(err, ErrUnknownProbe) {
		t.Errorf("another user's answer was taken: %v", err)
	}
	// The owner himself is offered it.
	b.submit(sample())
	r := b.asked(3)
	if job, err := b.manager.ProbeJob(r.Name, r.Key); err != nil || job.InputsOf != row {
		t.Errorf("the owner is told of row %d, want %d: %v", job.InputsOf, row, err)
	}
}

// liar answers with whatever a forged bundle made an estimator believe.
type liar struct{ bytes int64 }

func (l liar) Estimate(_ context.Context, _ estimator.Job, _ *os.File, profile string) (estimator.Estimate, error) {
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: profile, Confidence: estimator.Exact, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: l.bytes, ComfortableBytes: l.bytes, ComfortableHighBytes: l.bytes}}}, nil
}

// TestALyingProbeGainsNothing: a probe says what its owner likes. With too little he gets a smaller GPU, which he may ask for any day, and loses the job to it; with too
// much he keeps what he asked for; with nonsense his job is left alone.
func TestALyingProbeGainsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		bytes   int64
		asked   string
		updates string
		state   string
		code    string
	}{
		"a byte":                   {1, "gpu80g", "[{Features gpu12g}]", StateVerified, decision.CodeWaiting},
		"more than was asked for":  {60 * gib, "gpu12g", "[]", StateReleased, decision.CodeNeedsMore},
		"more than there is":       {500 * gib, "gpu12g", "[]", StateReleased, ""},
		"as much as was asked for": {60 * gib, "gpu80g", "[]", StateReleased, ""},
		"less than nothing":        {-5 * gib, "gpu80g", "[]", StateReleased, ""},
		"beyond all numbers":       {math.MaxInt64, "gpu80g", "[]", StateReleased, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Enforce, time.Minute)
			b.manager.config.Estimator = liar{c.bytes}
			r := sample()
			r.Features = c.asked
			id, token := b.submit(r)
			b.report(1)
			b.until("the story to end", func() bool { return b.story(token).Job.Finished })
			story := b.story(token)
			last := story.Events[len(story.Events)-1]
			b.slurm.mu.Lock()
			updates := append([]string(nil), b.slurm.updates...)
			b.slurm.mu.Unlock()
			if want := fmt.Sprintf("1001 %d %s", id, c.updates); len(updates) != 1 || updates[0] != want || last.State != c.state || c.code != "" && last.Code != c.code {
				t.Errorf("updates %q, want %q; the story ends as %s %s (%s), want %s %s", updates, want, last.State, last.Code, last.Detail, c.state, c.code)
			}
		})
	}
}

// TestSecretsAreNowhere submits a job with a secret in its environment, its arguments and its script, lets everything go wrong that has words for it, and looks for the secret in
// every file that is left, in the log of the daemon and in the answers to strangers.
func TestSecretsAreNowhere(t *testing.T) {
	const secret = "hunter2-hunter2-hunter2"
	for name, c := range map[string]struct {
		launcher func(launch.Request) (uint32, error)
		report   func(*bench, launch.Request) error
	}{
		"all is well": {nil, func(b *bench, p launch.Request) error { return b.manager.ProbeBundle(p.Name, p.Key, []byte("bundle")) }},
		"no bundle": {nil, func(b *bench, p launch.Request) error {
			return b.manager.ProbeBundle(p.Name, p.Key, []byte("nonsense"))
		}},
		"a failure": {nil, func(b *bench, p launch.Request) error {
			return b.manager.ProbeFailure(p.Name, p.Key, estimator.Reason{Code: "script_failed", Detail: "exit 1"})
		}},
		"the launcher refuses": {func(launch.Request) (uint32, error) { return 0, &launch.RefusedError{Detail: "no"} }, nil},
		"a wrong key": {nil, func(b *bench, p launch.Request) error {
			if err := b.manager.ProbeBundle(p.Name, secret, []byte("bundle")); err == nil || strings.Contains(err.Error(), secret) {
				return fmt.Errorf("a stranger is told %v", err)
			}
			return b.manager.ProbeBundle(p.Name, p.Key, []byte("bundle"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var lines lockedBuffer
			b := newBench(t, Enforce, time.Minute)
			b.manager.config.Logger = slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
			b.slurm.submit = c.launcher
			r := sample()
			r.Environment = []string{"API_TOKEN=" + secret, "PATH=/bin"}
			r.Argv = []string{"/w/job.sh", "--password", secret}
			r.Script = "#!/bin/sh\nexport KEY=" + secret + "\n"
			r.EnvironmentTotal, r.ArgvTotal, r.ScriptTotal = 2, 3, uint64(len(r.Script))
			id, token := b.submit(r)
			if c.report != nil {
				if err := c.report(b, b.asked(1)); err != nil {
					t.Fatal(err)
				}
			}
			b.until("a decision", func() bool { s := b.story(token).Job; return s.Finished || s.State == StateUpdated })
			b.slurm.change(id, func(j *client.Job) { j.State, j.NodeList = "RUNNING", "gpu1" })
			b.until("the story to end", func() bool { return b.story(token).Job.Finished })
			b.until("the job's script and environment to be gone", func() bool { _, err := b.manager.config.Spool.Job(token); return err != nil })
			if strings.Contains(lines.String(), secret) || c.launcher == nil && strings.Contains(lines.String(), b.asked(1).Key) {
				t.Errorf("the daemon's log holds a secret:\n%s", lines.String())
			}
			if text := fmt.Sprintf("%+v", b.story(token)); strings.Contains(text, secret) {
				t.Errorf("the story holds the secret: %s", text)
			}
			files := 0
			err := filepath.WalkDir(b.dir, func(path string, entry os.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() {
					return err
				}
				data, err := os.ReadFile(path)
				if files++; bytes.Contains(data, []byte(secret)) {
					t.Errorf("%s holds the secret", path)
				}
				return err
			})
			if err != nil || files == 0 {
				t.Errorf("%d files were looked at: %v", files, err)
			}
		})
	}
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestAHalfWrittenReportIsNotTaken: a bundle of this life is on disk a moment before its probe is told so, and looks of the daemon may fall into that moment.
func TestAHalfWrittenReportIsNotTaken(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	_, token := b.submit(sample())
	p := b.asked(1)
	if err := b.manager.config.Spool.PutBundle(token, []byte("bundle")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		b.manager.poke()
		time.Sleep(5 * time.Millisecond)
	}
	if err := b.manager.ProbeBundle(p.Name, p.Key, []byte("bundle")); err != nil {
		t.Errorf("the probe is told: %v", err)
	}
	b.until("the report to be recorded", func() bool { s := b.story(token); return len(s.Probes) == 1 && s.Probes[0].BundleSHA256 != "" })
}
