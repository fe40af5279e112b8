package jobs

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/wire"
)

// TestTriedOf: the first, the middle and the last task are tried.
func TestTriedOf(t *testing.T) {
	for list, want := range map[string]string{"0-15": "{16 0 15 1 [0 7 15]}", "7": "{1 7 7 1 [7]}", "0-1": "{2 0 1 1 [0 1]}", "1,3,5-7": "{5 1 7 1 [1 5 7]}", "0-4000000": "{4000001 0 4000000 1 [0 2000000 4000000]}"} {
		if a, err := triedOf(list); err != nil || fmt.Sprint(*a) != want {
			t.Errorf("%q: %+v %v, want %s", list, a, err, want)
		}
	}
	if a, err := triedOf("3-1"); err == nil {
		t.Errorf("%+v", a)
	}
}

// byTask answers with what each task of an array needs.
type byTask map[string]int64

func (b byTask) Estimate(_ context.Context, _ estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error) {
	bytes, known := b[textOf(bundle)]
	if !known {
		return estimator.NewUnknown("vgpu", profile, estimator.Reason{Code: "script_failed"}), nil
	}
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: profile, Confidence: estimator.Exact, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: bytes, ComfortableBytes: bytes, ComfortableHighBytes: bytes}}}, nil
}

// reportTask plays the n-th probe, which says which task it was told to run.
func (b *bench) reportTask(n int) {
	b.t.Helper()
	b.until("a probe to be asked for", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) >= n })
	b.slurm.mu.Lock()
	p := b.slurm.asked[n-1]
	b.slurm.mu.Unlock()
	job, err := b.manager.ProbeJob(p.Name, p.Key)
	if err != nil || job.Array == nil {
		b.t.Fatalf("%+v %v", job.Array, err)
	}
	if err := b.manager.ProbeBundle(p.Name, p.Key, []byte(fmt.Sprint(job.Array.Task))); err != nil {
		b.t.Fatal(err)
	}
}

func arrayOf(list string) *wire.Request {
	r := sample()
	r.ArrayInx = list
	return r
}

// TestArraysAreJudgedByTheLargestTask: each of the three is tried once, and the whole array is changed in one update.
func TestArraysAreJudgedByTheLargestTask(t *testing.T) {
	for _, c := range []struct {
		name  string
		needs byTask
		state string
		code  string
	}{
		{"all are small", byTask{"0": 2 * gib, "7": 9 * gib, "15": 3 * gib}, StateUpdated, ""},
		{"the middle one is large", byTask{"0": 2 * gib, "7": 40 * gib, "15": 3 * gib}, StateReleased, decision.CodeAlready},
		{"the last one is not known", byTask{"0": 2 * gib, "7": 4 * gib}, StateReleased, decision.CodeConfidence},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, Enforce, time.Minute)
			b.manager.config.Estimator = c.needs
			b.change(func(s *Settings) { s.Arrays = true })
			id, token := b.submit(arrayOf("0-15%4"))
			for n := 1; n <= 3; n++ {
				b.reportTask(n)
			}
			if c.code != "" {
				b.ends(token, c.state, c.code)
				return
			}
			b.until("the update", func() bool { return b.story(token).Job.State == c.state })
			story := b.story(token)
			last := story.Estimates[len(story.Estimates)-1]
			if len(story.Estimates) != 4 || last.Ranks[0].ComfortableBytes != 9*gib || last.Reasons[0].Code != estimator.CodeArrayTasks {
				t.Errorf("%d estimates, the last %+v", len(story.Estimates), last)
			}
			// One task has begun and has a record of its own.
			b.slurm.change(id, func(j *client.Job) { j.ArrayID = id })
			j, err := b.slurm.Job(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			j.State, j.NodeList = "RUNNING", "gpu1"
			b.slurm.add(j)
			b.ends(token, StateVerified, decision.CodeRunning)
			if want := []string{fmt.Sprintf("1001 %d [{Features gpu12g}]", id)}; !slices.Equal(b.slurm.updates, want) {
				t.Errorf("updates %q, want %q", b.slurm.updates, want)
			}
		})
	}
}

// TestAnArrayGoesOnAfterARestart: the tasks that were tried are not tried again.
func TestAnArrayGoesOnAfterARestart(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.manager.config.Estimator = byTask{"0": 2 * gib, "1": 3 * gib, "2": 4 * gib}
	b.change(func(s *Settings) { s.Arrays = true })
	_, token := b.submit(arrayOf("0-2"))
	b.reportTask(1)
	b.until("the second probe", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) == 2 })
	settings := *b.manager.settings()
	b.manager.Close()
	config := b.manager.config
	config.Settings = settings
	b.manager = New(config)
	if err := b.manager.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.reportTask(2)
	b.reportTask(3)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	if n := len(b.slurm.asked); n != 3 {
		t.Errorf("%d probes for three tasks", n)
	}
}

// TestAnArrayWhoseTasksBegan: in shadow mode nothing is held, so tasks have records of their own by the time that the daemon looks.
func TestAnArrayWhoseTasksBegan(t *testing.T) {
	b := newBench(t, Shadow, time.Minute)
	b.manager.config.Estimator = byTask{"0": 2 * gib, "1": 3 * gib}
	b.change(func(s *Settings) { s.Arrays = true })
	b.slurm.mu.Lock()
	reply := b.manager.Answer(arrayOf("0-1"))
	b.slurm.mu.Unlock()
	whole := client.Job{Name: "train", UserID: 1001, State: "PENDING", AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(sample())}
	id := b.slurm.nextID + 1
	whole.ArrayID = id
	task := whole
	task.State = "RUNNING"
	b.slurm.mu.Lock()
	for i, j := range []client.Job{whole, task} {
		b.slurm.nextID++
		j.ID = id + uint32(i)
		b.slurm.jobs[j.ID] = j
	}
	b.slurm.mu.Unlock()
	b.reportTask(1)
	b.reportTask(2)
	if story := b.ends(reply.Token, StateShadowed, decision.CodeSmaller); story.Job.SlurmJobID != id {
		t.Errorf("found job %d, want %d", story.Job.SlurmJobID, id)
	}
}

// TestArraysAreNotAnsweredFromTheCache: the log knows the files of one probe, and an array has several.
func TestArraysAreNotAnsweredFromTheCache(t *testing.T) {
	b := newBench(t, Shadow, time.Minute)
	b.manager.config.Estimator = byTask{"0": 2 * gib, "1": 3 * gib}
	b.change(func(s *Settings) { s.Arrays, s.Cache = true, CacheScript })
	for n := range 2 {
		_, token := b.submit(arrayOf("0-1"))
		b.reportTask(2*n + 1)
		b.reportTask(2*n + 2)
		b.ends(token, StateShadowed, decision.CodeSmaller)
	}
}

// TestArraysAreLeftAloneWhereTheSiteWantsThat keeps jobs.arrays = false.
func TestArraysAreLeftAloneWhereTheSiteWantsThat(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	if reply := b.manager.Answer(arrayOf("0-1")); reply.Verdict != wire.VerdictPass {
		t.Errorf("%+v", reply)
	}
}
