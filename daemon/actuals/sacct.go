package actuals

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/slurm/client"
)

const (
	// sacctJobs are asked for in one request.
	sacctJobs = 200
	// sacctSince is how far back jobs are asked for.
	sacctSince = 30 * 24 * time.Hour
)

// notReported stands where a run has no peak: gres/gpumem is gathered with NVML alone, and not on every release.
const notReported = "Slurm reported no GPU memory"

// Asking asks Slurm's accounting for some jobs.
type Asking func(ctx context.Context, ids []uint32) ([]client.Accounted, error)

// Account asks Slurm's accounting for jobs of which it has not spoken, one request in each interval, until ctx ends. 0: never.
func (k *Keeper) Account(ctx context.Context, every time.Duration, ask Asking) {
	if every == 0 {
		return
	}
	var after int64
	failing := false
	beat := k.config.Heartbeat.Begin("the loop over Slurm's accounting", turn)
	defer beat.End()
	ctx = heartbeat.With(ctx, beat)
	for {
		beat.Wait(every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		beat.Turn()
		next, err := k.account(ctx, ask, after)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			k.config.Logger.Error("Slurm's accounting does not answer; what jobs took is not learnt from it (is slurmdbd running, and actuals.sacct the right program?)", "error", err)
		case err == nil && failing:
			k.config.Logger.Info("Slurm's accounting answers again")
		}
		if failing = err != nil; !failing {
			after = next
		}
	}
}

func (k *Keeper) account(ctx context.Context, ask Asking, after int64) (next int64, err error) {
	ids, next, err := k.config.Log.AwaitingAccounting(ctx, time.Now().Add(-sacctSince), after, sacctJobs)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	done := heartbeat.Call(ctx, client.AccountingTimeout)
	jobs, err := ask(ctx, ids)
	done()
	if err != nil {
		return after, err
	}
	for _, j := range jobs {
		outcome := decisionlog.Failed
		switch {
		case j.State == "COMPLETED":
			outcome = decisionlog.Completed
		case !(client.Job{State: j.State}).Ended():
			continue
		}
		story, err := k.config.Log.StoryOfOwner(ctx, j.JobID, j.UID)
		if errors.Is(err, decisionlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return after, err
		}
		seconds := int64(j.Elapsed/time.Second) * max(j.GPUs, 1)
		a := decisionlog.Actual{At: time.Now(), Source: decisionlog.SacctGPUMem, Outcome: outcome, ElapsedGPUSeconds: &seconds, PeakBytes: j.PeakBytes, HostPeakBytes: j.HostPeakBytes}
		_, a.AfterRewrite = change(story)
		if code, signal, ok := exitOf(j.Exit); ok {
			a.ExitCode, a.Signal = &code, &signal
		}
		if j.State != "COMPLETED" && j.State != "FAILED" {
			a.Detail = "Slurm says " + j.State
		}
		note := ""
		switch {
		case j.PeakBytes == 0:
			note = notReported
		case j.GPUs > 1:
			// Slurm adds up what the processes of a task hold on all cards: of one card nothing is known then.
			note, a.PeakBytes = fmt.Sprintf("%d MiB on %d GPUs together", j.PeakBytes>>20, j.GPUs), 0
		}
		if note != "" {
			a.Detail = strings.TrimPrefix(a.Detail+"; "+note, "; ")
		}
		if err := k.record(ctx, story, a); err != nil {
			return after, err
		}
	}
	return next, nil
}
