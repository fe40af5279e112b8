package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

const gib = int64(1) << 30

// cluster is a Slurm in memory, with a fault for each call where a test wants one.
type cluster struct {
	mu      sync.Mutex
	jobs    map[uint32]client.Job
	nextID  uint32
	looks   int
	updates []string
	// down makes every call fail; lostAnswers are updates that are carried out and then fail; refuse makes updates be refused.
	down        bool
	lostAnswers int
	refuse      int
	cancelled   []uint32
	// submit is what becomes of a probe.
	submit func(launch.Request) (uint32, error)
	asked  []launch.Request
}

var errDown = errors.New("no controller")

func newCluster() *cluster { return &cluster{jobs: map[uint32]client.Job{}, nextID: 100} }

func (c *cluster) add(j client.Job) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	j.ID = c.nextID
	c.jobs[j.ID] = j
	return j.ID
}

func (c *cluster) change(id uint32, do func(*client.Job)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j := c.jobs[id]
	do(&j)
	c.jobs[id] = j
}

func (c *cluster) EachJob(_ context.Context, each func(client.Job)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	if c.down {
		return errDown
	}
	for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
		each(c.jobs[id])
	}
	return nil
}

func (c *cluster) Job(_ context.Context, id uint32) (client.Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return client.Job{}, errDown
	}
	j, ok := c.jobs[id]
	if !ok {
		return client.Job{}, client.ErrNoJob
	}
	return j, nil
}

func (c *cluster) Update(_ context.Context, owner, id uint32, set []request.Assignment, start client.Start) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return errDown
	}
	if c.refuse > 0 {
		c.refuse--
		return &client.CommandError{Command: "scontrol", ExitCode: 1, Stderr: "not today"}
	}
	j := c.jobs[id]
	c.updates = append(c.updates, fmt.Sprintf("%d %d %v", owner, id, set))
	for _, a := range set {
		switch a.Key {
		case "Features":
			j.Request.Features = a.Value
		case "TresPerNode":
			j.Request.TresPerNode = a.Value
		}
	}
	j.EligibleAt, j.Reason = time.Now().Add(-time.Second), "Resources"
	if start.At.After(time.Now()) {
		j.EligibleAt = start.At
	}
	c.jobs[id] = j
	if c.lostAnswers > 0 {
		c.lostAnswers--
		return context.DeadlineExceeded
	}
	return nil
}

func (c *cluster) Cancel(_ context.Context, id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled = append(c.cancelled, id)
	return nil
}

func (c *cluster) Submit(_ context.Context, r launch.Request) (uint32, error) {
	c.mu.Lock()
	c.asked = append(c.asked, r)
	c.mu.Unlock()
	if c.submit != nil {
		return c.submit(r)
	}
	return c.add(client.Job{Name: r.Name, UserID: r.UID, State: "RUNNING"}), nil
}

// textOf is what a bundle of these tests holds.
func textOf(bundle *os.File) string {
	data, err := io.ReadAll(bundle)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// bundleOf is a bundle of these tests.
func bundleOf(t testing.TB) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, []byte("bundle"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// sevenGiB answers for every bundle.
type sevenGiB struct{}

func (sevenGiB) Estimate(_ context.Context, _ estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error) {
	if textOf(bundle) != "bundle" {
		return estimator.Estimate{}, errors.New("no bundle")
	}
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: profile, Confidence: estimator.Exact, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: 7 * gib, ComfortableBytes: 7 * gib, ComfortableHighBytes: 7 * gib}}}, nil
}

type bench struct {
	t       testing.TB
	slurm   *cluster
	manager *Manager
	log     *decisionlog.Log
	hold    time.Duration
	dir     string
}

func newBench(t testing.TB, mode Mode, hold time.Duration) *bench {
	t.Helper()
	return newBenchThatLooks(t, mode, hold, 10*time.Millisecond)
}

// newBenchThatLooks looks at the queue as often as it is told.
func newBenchThatLooks(t testing.TB, mode Mode, hold, poll time.Duration) *bench {
	t.Helper()
	dir := t.TempDir()
	log, err := decisionlog.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := spool.Open(filepath.Join(dir, "spool"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, slurm: newCluster(), log: log, hold: hold, dir: dir}
	b.manager = New(Config{Poll: poll, LaunchSettle: 100 * time.Millisecond, Settings: Settings{Mode: mode, Hold: hold, Watch: 100 * time.Millisecond,
		Probe: ProbeOptions{Partition: "cpu", URL: "http://127.0.0.1:1", TimeLimitMinutes: 5, CPUs: 1, MemoryMiB: 100, Steps: 4, Budget: time.Minute, MaxRunning: 2},
		Rules: policy.Rules{ActOn: []estimator.Confidence{estimator.Exact}, Own: map[string]bool{"gpu12g": true, "gpu80g": true},
			Rows: []policy.Row{{FitsBytes: 12 * gib, Target: request.Target{Constraint: "gpu12g"}}, {FitsBytes: 80 * gib, Target: request.Target{Constraint: "gpu80g"}}}},
		ProfileOf: func(request.Request) string { return "a100-80" }}, Version: release.Version{Major: 22, Minor: 5, Micro: 8},
		Log: log, Spool: files, Slurm: b.slurm, Launcher: b.slurm, Estimator: sevenGiB{}, EstimatorName: "named_first", Logger: slog.New(slog.DiscardHandler)})
	if err := b.manager.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.manager.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func sample() *wire.Request {
	return &wire.Request{SlurmVersion: 0x160508, UserID: 1001, GroupID: 100, Name: "train", WorkDir: "/w", TresPerNode: "gres:gpu:1", Features: "gpu80g",
		Script: "#!/bin/sh\n", ScriptTotal: 10, Argv: []string{"/w/job.sh", "x"}, ArgvTotal: 2, Environment: []string{"SECRET=1"}, EnvironmentTotal: 1}
}

// submit asks the manager as the plugin does, and puts the job into the queue as slurmctld does.
func (b *bench) submit(r *wire.Request) (uint32, string) {
	b.t.Helper()
	reply := b.manager.Answer(r)
	if err := reply.Validate(); err != nil || reply.Verdict != wire.VerdictHold {
		b.t.Fatalf("reply %+v %v", reply, err)
	}
	j := client.Job{Name: r.Name, UserID: r.UserID, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(time.Duration(reply.HoldSeconds) * time.Second),
		AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)}
	if reply.HoldSeconds == 0 {
		j.State, j.Reason, j.EligibleAt = "RUNNING", "None", time.Now()
	}
	return b.slurm.add(j), reply.Token
}

// report plays the probe that was asked for last.
func (b *bench) report(n int) {
	b.t.Helper()
	b.until("a probe to be asked for", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) >= n })
	b.slurm.mu.Lock()
	p := b.slurm.asked[n-1]
	b.slurm.mu.Unlock()
	if err := b.manager.ProbeBundle(p.Name, p.Key, []byte("bundle")); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) until(what string, done func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(8 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited too long for %s", what)
		}
	}
}

func (b *bench) story(token string) decisionlog.Story {
	story, err := b.log.StoryByToken(context.Background(), token)
	if err != nil && !errors.Is(err, decisionlog.ErrNotFound) {
		b.t.Fatal(err)
	}
	return story
}

// ends waits for the end of a job and checks its last event.
func (b *bench) ends(token, state, code string) decisionlog.Story {
	b.t.Helper()
	b.until("the story to end", func() bool { return b.story(token).Job.Finished })
	story := b.story(token)
	last := story.Events[len(story.Events)-1]
	if last.State != state || last.Code != code {
		b.t.Errorf("the story ends as %s %q (%s), want %s %q", last.State, last.Code, last.Detail, state, code)
	}
	return story
}

func TestUpdateWhoseAnswerIsLostIsNotSentTwice(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.slurm.lostAnswers = 1
	id, token := b.submit(sample())
	b.report(1)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	b.slurm.change(id, func(j *client.Job) { j.State, j.NodeList = "RUNNING", "gpu1" })
	b.ends(token, StateVerified, decision.CodeRunning)
	if want := []string{fmt.Sprintf("1001 %d [{Features gpu12g}]", id)}; !slices.Equal(b.slurm.updates, want) {
		t.Errorf("updates %q, want %q", b.slurm.updates, want)
	}
}

func TestRefusedUpdateReleasesTheJob(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.slurm.refuse = maxTries
	id, token := b.submit(sample())
	b.report(1)
	b.ends(token, StateReleased, decision.CodeSmaller)
	if want := []string{fmt.Sprintf("1001 %d []", id)}; !slices.Equal(b.slurm.updates, want) {
		t.Errorf("updates %q, want %q", b.slurm.updates, want)
	}
}

func TestControllerAwayForTheWholeHold(t *testing.T) {
	b := newBench(t, Enforce, 2*time.Second)
	id, token := b.submit(sample())
	b.until("the job to be found", func() bool { return b.story(token).Job.SlurmJobID != 0 })
	b.slurm.mu.Lock()
	b.slurm.down = true
	b.slurm.mu.Unlock()
	time.Sleep(2100 * time.Millisecond)
	b.slurm.mu.Lock()
	b.slurm.down = false
	b.slurm.mu.Unlock()
	b.ends(token, StateAbandoned, decision.CodeHoldPassed)
	if len(b.slurm.updates) != 0 {
		t.Errorf("job %d was updated after its hold: %q", id, b.slurm.updates)
	}
}

func TestProbeThatWasNeverSubmittedIsAskedForOnceMore(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	first := true
	b.slurm.submit = func(r launch.Request) (uint32, error) {
		if first {
			first = false
			return 0, context.DeadlineExceeded
		}
		return b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "RUNNING"}), nil
	}
	_, token := b.submit(sample())
	b.report(2)
	b.until("the update", func() bool { return b.story(token).Job.State == StateVerified })
	old := b.slurm.asked[0]
	if err := b.manager.ProbeBundle(old.Name, old.Key, []byte("bundle")); !errors.Is(err, ErrUnknownProbe) {
		t.Errorf("the key of the first probe still opens: %v", err)
	}
}

// TestARefusedProbeIsAskedForOnceMore: what sbatch says while slurmctld ends or starts is no word on the job. It is asked again, but not before slurmctld answers.
func TestARefusedProbeIsAskedForOnceMore(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	refused := &launch.RefusedError{Detail: "sbatch: exit status 1: Unable to contact slurm controller (connect failure)"}
	first := true
	b.slurm.submit = func(r launch.Request) (uint32, error) {
		if first {
			first = false
			b.slurm.mu.Lock()
			b.slurm.down = true
			b.slurm.mu.Unlock()
			return 0, refused
		}
		return b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "RUNNING"}), nil
	}
	_, token := b.submit(sample())
	b.asked(1)
	time.Sleep(500 * time.Millisecond)
	b.slurm.mu.Lock()
	asked, down := len(b.slurm.asked), b.slurm.down
	b.slurm.down = false
	b.slurm.mu.Unlock()
	if asked != 1 || !down {
		t.Errorf("asked %d times while slurmctld was away", asked)
	}
	b.report(2)
	b.until("the update", func() bool { return b.story(token).Job.State == StateVerified })
	if b.manager.OpenProbes() != 0 {
		t.Error("a probe keeps its place")
	}

	// Said twice, it is believed.
	b.slurm.submit = func(launch.Request) (uint32, error) { return 0, refused }
	_, token = b.submit(sample())
	story := b.ends(token, StateReleased, estimator.CodeProbeRefused)
	if len(story.Probes) != 2 || !strings.Contains(story.Decisions[0].Reason, "connect failure") || b.manager.OpenProbes() != 0 {
		t.Errorf("%d probes, %+v, %d open", len(story.Probes), story.Decisions, b.manager.OpenProbes())
	}
}

// TestAProbeThatLostItsPlaceIsAskedFor: where there is no place any more for a probe that is to be asked for once more, its job waits for the next one and not for the end of its hold.
func TestAProbeThatLostItsPlaceIsAskedFor(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	places := func(n int) {
		settings := *b.manager.settings()
		settings.Probe.MaxRunning = n
		b.manager.Configure(settings)
	}
	first := true
	b.slurm.submit = func(r launch.Request) (uint32, error) {
		if first {
			first = false
			places(0)
			return 0, &launch.RefusedError{Detail: "not now"}
		}
		return b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "RUNNING"}), nil
	}
	_, token := b.submit(sample())
	b.asked(1)
	b.until("the place to be given up", func() bool { return b.manager.OpenProbes() == 0 })
	places(1)
	b.report(2)
	b.until("the update", func() bool { s := b.story(token).Job.State; return s == StateUpdated || s == StateVerified })
}

func TestForgedRecordsChangeNothing(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	r := sample()
	reply := b.manager.Answer(r)
	held := client.Job{Name: "train", UserID: 1001, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(time.Minute), AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)}
	stranger := held
	stranger.UserID = 2002
	b.slurm.add(stranger)
	made := held
	made.Ambiguous = true // its own record shows it to be made up
	b.slurm.add(made)
	id := b.slurm.add(held)
	b.until("the job to be found", func() bool { return b.story(reply.Token).Job.SlurmJobID != 0 })
	if got := b.story(reply.Token).Job.SlurmJobID; got != id {
		t.Errorf("found job %d, want %d", got, id)
	}
}

func TestOnlyTheProbeItselfIsCancelled(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	victim := b.slurm.add(client.Job{Name: "important", UserID: 2002, State: "RUNNING"})
	b.slurm.submit = func(launch.Request) (uint32, error) { return victim, nil }
	id, token := b.submit(sample())
	b.until("the probe", func() bool { return b.story(token).Job.State == StateProbing })
	b.slurm.change(id, func(j *client.Job) { j.State = "CANCELLED" })
	b.ends(token, StateAbandoned, decision.CodeOwnerCancelled)
	if len(b.slurm.cancelled) != 0 {
		t.Errorf("cancelled %v", b.slurm.cancelled)
	}
}

func TestShadowNeverTouchesTheQueue(t *testing.T) {
	b := newBench(t, Shadow, time.Minute)
	_, token := b.submit(sample())
	b.report(1)
	story := b.ends(token, StateShadowed, decision.CodeSmaller)
	if len(b.slurm.updates) != 0 || story.Decisions[0].Verdict != decision.Rewrite {
		t.Errorf("%q %+v", b.slurm.updates, story.Decisions)
	}
}

func TestOneLookHoweverManyAreHeld(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	for range 100 {
		b.submit(sample())
	}
	begin := time.Now()
	b.slurm.mu.Lock()
	before := b.slurm.looks
	b.slurm.mu.Unlock()
	time.Sleep(300 * time.Millisecond)
	b.slurm.mu.Lock()
	looks, asked := b.slurm.looks-before, len(b.slurm.asked)
	b.slurm.mu.Unlock()
	if most := int(time.Since(begin)/(10*time.Millisecond)) + 2; looks > most {
		t.Errorf("%d looks in %s", looks, time.Since(begin))
	}
	if asked > 2 {
		t.Errorf("%d probes at once, at most 2 are allowed", asked)
	}
}

func TestSecretsStayOutOfTheLog(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	id, token := b.submit(sample())
	b.report(1)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	b.slurm.change(id, func(j *client.Job) { j.State = "RUNNING" })
	story := b.ends(token, StateVerified, decision.CodeRunning)
	sum := sha256.Sum256([]byte(b.slurm.asked[0].Key))
	if text := fmt.Sprintf("%+v", story); strings.Contains(text, "SECRET") || strings.Contains(text, b.slurm.asked[0].Key) || story.Probes[0].KeySHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the story holds a secret: %s", text)
	}
	b.until("the job's environment to be gone with its story", func() bool {
		_, err := b.manager.config.Spool.Job(token)
		return err != nil
	})
}

func TestIneligible(t *testing.T) {
	one, two, zero := uint32(1), uint32(2), uint32(0)
	for _, c := range []struct {
		code   string
		change func(*wire.Request)
	}{
		{"", func(*wire.Request) {}}, {"", func(r *wire.Request) { r.MinNodes, r.NumTasks = &one, &two }}, {"", func(r *wire.Request) { r.Name = "lr=0.1 run" }},
		{wire.SkipNoGPU, func(r *wire.Request) { r.TresPerNode = "" }}, {wire.SkipNoScript, func(r *wire.Request) { r.Script, r.ScriptTotal = "", 0 }},
		{"", func(r *wire.Request) { r.TresPerNode = "gres:gpu:2" }}, {request.CodeSeveral, func(r *wire.Request) { r.TresPerJob = "gres:gpu:1" }},
		{request.CodeSeveral, func(r *wire.Request) { r.TresPerNode = "gres:gpu:17" }}, {request.CodeSeveral, func(r *wire.Request) { r.TresPerNode = "gres:gpu:0" }},
		{request.CodeSeveral, func(r *wire.Request) { r.TresPerNode, r.NumTasks = "gres:gpu:4", &two }},
		{"", func(r *wire.Request) { r.TresPerNode, r.NumTasks, r.MaxNodes = "gres:gpu:4", &two, &one }},
		{request.CodeSeveral, func(r *wire.Request) { r.TresPerNode, r.TresPerJob = "", "gres:gpu:4" }},
		{"", func(r *wire.Request) { r.TresPerNode, r.TresPerJob, r.MaxNodes = "", "gres:gpu:4", &one }},
		{request.CodeSeveral, func(r *wire.Request) { r.TresPerNode, r.TresPerTask, r.MaxNodes = "", "gres:gpu:2", &one }},
		{request.CodeSeveral, func(r *wire.Request) { r.MinNodes = &two }}, {request.CodeSharesGPU, func(r *wire.Request) { r.TresPerNode = "gres:shard:2" }},
		{request.CodeSeveral, func(r *wire.Request) { r.TresPerNode, r.TresPerTask, r.NumTasks = "", "gres:gpu:1", &two }},
		{request.CodeSeveral, func(r *wire.Request) { r.TresPerNode, r.TresPerSocket = "", "gres:gpu:1" }},
		{request.CodeSpelling, func(r *wire.Request) { r.TresPerNode = "gres:gpu:a:b:c" }}, {request.CodeSpelling, func(r *wire.Request) { r.NtasksPerTres = &one }},
		{"", func(r *wire.Request) { r.ArrayInx = "0-3" }}, {decision.CodeArray, func(r *wire.Request) { r.ArrayInx = "0-3x" }}, {decision.CodeRoot, func(r *wire.Request) { r.UserID = 0 }}, {decision.CodeCut, func(r *wire.Request) { r.ScriptTotal = 99 }},
		{wire.SkipOnHold, func(r *wire.Request) { r.Priority = &zero }}, {wire.SkipDeadline, func(r *wire.Request) { r.Deadline = 5 }}, {decision.CodeDependency, func(r *wire.Request) { r.Dependency = "singleton" }},
		{decision.CodePrefer, func(r *wire.Request) { r.Prefer = "ib" }}, {decision.CodeReservation, func(r *wire.Request) { r.Reservation = "x" }}, {decision.CodeNodesNamed, func(r *wire.Request) { r.ReqNodes = "n" }}, {decision.CodeExclusive, func(r *wire.Request) { r.Flags = wire.FlagExclusive }},
		{decision.CodeOddName, func(r *wire.Request) { r.Name = "a\nJobId=5" }}, {decision.CodeOddName, func(r *wire.Request) { r.WorkDir = "/a\x1b" }}, {"", func(r *wire.Request) { r.Comment = "a\nb" }},
		{wire.SkipOptOut, func(r *wire.Request) { r.Comment = "my note; gresize:OFF" }}, {wire.SkipOptOut, func(r *wire.Request) { r.Environment = append(r.Environment, "GRESIZE=off") }},
		{wire.SkipOptOut, func(r *wire.Request) {
			r.Script = "#!/bin/sh\n#GRESIZE off please\n"
			r.ScriptTotal = uint64(len(r.Script))
		}},
		{"", func(r *wire.Request) { r.Script = "#!/bin/sh\n#GRESIZEoff\n"; r.ScriptTotal = uint64(len(r.Script)) }},
		{wire.SkipHet, func(r *wire.Request) { r.SkipReason = wire.SkipHet }}, {"something_new", func(r *wire.Request) { r.SkipReason = "something_new" }},
	} {
		r := sample()
		c.change(r)
		if code, reason := ineligible(r, false); code != c.code || (code == "") != (reason == "") {
			t.Errorf("got %q (%s), want %q", code, reason, c.code)
		}
	}
}

func TestFingerprint(t *testing.T) {
	base := fingerprint(sample())
	for name, c := range map[string]struct {
		change func(*wire.Request)
		same   bool
	}{
		"session variable": {func(r *wire.Request) { r.Environment = append(r.Environment, "SSH_TTY=/dev/pts/1") }, true},
		"job name":         {func(r *wire.Request) { r.Name = "other" }, true},
		"script":           {func(r *wire.Request) { r.Script += "x" }, false},
		"argument":         {func(r *wire.Request) { r.Argv = append(r.Argv, "y") }, false},
		"arguments cut":    {func(r *wire.Request) { r.Argv = []string{"/w/job.s", "hx"} }, false},
		"own variable":     {func(r *wire.Request) { r.Environment = append(r.Environment, "BATCH_SIZE=512") }, false},
		"path":             {func(r *wire.Request) { r.Environment = append(r.Environment, "PATH=/venv/bin") }, false},
		"folder":           {func(r *wire.Request) { r.WorkDir = "/w2" }, false},
		"GPU":              {func(r *wire.Request) { r.TresPerNode = "gres:gpu:a100:1" }, false},
	} {
		r := sample()
		c.change(r)
		if (fingerprint(r) == base) != c.same {
			t.Errorf("%s: same is %v", name, !c.same)
		}
	}
}

// TestTimeLimitAndReleaseAreRecorded: the report counts hours by them.
func TestTimeLimitAndReleaseAreRecorded(t *testing.T) {
	settings := &Settings{Mode: Shadow, ProfileOf: func(request.Request) string { return "" }}
	minutes, forever := uint32(90), uint32(wire.InfiniteMinutes)
	for _, c := range []struct {
		limit *uint32
		want  int64
	}{{nil, 0}, {&minutes, 90}, {&forever, decisionlog.NoTimeLimit}} {
		r := sample()
		r.TimeLimit = c.limit
		if j := describe(r, settings, time.Now()); j.TimeLimitMinutes != c.want || j.SlurmVersion != "22.05.8" {
			t.Errorf("%d minutes on %s, want %d", j.TimeLimitMinutes, j.SlurmVersion, c.want)
		}
	}
}
