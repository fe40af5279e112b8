package main

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/site"
)

// settingsOf is what the configuration says to the manager. address is where probes report.
func settingsOf(s *site.Site, address string) jobs.Settings {
	c := s.Config
	return jobs.Settings{
		Mode: jobs.Mode(c.Mode), Hold: c.Probe.Hold.Std(), Watch: c.Policy.Watch.Std(), MaxWait: c.Policy.MaxWait.Std(), Arrays: c.Jobs.Arrays, Rules: s.Rules(), ProfileOf: s.ProfileOf, Cache: jobs.Cache(c.Cache),
		Probe: jobs.ProbeOptions{Partition: c.Probe.Partition, Account: c.Probe.Account, QOS: c.Probe.QOS, URL: c.ProbeURL(address),
			TimeLimitMinutes: int((c.Probe.TimeLimit.Std() + time.Minute - 1) / time.Minute), CPUs: c.Probe.CPUs, MemoryMiB: int(c.Probe.Memory >> 20),
			Steps: c.Probe.Steps, Budget: c.Probe.Budget.Std(), MaxRunning: c.Probe.MaxRunning, StartWithin: c.Probe.StartWithin.Std(),
			Breaker: jobs.Breaker{InRow: c.Probe.Breaker, Pause: c.Probe.BreakerPause.Std()}},
	}
}

// reloader reads the configuration again while the daemon runs.
type reloader struct {
	path, address string
	// started is the configuration with which the daemon started.
	started *config.Config
	manager interface{ Configure(jobs.Settings) }
	logger  *slog.Logger
	beats   *heartbeat.Monitor
}

// reloadTurn is how long it may take to read the configuration.
const reloadTurn = 15 * time.Second

func (r *reloader) listen(ctx context.Context, signals <-chan os.Signal) {
	beat := r.beats.Begin("the reader of the configuration", reloadTurn)
	defer beat.End()
	for {
		beat.Idle()
		select {
		case <-ctx.Done():
			return
		case <-signals:
			beat.Turn()
			r.reload()
		}
	}
}

// reload puts the file in force, or says what is wrong with it and leaves all as it is.
func (r *reloader) reload() {
	s, impossible, err := site.Load(r.path)
	if err != nil {
		r.logger.Error("the configuration was not read again: the earlier one stays in force", "error", err, "message_id", messageBadReload)
		return
	}
	for _, fault := range impossible {
		r.logger.Warn("the site's table has a row that no job can use", "fault", fault)
	}
	for _, key := range fixedKeys {
		if !reflect.DeepEqual(key.of(r.started), key.of(s.Config)) {
			r.logger.Warn("a change waits for the next start of gresized", "key", key.name)
		}
	}
	r.manager.Configure(settingsOf(s, r.address))
	r.logger.Info("configuration read again", "mode", s.Config.Mode, "targets", len(s.Config.Targets), "hold", s.Config.Probe.Hold.Std(), "message_id", messageGoodReload)
}

// fixedKeys are what a running daemon cannot change.
var fixedKeys = []struct {
	name string
	of   func(*config.Config) any
}{
	{"socket", func(c *config.Config) any { return c.Socket }},
	{"log", func(c *config.Config) any { return c.Log }},
	{"slurm", func(c *config.Config) any { return c.Slurm }},
	{"probe.listen", func(c *config.Config) any { return c.Probe.Listen }},
	{"probe.launch_socket", func(c *config.Config) any { return c.Probe.LaunchSocket }},
	{"margin.target_failure_rate", func(c *config.Config) any { return c.Margin.TargetFailureRate }},
	{"oom", func(c *config.Config) any { return c.OOM }},
	{"metrics", func(c *config.Config) any { return c.Metrics }},
	{"web", func(c *config.Config) any { return c.Web }},
	{"actuals", func(c *config.Config) any { return c.Actuals }},
	{"estimator", func(c *config.Config) any { return c.Estimators }},
}
