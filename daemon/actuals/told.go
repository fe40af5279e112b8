package actuals

import (
	"context"
	"errors"
	"fmt"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/client"
)

// Told takes what the site's own monitoring says of one run of a job. It counts as any other actual: for the report, the margin, and the alarm.
func (k *Keeper) Told(ctx context.Context, t epilog.Told) (epilog.ToldAnswer, error) {
	refuse := func(format string, args ...any) (epilog.ToldAnswer, error) {
		return epilog.ToldAnswer{}, fmt.Errorf("%w: job %d: %s", ErrRefused, t.JobID, fmt.Sprintf(format, args...))
	}
	story, err := k.config.Log.Story(ctx, t.JobID)
	switch {
	case errors.Is(err, decisionlog.ErrNotFound):
		return refuse("the decision log has no such job")
	case err != nil:
		return epilog.ToldAnswer{}, err
	}
	j, err := k.config.Slurm.Job(ctx, t.JobID)
	if err != nil || j.Ambiguous || j.UserID != story.Job.UID {
		// Slurm forgets ended jobs; monitoring may be a day late.
		j = client.Job{ID: t.JobID, UserID: story.Job.UID, Request: expected(story)}
		for _, earlier := range story.Actuals {
			j.Restarts = max(j.Restarts, earlier.Run)
		}
	}
	a := describe(story, j)
	a.Source, a.Node, a.PeakBytes, a.Detail = decisionlog.Reported, t.Node, t.PeakBytes, "told by the site's own monitoring"
	if t.Run != nil && *t.Run != a.Run {
		// The record of Slurm is that of another run, on another card perhaps.
		a = decisionlog.Actual{At: a.At, Source: a.Source, Node: a.Node, PeakBytes: a.PeakBytes, Detail: a.Detail, Run: *t.Run, Outcome: decisionlog.NotKnown}
		_, changed := change(story)
		a.AfterRewrite = changed
	}
	if card := cardBytes(story, a.AfterRewrite); card > 0 && t.PeakBytes > card {
		return refuse("%s is more than the %s of its card", quantity.GiB(t.PeakBytes), quantity.GiB(card))
	}
	if nodesOf(story, a.Run, a.Node) >= maxNodes {
		return refuse("%d other nodes have told of its run %d", maxNodes, a.Run)
	}
	for _, earlier := range story.Actuals {
		if earlier.Run != a.Run {
			continue
		}
		if earlier.Source == a.Source && earlier.Node == a.Node {
			return refuse("%s was told of its run %d before", nameOr(a.Node, "the whole job"), a.Run)
		}
		// What others know of the same run.
		if a.Outcome == decisionlog.NotKnown {
			a.Outcome, a.ExitCode, a.Signal, a.AfterRewrite = earlier.Outcome, earlier.ExitCode, earlier.Signal, earlier.AfterRewrite
		}
		if a.ElapsedGPUSeconds == nil {
			a.ElapsedGPUSeconds = earlier.ElapsedGPUSeconds
		}
	}
	if t.Outcome != "" {
		a.Outcome = decisionlog.Outcome(t.Outcome)
	}
	if err := k.record(ctx, story, a); err != nil {
		return epilog.ToldAnswer{}, err
	}
	answer := epilog.ToldAnswer{JobID: t.JobID, Run: a.Run, Outcome: string(a.Outcome)}
	// A job that was changed ran on the card of its last estimate, any other on that of its first.
	if n := len(story.Estimates); n > 0 {
		e := story.Estimates[0]
		if a.AfterRewrite {
			e = story.Estimates[n-1]
		}
		if rank, ok := e.Largest(); ok {
			answer.EstimateBytes = rank.ComfortableHighBytes
		}
	}
	return answer, nil
}

func nameOr(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}
