package actuals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
)

// Slurm is what is needed of the cluster; *client.Client is the real one.
type Slurm interface {
	Job(ctx context.Context, id uint32) (client.Job, error)
	OutputFiles(ctx context.Context, id uint32) (stdout, stderr string, err error)
	Update(ctx context.Context, owner, id uint32, set []request.Assignment, start client.Start) error
	Requeue(ctx context.Context, id uint32) error
}

// Config is what a Keeper needs.
type Config struct {
	Log        *decisionlog.Log
	Slurm      Slurm
	Calibrator *Calibrator
	// Requeue says whether the site lets a job that died run again as its owner had asked.
	Requeue bool
	Logger  *slog.Logger
	// Heartbeat, when set, is told how every loop goes on.
	Heartbeat *heartbeat.Monitor
	// Poll is the time between two looks at a job that is to run again; 0: two seconds.
	Poll time.Duration
}

// Keeper takes in what jobs really used.
type Keeper struct {
	config Config
	wake   chan struct{}
	mu     sync.Mutex
	tries  map[int64]int
}

// NewKeeper makes a keeper; Run makes it look after jobs that are to run again.
func NewKeeper(config Config) *Keeper {
	if config.Poll == 0 {
		config.Poll = 2 * time.Second
	}
	return &Keeper{config: config, wake: make(chan struct{}, 1), tries: map[int64]int{}}
}

// Epilog takes the report of a node and says what else is wanted. Jobs of which the log knows nothing cost one look into it and nothing else.
func (k *Keeper) Epilog(ctx context.Context, r epilog.Report) (epilog.Answer, error) {
	story, err := k.config.Log.StoryOfOwner(ctx, r.JobID, r.UID)
	switch {
	case errors.Is(err, decisionlog.ErrNotFound):
		return epilog.Answer{}, nil
	case err != nil:
		return epilog.Answer{}, err
	}
	j, err := k.config.Slurm.Job(ctx, r.JobID)
	if err != nil || j.Ambiguous || j.UserID != r.UID {
		// What is known without the record is still worth a row.
		j = client.Job{ID: r.JobID, UserID: r.UID, Request: expected(story)}
	} else if j.State != "COMPLETING" && !j.Ended() {
		return epilog.Answer{}, fmt.Errorf("%w: job %d is %s: an Epilog tells of a job that has ended", ErrRefused, r.JobID, j.State)
	}
	a := describe(story, j)
	a.Node = r.Node
	if nodesOf(story, a.Run, r.Node) >= maxNodes {
		return epilog.Answer{}, fmt.Errorf("%w: job %d: %d other nodes have told of its run %d", ErrRefused, r.JobID, maxNodes, a.Run)
	}
	if r.MemoryLine != "" {
		if a.Outcome == decisionlog.Completed {
			return epilog.Answer{}, nil // a job that went on after it did not die of it
		}
		a.Source, a.Outcome, a.Detail = decisionlog.EpilogOOM, decisionlog.OutOfMemory, r.MemoryLine
		if strings.HasPrefix(r.MemoryLine, epilog.SlowStep) {
			a.Outcome = decisionlog.Failed
		}
		return epilog.Answer{}, k.record(ctx, story, a)
	}
	a.Source = decisionlog.Reported
	if !shares(j.Request) {
		processes := 0
		for _, p := range r.Peaks {
			if card := cardBytes(story, a.AfterRewrite); card > 0 && p.PeakBytes > card {
				a.Ranks, a.PeakBytes, a.Detail = nil, 0, fmt.Sprintf("the node says that GPU %s held %s, and its card has %s", p.GPU, quantity.GiB(p.PeakBytes), quantity.GiB(card))
				processes = 0
				break
			}
			a.Ranks = append(a.Ranks, decisionlog.RankPeak{GPU: p.GPU, PeakBytes: p.PeakBytes})
			a.PeakBytes = max(a.PeakBytes, p.PeakBytes)
			processes = max(processes, p.Processes)
		}
		if a.PeakBytes > 0 {
			a.Source = decisionlog.NVMLAccounting
		}
		if processes > 1 {
			a.Detail = fmt.Sprintf("the largest of %d processes", processes)
		}
	}
	if err := k.record(ctx, story, a); err != nil {
		return epilog.Answer{}, err
	}
	answer := epilog.Answer{GID: story.Job.GID}
	if a.Outcome == decisionlog.Failed {
		stdout, stderr, err := k.config.Slurm.OutputFiles(ctx, r.JobID)
		if err != nil {
			k.config.Logger.Warn("the output of a job that failed is not looked through", "slurm_job_id", r.JobID, "error", err)
		}
		for _, path := range []string{stderr, stdout} {
			if strings.HasPrefix(path, "/") && path != "/dev/null" && (len(answer.Scan) == 0 || answer.Scan[0] != path) {
				answer.Scan = append(answer.Scan, path)
			}
		}
	}
	return answer, nil
}

// maxNodes bounds the nodes that tell of one run. A job that is tracked has one, or a few where its tasks are spread: a node that gives itself other names fills no log.
const maxNodes = 64

// nodesOf counts the other nodes that have told of a run.
func nodesOf(s decisionlog.Story, run int, node string) int {
	others := map[string]bool{}
	for _, a := range s.Actuals {
		if a.Run == run && a.Node != "" && a.Node != node {
			others[a.Node] = true
		}
	}
	return len(others)
}

// cardBytes is the memory of the card on which a job ran, or 0: a job that was changed ran on the card of its last estimate, any other on that of its first.
func cardBytes(s decisionlog.Story, afterRewrite bool) int64 {
	if len(s.Estimates) == 0 {
		return 0
	}
	e := s.Estimates[0]
	if afterRewrite {
		e = s.Estimates[len(s.Estimates)-1]
	}
	card, err := gpu.Load(e.GPU)
	if err != nil {
		return 0
	}
	return card.Total.Bytes
}

// expected is what a job asks for as far as the log knows.
func expected(s decisionlog.Story) request.Request {
	if changed, ok := change(s); ok {
		return changed.Result
	}
	return s.Job.Asked
}

// change is the change that was made to a job, if it was.
func change(s decisionlog.Story) (request.Change, bool) {
	changed, ok := decidedChange(s)
	return changed, ok && (s.Job.State == jobs.StateUpdated || s.Job.State == jobs.StateVerified)
}

// decidedChange is the change that was decided last, whatever has become of the job since.
func decidedChange(s decisionlog.Story) (request.Change, bool) {
	if n := len(s.Decisions); n > 0 && s.Job.Mode == string(jobs.Enforce) && s.Decisions[n-1].Verdict == decision.Rewrite {
		return s.Decisions[n-1].Change, true
	}
	return request.Change{}, false
}

// shares says whether a job shares its GPU: what NVML knows of the GPU is then not this job's alone.
func shares(r request.Request) bool {
	for _, ask := range r.Asks() {
		if ask.Name != "gpu" {
			return true
		}
	}
	return false
}

// describe is how a job ended, from its record.
func describe(s decisionlog.Story, j client.Job) decisionlog.Actual {
	a := decisionlog.Actual{At: time.Now(), Outcome: decisionlog.NotKnown, Run: j.Restarts}
	if changed, ok := change(s); ok {
		a.AfterRewrite = request.Equivalent(j.Request, changed.Result)
	}
	if code, signal, ok := exitOf(j.ExitCode); ok {
		a.ExitCode, a.Signal = &code, &signal
		if a.Outcome = decisionlog.Failed; code == 0 && signal == 0 && (j.State == "COMPLETED" || j.State == "COMPLETING") {
			a.Outcome = decisionlog.Completed
		}
	}
	if j.RunTime > 0 {
		gpus := int64(0)
		for _, ask := range j.Request.Asks() {
			if ask.Name == "gpu" { // shards are of one card
				gpus += int64(min(ask.Count, 1<<16))
			}
		}
		seconds := int64(j.RunTime/time.Second) * max(gpus, 1)
		a.ElapsedGPUSeconds = &seconds
	}
	return a
}

// exitOf reads Slurm's code:signal.
func exitOf(text string) (code, signal int, ok bool) {
	first, second, found := strings.Cut(text, ":")
	code, err := strconv.Atoi(first)
	signal, err2 := strconv.Atoi(second)
	return code, signal, found && err == nil && err2 == nil
}

// record stores an actual, and raises the alarm when a job died on what it was given.
func (k *Keeper) record(ctx context.Context, s decisionlog.Story, a decisionlog.Actual) error {
	var event *decisionlog.Event
	rescue := false
	planned := s.HasPlan()
	switch {
	case a.Outcome == decisionlog.OutOfMemory:
		event = &decisionlog.Event{At: a.At, State: s.Job.State, Code: estimator.CodeOutOfMemory, Detail: "the job died of GPU memory on what its owner had asked for: " + a.Detail}
		if a.AfterRewrite {
			event.Code, event.Detail = decision.CodeDied, "the job died of GPU memory on what gresize had given it: "+a.Detail
			if planned {
				event.Detail = "the job died of GPU memory on a card that is too small for it, with a plan: " + a.Detail
			}
			rescue = k.config.Requeue && a.Run == 0
		}
	case planned && a.AfterRewrite && a.Outcome == decisionlog.Failed && strings.HasPrefix(a.Detail, epilog.SlowStep):
		event = &decisionlog.Event{At: a.At, State: s.Job.State, Code: decision.CodeSlowWithPlan, Detail: "the job was too slow on a card that is too small for it: " + a.Detail}
		rescue = k.config.Requeue && a.Run == 0
	}
	if rescue {
		event.Detail += "; it is to run again with what its owner had asked for"
	}
	added, err := k.config.Log.AddActual(ctx, s.Job.ID, a, event, rescue)
	if err != nil || !added {
		return err
	}
	if event != nil && event.Code == decision.CodeDied {
		d := s.Decisions[len(s.Decisions)-1]
		k.config.Logger.Warn("a job died of GPU memory on what gresize had given it; jobs like it are left alone from now on", "slurm_job_id", s.Job.SlurmJobID, "token", s.Job.Token,
			"uid", s.Job.UID, "node", a.Node, "given", d.Change.Result.String(), "asked", s.Job.Asked.String(), "need_bytes", d.NeedBytes, "margin_bytes", d.MarginBytes, "runs_again", rescue, "line", a.Detail, "message_id", messageDied)
	}
	if rescue {
		k.poke()
	}
	return k.config.Calibrator.Refresh(ctx)
}

// messageDied tells the death of a changed job from other lines of the journal; docs/journal.md.
const messageDied = "22dfaf5381eb425b971666c0245a2ea4"

func (k *Keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}
