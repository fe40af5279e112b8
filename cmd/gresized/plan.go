package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gresize/gresize/daemon/actuals"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
)

// planned is what is needed of Slurm to give a job its plan.
type planned interface {
	Job(ctx context.Context, id uint32) (client.Job, error)
	MayRequeue(ctx context.Context, id uint32) (bool, error)
}

// planHandler gives a job that begins its plan: to its owner, whom munge proves, and only while the job asks for the card that the plan is for. requeue says whether the site runs jobs
// again, slowdown by how many times a step may be longer.
func planHandler(log *decisionlog.Log, slurm planned, opener actuals.Opener, requeue bool, slowdown func() float64, logger *slog.Logger) http.Handler {
	everybody := func(uint32) bool { return true }
	return actuals.Credentialed(logger, opener, everybody, "a user", func(ctx context.Context, uid uint32, payload []byte) (any, error) {
		wanted, err := epilog.ParseWanted(payload, epilog.SchemaPlan)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", actuals.ErrRefused, err)
		}
		story, err := log.StoryOfOwner(ctx, wanted.JobID, uid)
		if errors.Is(err, decisionlog.ErrNotFound) {
			return epilog.Plan{}, nil
		}
		if err != nil {
			return nil, err
		}
		if !story.HasPlan() || story.Job.State != jobs.StateUpdated && story.Job.State != jobs.StateVerified {
			return epilog.Plan{}, nil
		}
		plan, found, err := log.PlanOf(ctx, story.Job.ID)
		if err != nil || !found {
			return epilog.Plan{}, err
		}
		j, err := slurm.Job(ctx, wanted.JobID)
		if err != nil {
			return nil, err
		}
		given := story.Decisions[len(story.Decisions)-1].Change.Result
		if given.MemPerNodeMiB == 0 {
			j.Request.MemPerNodeMiB = 0 // what the queue shows may be that of each CPU
		}
		if j.Ambiguous || j.UserID != uid || !request.Equivalent(j.Request, given) {
			return epilog.Plan{}, nil // it has its owner's request again
		}
		answer := epilog.Plan{Body: plan.Body}
		if may, err := slurm.MayRequeue(ctx, wanted.JobID); err == nil && may && requeue && j.Restarts == 0 {
			answer.Slowest = slowdown()
		}
		if err := log.PlanFetched(ctx, story.Job.ID, time.Now()); err != nil {
			return nil, err
		}
		logger.Info("a job begins with its plan", "slurm_job_id", wanted.JobID, "uid", uid, "bytes", len(plan.Body))
		return answer, nil
	})
}
