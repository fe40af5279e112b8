package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/spool"
)

const (
	// forgetBatch jobs are deleted at once: the log has one writer, and submissions must not wait for it.
	forgetBatch = 100
	// forgetPause is left to the others after each batch.
	forgetPause = 100 * time.Millisecond
	forgetEvery = time.Hour
	// forgetTurn is how long one batch may take.
	forgetTurn = time.Minute
)

// forget deletes the rows, and the kept bundles, of jobs that ended more than so many days ago, at once and every hour, until ctx ends. 0 days keep everything.
func forget(ctx context.Context, log *decisionlog.Log, files *spool.Spool, days int, beats *heartbeat.Monitor, logger *slog.Logger) {
	if days == 0 {
		return
	}
	var total int64
	beat := beats.Begin("the loop over old rows", forgetTurn)
	defer beat.End()
	for {
		beat.Turn()
		wait := forgetEvery
		before := time.Now().AddDate(0, 0, -days)
		jobs, err := log.Forget(ctx, before, forgetBatch)
		if keptErr := files.ForgetKept(before); keptErr != nil {
			logger.Error("old bundles stay", "error", keptErr)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			logger.Error("old rows of the decision log stay", "error", err)
		case jobs > 0:
			total += jobs
			wait = forgetPause
		case total > 0:
			logger.Info("old jobs deleted from the decision log", "jobs", total, "older_than_days", days)
			total = 0
		}
		beat.Wait(wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
