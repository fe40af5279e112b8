package actuals

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/calibration"
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
)

var (
	asked   = request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}
	changed = request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}
)

// cluster is one job in memory.
type cluster struct {
	mu     sync.Mutex
	job    client.Job
	gone   bool
	refuse int
	calls  []string
}

func (c *cluster) OutputFiles(context.Context, uint32) (stdout, stderr string, err error) {
	return "/home/a/out", "/home/a/err", nil
}

func (c *cluster) Job(context.Context, uint32) (client.Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return client.Job{}, client.ErrNoJob
	}
	return c.job, nil
}

func (c *cluster) Update(_ context.Context, owner, id uint32, set []request.Assignment, start client.Start) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("update %d %d %v keep=%v", owner, id, set, start.Keep))
	c.job.Request = asked
	return nil
}

func (c *cluster) Requeue(_ context.Context, id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprint("requeue ", id))
	if c.refuse > 0 {
		c.refuse--
		return &client.CommandError{Command: "scontrol", ExitCode: 1, Stderr: "Requeue is not allowed"}
	}
	c.job.State, c.job.Restarts = "PENDING", c.job.Restarts+1
	return nil
}

type bench struct {
	t      *testing.T
	log    *decisionlog.Log
	slurm  *cluster
	keeper *Keeper
	said   *bytes.Buffer
	row    int64
}

// newBench has one job that was changed to the small card, ran there as job 7 of user 1001, and failed.
func newBench(t *testing.T, requeue bool) *bench {
	t.Helper()
	log, err := decisionlog.Open(t.Context(), filepath.Join(t.TempDir(), "log.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	at := time.Now()
	ids, err := log.AddJobs(t.Context(), decisionlog.NewJob{Job: decisionlog.Job{Token: "tok", Mode: "enforce", UID: 1001, GID: 100, Name: "train", Asked: asked, Fingerprint: "f", ScriptSHA256: "s", SubmittedAt: at}, First: decisionlog.Event{At: at, State: "held"}})
	if err != nil {
		t.Fatal(err)
	}
	row := ids[0]
	answer := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "rtx3060", Confidence: estimator.Exact, Fits: true,
		Ranks: []estimator.Rank{{PeakReservedBytes: 10 << 30, ComfortableBytes: 10 << 30, ComfortableHighBytes: 10 << 30}}}
	for _, step := range []decisionlog.Transition{{From: "held", To: "estimated", SlurmJobID: 7, Estimate: &answer},
		{From: "estimated", To: "verified", Finished: true, Decision: &decisionlog.Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits", Change: request.Change{Result: changed}}}} {
		step.Job, step.At = row, at
		if err := log.Advance(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, log: log, row: row, said: new(bytes.Buffer),
		slurm: &cluster{job: client.Job{ID: 7, UserID: 1001, State: "COMPLETING", ExitCode: "1:0", RunTime: 90 * time.Second, Request: changed}}}
	calibrator, err := NewCalibrator(t.Context(), log, calibration.Options{TargetFailureRate: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	b.keeper = NewKeeper(Config{Log: log, Slurm: b.slurm, Calibrator: calibrator, Requeue: requeue, Logger: slog.New(slog.NewTextHandler(b.said, nil)), Poll: 5 * time.Millisecond})
	return b
}

func (b *bench) report(r epilog.Report) epilog.Answer {
	b.t.Helper()
	r.Schema, r.JobID, r.Node = epilog.Schema, 7, "gpu1"
	if r.UID == 0 {
		r.UID = 1001
	}
	answer, err := b.keeper.Epilog(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

func (b *bench) story() decisionlog.Story {
	b.t.Helper()
	s, err := b.log.StoryOf(b.t.Context(), b.row)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func codes(s decisionlog.Story) (all []string) {
	for _, e := range s.Events {
		if e.Code != "" {
			all = append(all, e.Code)
		}
	}
	return all
}

const line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."

func TestADeathIsAnAlarmAndTheJobRunsAgain(t *testing.T) {
	b := newBench(t, true)
	answer := b.report(epilog.Report{Peaks: []epilog.Peak{{GPU: "0", PeakBytes: 11 << 30, Processes: 2}}})
	if diff := cmp.Diff(epilog.Answer{Scan: []string{"/home/a/err", "/home/a/out"}, GID: 100}, answer); diff != "" {
		t.Fatal(diff)
	}
	for range 2 { // a report may come twice
		b.report(epilog.Report{MemoryLine: line})
	}
	s := b.story()
	if len(s.Actuals) != 2 || s.Actuals[0].Source != decisionlog.NVMLAccounting || s.Actuals[0].PeakBytes != 11<<30 || *s.Actuals[0].ElapsedGPUSeconds != 90 || s.Actuals[0].Detail != "the largest of 2 processes" ||
		s.Actuals[1].Outcome != decisionlog.OutOfMemory || !s.Actuals[1].AfterRewrite || s.Actuals[1].Detail != line {
		t.Errorf("%+v", s.Actuals)
	}
	if said := b.said.String(); strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "slurm_job_id=7") {
		t.Error(said)
	}
	if dead, err := b.log.DiedAfterRewrite(t.Context(), 1001, "f"); err != nil || dead != 7 {
		t.Errorf("%d %v", dead, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { b.keeper.Run(ctx) })
	time.Sleep(30 * time.Millisecond) // the Epilog still runs
	b.slurm.mu.Lock()
	early := len(b.slurm.calls)
	b.slurm.job.State = "FAILED"
	b.slurm.mu.Unlock()
	deadline := time.Now().Add(5 * time.Second)
	for !slices.Contains(codes(b.story()), decision.CodeRequestRestored) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	wait.Wait()
	if diff := cmp.Diff([]string{decision.CodeDied, decision.CodeRequeued, decision.CodeRequestRestored}, codes(b.story())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"requeue 7", "update 1001 7 [{Features gpu80g}] keep=true"}, b.slurm.calls); diff != "" || early != 0 {
		t.Errorf("%d early; %s", early, diff)
	}
	// It dies again on what its owner asked for: no second rescue, and nothing is our fault.
	b.slurm.job.State = "COMPLETING"
	b.report(epilog.Report{MemoryLine: line})
	if open, err := b.log.OpenRescues(t.Context()); err != nil || len(open) != 0 || !slices.Contains(codes(b.story()), estimator.CodeOutOfMemory) {
		t.Errorf("%+v %v %v", open, err, codes(b.story()))
	}
}

func TestWhatIsNoDeath(t *testing.T) {
	b := newBench(t, true)
	b.slurm.job.ExitCode, b.slurm.job.State = "0:0", "COMPLETING"
	if answer := b.report(epilog.Report{}); len(answer.Scan) != 0 {
		t.Errorf("a job that did not fail is looked through: %+v", answer)
	}
	b.report(epilog.Report{MemoryLine: line})
	if s := b.story(); len(s.Actuals) != 1 || s.Actuals[0].Outcome != decisionlog.Completed || s.Actuals[0].Source != decisionlog.Reported {
		t.Errorf("a job that caught the error is dead: %+v", s.Actuals)
	}
	if answer := b.report(epilog.Report{UID: 1002, MemoryLine: line}); len(answer.Scan) != 0 || len(b.story().Actuals) != 1 {
		t.Error("another user's report was taken for this job's")
	}
	shared := newBench(t, false)
	shared.slurm.job.Request = request.Request{TresPerNode: "gres/shard:5"}
	shared.report(epilog.Report{Peaks: []epilog.Peak{{GPU: "0", PeakBytes: 1 << 30, Processes: 1}}})
	if s := shared.story(); s.Actuals[0].PeakBytes != 0 || s.Actuals[0].AfterRewrite {
		t.Errorf("what others used of a shared GPU: %+v", s.Actuals)
	}
	away := newBench(t, false)
	away.slurm.gone = true
	away.report(epilog.Report{MemoryLine: line})
	if s := away.story(); len(s.Actuals) != 1 || s.Actuals[0].ExitCode != nil || s.Actuals[0].Outcome != decisionlog.OutOfMemory {
		t.Errorf("%+v", s.Actuals)
	}
	if open, err := away.log.OpenRescues(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("the site does not want it: %+v %v", open, err)
	}
}

func TestARescueThatIsRefusedEnds(t *testing.T) {
	b := newBench(t, true)
	b.slurm.job.State, b.slurm.refuse = "FAILED", maxTries
	b.report(epilog.Report{MemoryLine: line})
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { b.keeper.Run(ctx) })
	deadline := time.Now().Add(5 * time.Second)
	for !slices.Contains(codes(b.story()), decision.CodeRequeueRefused) && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	wait.Wait()
	last := b.story().Events[len(b.story().Events)-1]
	if last.Code != decision.CodeRequeueRefused || !strings.Contains(last.Detail, "Requeue is not allowed") || len(b.slurm.calls) != maxTries {
		t.Errorf("%+v %v", last, b.slurm.calls)
	}
}

func TestCalibratorLearnsOnce(t *testing.T) {
	b := newBench(t, false)
	b.report(epilog.Report{Peaks: []epilog.Peak{{GPU: "0", PeakBytes: 11 << 30, Processes: 1}}})
	b.report(epilog.Report{MemoryLine: line})
	e := &estimator.Estimate{Estimator: "vgpu", GPU: "rtx3060", Confidence: estimator.Exact}
	known, evidence := b.keeper.config.Calibrator.Margin(e)
	// That it died came after what it took, and both are one run: 5 % more than the 10 % that were measured.
	if math.Abs(known.Worst-1.155) > 1e-9 || known.Ratio != 0 || evidence.Actuals != 1 || evidence.Died != 1 {
		t.Errorf("%+v %+v", known, evidence)
	}
	// A new daemon knows the same.
	again, err := NewCalibrator(t.Context(), b.log, calibration.Options{TargetFailureRate: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	if k, ev := again.Margin(e); k != known || ev != evidence {
		t.Errorf("%+v %+v", k, ev)
	}
	// A run that failed early below its estimate says nothing.
	early := newBench(t, false)
	early.report(epilog.Report{Peaks: []epilog.Peak{{GPU: "0", PeakBytes: 1 << 30, Processes: 1}}})
	if _, evidence := early.keeper.config.Calibrator.Margin(e); evidence.Actuals != 0 {
		t.Errorf("%+v", evidence)
	}
}

// TestANodeThatLies: what slurmctld contradicts, or no card can hold, moves nothing.
func TestANodeThatLies(t *testing.T) {
	for state, code := range map[string]string{"PENDING": "0:0", "RUNNING": "0:0", "SUSPENDED": "0:0"} {
		b := newBench(t, true)
		b.slurm.job.State, b.slurm.job.ExitCode = state, code
		for _, r := range []epilog.Report{{MemoryLine: line}, {}} {
			r.Schema, r.JobID, r.UID, r.Node = epilog.Schema, 7, 1001, "gpu1"
			if _, err := b.keeper.Epilog(t.Context(), r); !errors.Is(err, ErrRefused) {
				t.Errorf("a job that is %s has ended: %v", state, err)
			}
		}
		if s := b.story(); len(s.Actuals) != 0 {
			t.Errorf("%s: %+v", state, s.Actuals)
		}
	}
	// It is said to have died before slurmctld says that it has not.
	for _, state := range []string{"COMPLETED", "CANCELLED"} {
		b := newBench(t, true)
		b.report(epilog.Report{MemoryLine: line})
		b.slurm.job.State = state
		open, err := b.log.OpenRescues(t.Context())
		if err != nil || len(open) != 1 {
			t.Fatalf("%+v %v", open, err)
		}
		b.keeper.rescue(t.Context(), open[0])
		if codes := codes(b.story()); len(b.slurm.calls) != 0 || !slices.Contains(codes, decision.CodeRequeueRefused) {
			t.Errorf("%s: %v %v", state, codes, b.slurm.calls)
		}
	}
	b := newBench(t, false)
	b.report(epilog.Report{Peaks: []epilog.Peak{{GPU: "0", PeakBytes: 11 << 30, Processes: 1}, {GPU: "1", PeakBytes: 900 << 30, Processes: 1}}})
	if a := b.story().Actuals; len(a) != 1 || a[0].PeakBytes != 0 || len(a[0].Ranks) != 0 || a[0].Source != decisionlog.Reported || !strings.Contains(a[0].Detail, "900.00 GiB") {
		t.Errorf("%+v", a)
	}
	if _, err := b.keeper.Told(t.Context(), epilog.Told{Schema: epilog.SchemaTold, JobID: 7, PeakBytes: 900 << 30}); !errors.Is(err, ErrRefused) {
		t.Errorf("the same from the site's monitoring: %v", err)
	}
	for i := range 2 * maxNodes {
		_, err := b.keeper.Epilog(t.Context(), epilog.Report{Schema: epilog.Schema, JobID: 7, UID: 1001, Node: fmt.Sprint("made-up-", i)})
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	}
	if n := len(b.story().Actuals); n > maxNodes+1 {
		t.Errorf("%d reports of one run", n)
	}
}

type opener struct {
	uid uint32
	err error
}

func (o opener) Open(_ context.Context, c []byte) ([]byte, uint32, error) { return c, o.uid, o.err }

func TestHandlerTakesRootsReportsOnly(t *testing.T) {
	b := newBench(t, false)
	good, err := json.Marshal(epilog.Report{Schema: epilog.Schema, JobID: 7, UID: 1001, Node: "gpu1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		who  opener
		body string
		code int
	}{
		{"root", opener{}, string(good), 200}, {"a user", opener{uid: 1001}, string(good), 403}, {"no credential", opener{err: errors.New("no")}, string(good), 403},
		{"no report", opener{}, "{}", 400}, {"an unknown field", opener{}, `{"schema":"gresize.epilog/1","x":1}`, 400}, {"too large", opener{}, strings.Repeat("x", maxCredentialBytes+1), 413},
	} {
		w := httptest.NewRecorder()
		b.keeper.Handler(c.who).ServeHTTP(w, httptest.NewRequest(http.MethodPost, epilog.Path, strings.NewReader(c.body)))
		if w.Code != c.code {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.code)
		}
	}
	if n := len(b.story().Actuals); n != 1 {
		t.Errorf("%d actuals", n)
	}
}

func TestParseUnmunged(t *testing.T) {
	payload, uid, err := parseUnmunged([]byte("STATUS:           0\nUID:              1001\n\n{\"a\":1}\n\nb"))
	if err != nil || uid != 1001 || string(payload) != "{\"a\":1}\n\nb" {
		t.Errorf("%q %d %v", payload, uid, err)
	}
	for _, bad := range []string{"", "UID: 0\nSTATUS: 0\n", "STATUS: 15\nUID: 0\n\nx", "STATUS: 0\n\nUID: 0", "STATUS: 0\nUID: -1\n\nx"} {
		if _, _, err := parseUnmunged([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestAccountingIsAskedInTurnAndMatchesOwners(t *testing.T) {
	const peak = 11811160064
	for _, c := range []struct {
		gpus, told, kept int64
		detail           string
	}{
		{1, peak, peak, ""},
		{2, peak, 0, "11264 MiB on 2 GPUs together"},
		{1, 0, 0, "Slurm reported no GPU memory"},
	} {
		b := newBench(t, false)
		var askedFor [][]uint32
		ask := func(_ context.Context, ids []uint32) ([]client.Accounted, error) {
			askedFor = append(askedFor, ids)
			return []client.Accounted{{JobID: 8, UID: 1001, State: "COMPLETED"}, {JobID: 7, UID: 1002, State: "COMPLETED"},
				{JobID: 7, UID: 1001, State: "FAILED", Exit: "1:0", Elapsed: 90 * time.Second, GPUs: c.gpus, PeakBytes: c.told, HostPeakBytes: 3 << 30}}, nil
		}
		if _, err := b.keeper.account(t.Context(), ask, 0); err != nil {
			t.Fatal(err)
		}
		s := b.story()
		if len(s.Actuals) != 1 || s.Actuals[0].Source != decisionlog.SacctGPUMem || s.Actuals[0].PeakBytes != c.kept || *s.Actuals[0].ElapsedGPUSeconds != 90*c.gpus || s.Actuals[0].HostPeakBytes != 3<<30 || s.Actuals[0].Detail != c.detail || !s.Actuals[0].AfterRewrite {
			t.Errorf("%d GPUs: %+v", c.gpus, s.Actuals)
		}
		if _, err := b.keeper.account(t.Context(), ask, 0); err != nil || len(askedFor) != 1 {
			t.Errorf("asked again for what is known: %v %v", askedFor, err)
		}
	}
}

// TestSlowSendersTakeNoPlace: whoever opens connections and sends nothing holds up nobody.
func TestSlowSendersTakeNoPlace(t *testing.T) {
	b := newBench(t, false)
	server := httptest.NewServer(b.keeper.Handler(opener{}))
	defer server.Close()
	for range maxAtOnce + 1 {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("POST " + epilog.Path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nM")); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(50 * time.Millisecond) // they are being read now
	response, err := http.Post(server.URL+epilog.Path, "text/plain", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("%s", response.Status)
	}
}

// TestWhatMonitoringTells: root and our own user are believed, each run is told once, what others know of the run is taken over, and it counts for the margin.
func TestWhatMonitoringTells(t *testing.T) {
	b := newBench(t, false)
	tell := func(who opener, told epilog.Told) (int, string) {
		t.Helper()
		told.Schema = epilog.SchemaTold
		body, err := json.Marshal(told)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		b.keeper.ToldHandler(who).ServeHTTP(w, httptest.NewRequest(http.MethodPost, epilog.PathTold, bytes.NewReader(body)))
		return w.Code, w.Body.String()
	}
	good := epilog.Told{JobID: 7, PeakBytes: 23 << 29, Outcome: "completed"}
	for _, c := range []struct {
		name string
		who  opener
		told epilog.Told
		code int
		says string
	}{
		{"a user", opener{uid: 1001}, good, 403, "root or SlurmUser"},
		{"no credential", opener{err: errors.New("no")}, good, 403, "root or SlurmUser"},
		{"no such job", opener{}, epilog.Told{JobID: 8, PeakBytes: 1 << 30}, 400, "has no such job"},
		{"nothing measured", opener{}, epilog.Told{JobID: 7}, 400, "peak_bytes"},
		{"another word", opener{}, epilog.Told{JobID: 7, PeakBytes: 1, Outcome: "well"}, 400, "outcome"},
		{"root", opener{}, good, 200, `"run":0,"outcome":"completed","estimate_bytes":`},
		{"again", opener{}, good, 400, "the whole job was told of its run 0 before"},
		{"our own user", opener{uid: uint32(os.Geteuid())}, epilog.Told{JobID: 7, Node: "gpu1", PeakBytes: 11 << 30}, 200, `"outcome":"failed"`}, // as Slurm's record says
		{"another run", opener{}, epilog.Told{JobID: 7, PeakBytes: 1 << 30, Run: new(int)}, 400, "told of its run 0 before"},
	} {
		if code, says := tell(c.who, c.told); code != c.code || !strings.Contains(says, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.name, code, says, c.code, c.says)
		}
	}
	told := b.story().Actuals
	if len(told) != 2 || told[0].Source != decisionlog.Reported || told[0].PeakBytes != 23<<29 || !told[0].AfterRewrite || told[0].Outcome != decisionlog.Completed || told[1].Node != "gpu1" {
		t.Errorf("%+v", told)
	}
	e := &estimator.Estimate{Estimator: "vgpu", GPU: "rtx3060", Confidence: estimator.Exact}
	if known, evidence := b.keeper.config.Calibrator.Margin(e); math.Abs(known.Worst-1.15) > 1e-9 || evidence.Actuals != 1 {
		t.Errorf("%+v %+v", known, evidence)
	}
	// Of a job that Slurm has forgotten, with a run of which the Epilog said how it ended and nothing more.
	late := newBench(t, false)
	late.report(epilog.Report{})
	late.slurm.gone = true
	ended := late.story().Actuals[0]
	body, err := json.Marshal(epilog.Told{Schema: epilog.SchemaTold, JobID: 7, PeakBytes: 9 << 30})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	late.keeper.ToldHandler(opener{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, epilog.PathTold, bytes.NewReader(body)))
	if all := late.story().Actuals; w.Code != 200 || len(all) != 2 || all[1].Outcome != ended.Outcome || all[1].AfterRewrite != ended.AfterRewrite {
		t.Errorf("%d %s: %+v after %+v", w.Code, w.Body, all, ended)
	}
}
