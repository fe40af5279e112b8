package actuals

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
)

const (
	// rescueLimit is how long it may take to run a job again; Slurm forgets ended jobs after some minutes.
	rescueLimit = 10 * time.Minute
	maxTries    = 3
	// turn is how long a loop works, calls to Slurm aside, before it is taken to be stuck. A look through a large log takes its time.
	turn = time.Minute
)

// Run looks after the jobs that are to run again, those of an earlier life of the daemon included, until ctx ends. Without such jobs it asks nobody.
func (k *Keeper) Run(ctx context.Context) {
	beat := k.config.Heartbeat.Begin("the loop over jobs that run again", turn)
	defer beat.End()
	ctx = heartbeat.With(ctx, beat)
	for {
		beat.Turn()
		open, err := k.config.Log.OpenRescues(ctx)
		if err != nil && ctx.Err() == nil {
			k.config.Logger.Error("jobs that are to run again cannot be read", "error", err)
		}
		for _, r := range open {
			k.rescue(ctx, r)
		}
		if len(open) > 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(k.config.Poll):
			}
			continue
		}
		beat.Idle()
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
	}
}

// rescue takes the next step. Slurm keeps a requeued job back for two minutes by itself, until its credential is surely gone: time to put its request back.
// If that is missed, the job runs again with what it was given, and nothing is stuck.
func (k *Keeper) rescue(ctx context.Context, r decisionlog.Rescue) {
	s, err := k.config.Log.StoryOf(ctx, r.Job)
	if err != nil {
		k.config.Logger.Error("a job that is to run again cannot be read", "row", r.Job, "error", err)
		return
	}
	refuse := func(format string, args ...any) {
		k.move(ctx, s, decisionlog.RescueRefused, decision.CodeRequeueRefused, fmt.Sprintf(format, args...))
	}
	// The job was changed when it was written down here. One that died before it was seen to run well may be out of the manager's hands since: it takes what is put
	// back for an act of the owner.
	changed, ok := decidedChange(s)
	if !ok || time.Since(r.At) > rescueLimit {
		refuse("it was not done within %s", rescueLimit)
		return
	}
	j, err := k.config.Slurm.Job(ctx, s.Job.SlurmJobID)
	switch {
	case errors.Is(err, client.ErrNoJob):
		refuse("Slurm no longer knows the job")
		return
	case err != nil || j.State == "COMPLETING" || j.State == "RUNNING" && r.State == decisionlog.RescueAsked:
		return // the Epilog has not ended
	case j.Ambiguous || j.UserID != s.Job.UID:
		refuse("the record of job %d is not certain to be this job's", j.ID)
		return
	case r.State == decisionlog.RescueAsked && (j.State == "COMPLETED" || j.State == "CANCELLED"):
		refuse("Slurm says that the job is %s, whatever its node says", j.State)
		return
	}
	switch {
	case r.State == decisionlog.RescueAsked && j.Ended():
		err = k.config.Slurm.Requeue(ctx, j.ID)
		if k.failed(r.Job, err) {
			refuse("the controller refused: %v", err)
		} else if err == nil {
			k.move(ctx, s, decisionlog.RescueRequeued, decision.CodeRequeued, "the job waits in the queue again")
		}
	case r.State == decisionlog.RescueAsked:
		// An earlier life of this daemon has done it, or somebody else.
		k.move(ctx, s, decisionlog.RescueRequeued, decision.CodeRequeued, "the job waits in the queue again")
	case request.Equivalent(j.Request, s.Job.Asked):
		k.move(ctx, s, decisionlog.RescueRestored, decision.CodeRequestRestored, "the job asks for "+s.Job.Asked.String()+" again")
	case !j.Pending() || !request.Equivalent(j.Request, changed.Result):
		refuse("the job is %s and asks for %s", j.State, j.Request)
	default:
		err = k.config.Slurm.Update(ctx, s.Job.UID, j.ID, request.Difference(changed.Result, s.Job.Asked), client.Start{Keep: true})
		if k.failed(r.Job, err) {
			refuse("the controller refused to put the original request back: %v", err)
		}
	}
}

// failed counts the refusals of the controller; other errors leave it open whether something was done.
func (k *Keeper) failed(job int64, err error) bool {
	var refused *client.CommandError
	if !errors.As(err, &refused) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tries[job]++
	return k.tries[job] >= maxTries
}

func (k *Keeper) move(ctx context.Context, s decisionlog.Story, state, code, detail string) {
	if err := k.config.Log.MoveRescue(ctx, s.Job.ID, state, decisionlog.Event{At: time.Now(), State: s.Job.State, Code: code, Detail: detail}); err != nil {
		k.config.Logger.Error("step of a job that is to run again not recorded", "slurm_job_id", s.Job.SlurmJobID, "error", err)
		return
	}
	k.mu.Lock()
	delete(k.tries, s.Job.ID)
	k.mu.Unlock()
	k.config.Logger.Info("a job runs again as its owner had asked", "slurm_job_id", s.Job.SlurmJobID, "step", state, "detail", detail)
}
