package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// alive says whether the daemon does its work, for the watchdog and for whoever asks whether it is ready.
type alive struct {
	beats   *heartbeat.Monitor
	manager *jobs.Manager
	log     *decisionlog.Log
	submit  net.Addr
}

// check names what is stuck. It asks a question as the plugin does, which has to come through the socket and the manager to the writer of the log, and asks the log itself.
func (a *alive) check(ctx context.Context) error {
	if err := a.beats.Check(); err != nil {
		return err
	}
	if err := a.manager.Prove(ctx, a.ask); err != nil {
		return err
	}
	if err := a.log.Ping(ctx); err != nil {
		return fmt.Errorf("the decision log does not answer: %w", err)
	}
	return nil
}

// ready is check, and says too why no submission could be recorded now. A full disk is nothing that a restart would mend, so the watchdog does not ask.
func (a *alive) ready(ctx context.Context) error {
	if err := a.check(ctx); err != nil {
		return err
	}
	if err := a.log.Writable(ctx); err != nil {
		return err
	}
	if waiting, _ := a.manager.Backlog(); waiting > 0 {
		return fmt.Errorf("%s in memory to be written", quantity.Count(waiting, "submission waits", "submissions wait"))
	}
	return nil
}

func (a *alive) ask(ctx context.Context, r *wire.Request) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, a.submit.Network(), a.submit.String())
	if err != nil {
		return err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := wire.WriteRequest(connection, r); err != nil {
		return err
	}
	_, err = wire.ReadReply(connection)
	return err
}

// startCheckEvery is the pause between two questions of a daemon that begins.
const startCheckEvery = 250 * time.Millisecond

// begun waits until all works.
func (a *alive) begun(ctx context.Context, logger *slog.Logger) error {
	for complained := false; ; complained = true {
		check, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := a.check(check)
		cancel()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if !complained {
			logger.Warn("not ready yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startCheckEvery):
		}
	}
}

// patientSlurm lets the loop that calls Slurm wait as long as the command may take: a slow Slurm is no stuck daemon.
type patientSlurm struct {
	*client.Client
	// call bounds one command, its end included.
	call time.Duration
}

func newPatientSlurm(c *client.Client, timeout time.Duration) patientSlurm {
	return patientSlurm{c, timeout + 2*time.Second}
}

func (s patientSlurm) EachJob(ctx context.Context, each func(client.Job)) error {
	defer heartbeat.Call(ctx, s.call)()
	return s.Client.EachJob(ctx, each)
}

// Job may ask a second time, whether the controller answers at all.
func (s patientSlurm) Job(ctx context.Context, id uint32) (client.Job, error) {
	defer heartbeat.Call(ctx, 2*s.call)()
	return s.Client.Job(ctx, id)
}

func (s patientSlurm) OutputFiles(ctx context.Context, id uint32) (stdout, stderr string, err error) {
	defer heartbeat.Call(ctx, s.call)()
	return s.Client.OutputFiles(ctx, id)
}

func (s patientSlurm) Update(ctx context.Context, owner, id uint32, set []request.Assignment, start client.Start) error {
	defer heartbeat.Call(ctx, s.call)()
	return s.Client.Update(ctx, owner, id, set, start)
}

func (s patientSlurm) Cancel(ctx context.Context, id uint32) error {
	defer heartbeat.Call(ctx, s.call)()
	return s.Client.Cancel(ctx, id)
}

func (s patientSlurm) Requeue(ctx context.Context, id uint32) error {
	defer heartbeat.Call(ctx, s.call)()
	return s.Client.Requeue(ctx, id)
}

// patientLauncher is the same for gresize-launch.
type patientLauncher struct{ *launch.Client }

func (l patientLauncher) Submit(ctx context.Context, r launch.Request) (uint32, error) {
	defer heartbeat.Call(ctx, l.Timeout)()
	return l.Client.Submit(ctx, r)
}

// patientEstimator is the same for the estimators, which are asked one after the other.
type patientEstimator struct {
	jobs.Estimator
	limit time.Duration
}

func newPatientEstimator(e jobs.Estimator, rows []config.Estimator) patientEstimator {
	limit := time.Duration(0)
	for _, row := range rows {
		limit += max(row.Timeout.Std()+contract.DefaultStartTimeout, reader.Timeout+2*time.Second)
	}
	return patientEstimator{e, limit}
}

func (e patientEstimator) Estimate(ctx context.Context, job estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error) {
	defer heartbeat.Call(ctx, e.limit)()
	return e.Estimator.Estimate(ctx, job, bundle, profile)
}
