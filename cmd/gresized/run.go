package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gresize/gresize/daemon/actuals"
	"github.com/gresize/gresize/daemon/calibration"
	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/metrics"
	"github.com/gresize/gresize/daemon/probeapi"
	"github.com/gresize/gresize/daemon/server"
	"github.com/gresize/gresize/daemon/site"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/daemon/systemd"
	"github.com/gresize/gresize/internal/account"
	"github.com/gresize/gresize/internal/buildinfo"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/client"
)

// Exit codes; the manual lists them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// socketName is the FileDescriptorName= of the submit socket's unit.
const socketName = "gresize-submit"

// These tell lines of the journal apart; docs/journal.md.
const (
	messageReady      = "b189a624b0ed401c9bd3033993f49386"
	messageBadReload  = "80de4ae0751b49c8a53eb8b554cbc0b6"
	messageGoodReload = "69d5b81c72d2467f9c31fa658dfd2caf"
	messageDamaged    = "aa2a1faac0834c51b9341e0d3ac9c329"
)

// launchTimeout is above the time that gresize-launch gives to one sbatch.
const launchTimeout = 15 * time.Second

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gresized", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("config", "/etc/gresize/gresize.toml", "read the configuration from `FILE`")
	check := false
	flags.BoolFunc("check", "check the configuration in `FILE` (default: that of -config) and end", func(file string) error {
		check = true
		if file != "true" { // -check=FILE
			*path = file
		}
		return nil
	})
	version := flags.Bool("version", false, "print the version and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	rest := flags.Args()
	if check && len(rest) > 0 {
		*path, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		fmt.Fprintf(stderr, "gresized: unexpected argument %q\n", rest[0])
		return exitUsage
	}
	if *version {
		fmt.Fprintln(stdout, "gresized version", buildinfo.Version())
		return exitOK
	}
	if check {
		return checkOnly(*path, stdout, stderr)
	}
	logger := slog.New(systemd.LogHandler(stderr))
	if err := serve(ctx, *path, logger); err != nil {
		var faults config.Faults
		if errors.As(err, &faults) { // for whoever wrote the file
			tellFaults(stderr, faults)
			return exitFailed
		}
		logger.Error("gresized ends", "error", err)
		return exitFailed
	}
	return exitOK
}

func tellFaults(stderr io.Writer, faults config.Faults) {
	for _, fault := range faults {
		fmt.Fprintf(stderr, "gresized: %v\n", fault)
	}
}

func checkOnly(path string, stdout, stderr io.Writer) int {
	s, impossible, err := site.Load(path)
	var faults config.Faults
	errors.As(err, &faults)
	tellFaults(stderr, append(faults, impossible...))
	if len(faults)+len(impossible) > 0 {
		return exitFailed
	}
	for _, warning := range s.Warnings(path) {
		fmt.Fprintf(stderr, "gresized: warning: %v\n", warning)
	}
	warn := func(fault *config.FileError) {
		config.Place(path, []*config.FileError{fault})
		fmt.Fprintf(stderr, "gresized: warning: %v\n", fault)
	}
	c := s.Config
	if len(c.Targets) == 0 {
		warn(&config.FileError{Field: "target", Problem: "no row: no job will be changed, each is recorded as unknown_gpu", Hint: "add [[target]] rows that say what the site has"})
	}
	for _, name := range c.Socket.AllowUsers {
		if _, err := userID(name); err != nil {
			warn(&config.FileError{Field: "socket.allow_users", Problem: fmt.Sprintf("user %q: %v: gresized does not start here", name, err), Hint: "name SlurmUser there"})
		}
	}
	if c.Web.Listen != "" {
		fmt.Fprintln(stderr, "gresized: "+webWords(&c.Web))
	}
	if c.LoopbackProbes() {
		warn(&config.FileError{Field: "probe.listen", Problem: "probes on other nodes than this one cannot report to " + c.Probe.Listen, Hint: "listen on an address that they reach, or on 0.0.0.0:8917, and say in probe.url how they reach it"})
	}
	for _, p := range c.Programs() {
		if _, err := os.Stat(p.Path); err != nil {
			warn(&config.FileError{Field: p.Field, Problem: err.Error(), Hint: "name the program's place on the machine of gresized"})
		}
	}
	if key := c.Actuals.Key; key != "" {
		if err := epilog.CheckKey(key); err != nil {
			warn(&config.FileError{Field: "actuals.key", Problem: err.Error(), Hint: "name a file that only SlurmUser can read here and root on the nodes; until then no report of an Epilog is taken"})
		}
	}
	if problem, hint := slurmFault(c); problem != "" {
		warn(&config.FileError{Field: "slurm.scontrol", Problem: problem, Hint: hint + "; until then jobs run as their owners asked"})
	}
	fmt.Fprintf(stdout, "%s: ok, mode %s, %s, hold %s\n", path, c.Mode, quantity.Count(len(c.Targets), "target"), c.Probe.Hold.Std())
	return exitOK
}

// checkTimeout bounds what -check asks of Slurm: systemd runs it before each start, and slurmctld may be away for long.
const checkTimeout = 2 * time.Second

// slurmFault says why Slurm does not answer as the configuration asks it, and what to do; nothing too where scontrol is not there, which is said elsewhere.
func slurmFault(c *config.Config) (problem, hint string) {
	if _, err := os.Stat(c.Slurm.Scontrol); err != nil {
		return "", ""
	}
	slurm := client.New(client.Config{Scontrol: c.Slurm.Scontrol, ConfPath: c.Slurm.Conf, Timeout: checkTimeout})
	if _, err := slurm.Version(context.Background()); err != nil {
		return printable.Clip(err.Error(), 600), "name the scontrol of this cluster's Slurm"
	}
	if err := slurm.Ping(context.Background()); err != nil {
		return "slurmctld does not answer yet; scontrol says: " + printable.Clip(err.Error(), 600), "start slurmctld; where it runs, [slurm] conf names another slurm.conf"
	}
	return "", ""
}

// serve is the daemon: each step undone in the reverse order.
func serve(ctx context.Context, path string, logger *slog.Logger) (err error) {
	reloads := make(chan os.Signal, 1)
	signal.Notify(reloads, syscall.SIGHUP)
	defer signal.Stop(reloads)
	cards, impossible, err := site.Load(path)
	if err != nil {
		return err
	}
	for _, fault := range impossible {
		logger.Warn("the site's table has a row that no job can use", "fault", fault)
	}
	c := cards.Config
	uids, err := userIDs(c.Socket.AllowUsers)
	if err != nil {
		return err
	}
	beats := heartbeat.New()
	slurm := newPatientSlurm(client.New(client.Config{Scontrol: c.Slurm.Scontrol, ConfPath: c.Slurm.Conf, Timeout: c.Slurm.Timeout.Std()}), c.Slurm.Timeout.Std())
	version, err := slurm.Version(ctx)
	if err != nil {
		return fmt.Errorf("ask Slurm for its version: %w", err)
	}
	if why := version.Untried(); why != "" {
		logger.Warn("this release of Slurm is not known", "why", why)
	}

	lock, err := lockLog(c.Log.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	log, err := decisionlog.Open(ctx, c.Log.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if log.Replaced != "" {
		logger.Error("the decision log was damaged: a new one was begun", "moved_to", log.Replaced, "message_id", messageDamaged)
	}
	life, missing, err := log.BeginLife(ctx, time.Now())
	if err != nil {
		logger.Error("submissions are not numbered: what is missing will not be seen", "error", err)
	}
	if missing != nil {
		logger.Warn("an earlier gresized was killed before it had written every row: those jobs start as submitted", "life", missing.Life, "began", missing.Began, "answered", missing.Answered, "recorded", missing.Recorded)
	}
	files, err := spool.Open(c.Log.Spool)
	if err != nil {
		return err
	}

	probeListener, err := net.Listen("tcp", c.Probe.Listen)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	bundles := newReader(files, logger)
	estimators := newEstimators(c, log, bundles, logger)
	defer estimators.Close()
	calibrator, err := actuals.NewCalibrator(ctx, log, calibration.Options{TargetFailureRate: c.Margin.TargetFailureRate})
	if err != nil {
		return errors.Join(err, probeListener.Close())
	}
	keeper := actuals.NewKeeper(actuals.Config{Log: log, Slurm: slurm, Calibrator: calibrator, Requeue: c.OOM.Requeue, Heartbeat: beats, Logger: logger})
	manager := jobs.New(jobs.Config{
		Settings: settingsOf(cards, probeListener.Addr().String()), Version: version, Release: buildinfo.Version(),
		Log: log, Spool: files, Slurm: slurm, Launcher: patientLauncher{&launch.Client{Path: c.Probe.LaunchSocket, Timeout: launchTimeout}},
		Estimator: newPatientEstimator(estimators, c.Estimators), EstimatorName: c.Estimators[0].Name, Heartbeat: beats, Numbers: life, Margins: calibrator, Logger: logger, Failpoint: failpoint(),
	})
	probes := probeapi.New(manager, logger)
	probes.Recording, probes.Heartbeat = recordingFor(c, logger), beats
	munge := actuals.Munge{Unmunge: c.Actuals.Unmunge, Socket: c.Actuals.MungeSocket}
	var opener actuals.Opener = munge
	if c.Actuals.Key != "" {
		opener = &epilog.Key{Path: c.Actuals.Key}
	}
	probes.Handle(epilog.Path, keeper.Handler(opener))
	probes.Handle(epilog.PathTold, keeper.ToldHandler(opener))
	// A user has no key: who asks for the story of his job is proved by munge alone.
	probes.Handle(epilog.PathExplain, explainHandler(log, munge, logger))
	probes.Handle(epilog.PathPlan, planHandler(log, slurm, munge, c.OOM.Requeue, manager.Slowdown, logger))
	var submits *server.Server
	working := &alive{beats: beats, manager: manager, log: log}
	counters := metrics.New(metrics.Build{Version: buildinfo.Version(), Slurm: version.String()}, metrics.Live{
		OpenJobs: manager.OpenJobs, OpenProbes: manager.OpenProbes, Refused: func() int64 { return submits.Refused.Load() },
		Mode: func() string { return string(manager.Mode()) }, States: slices.Concat(jobs.OpenStates, jobs.LastStates), Ready: working.ready, Backlog: manager.Backlog,
		ProbesFailing: func() (bool, int, int64) {
			f := manager.ProbesFailing()
			return !f.Since.IsZero(), f.Owners, f.Opened
		},
	})
	log.Observe(counters.Observed)
	submits = server.New(server.Config{AllowedUIDs: uids, MaxConnections: c.Socket.MaxConnections, Answerer: manager.Proving(counters.Timed(manager)), Heartbeat: beats, Logger: logger})
	metricsListener, err := listenForMetrics(c.Metrics.Listen)
	if err != nil {
		return errors.Join(err, probeListener.Close())
	}
	listener, err := systemd.Listener(socketName)
	if err == nil && listener == nil {
		listener, err = listen.Unix(c.Socket.Path)
	}
	if err != nil {
		return errors.Join(err, probeListener.Close())
	}
	working.submit = listener.Addr()
	decisions, err := openPage(ctx, c, daemonParts{version: buildinfo.Version(), slurm: version.String(), files: files, reader: bundles, manager: manager, refused: submits.Refused.Load, ready: working.check,
		words: c.Words, logger: logger})
	if err != nil {
		return errors.Join(err, probeListener.Close(), listener.Close())
	}
	if decisions != nil {
		defer func() { err = errors.Join(err, decisions.Close()) }()
	}
	// It goes on until nobody can ask any more: what was answered is written.
	if err := manager.Open(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(err, probeListener.Close(), listener.Close())
	}
	defer func() {
		manager.Close()
		if life != nil {
			err = errors.Join(err, life.End(context.WithoutCancel(ctx), time.Now()))
		}
	}()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failures := make(chan error, 2)
	var wait sync.WaitGroup
	wait.Go(func() { failures <- probes.Serve(probeListener) })
	wait.Go(func() { failures <- submits.Serve(ctx, listener) })
	wait.Go(func() { systemd.Watch(ctx, working.check, logger) })
	wait.Go(func() {
		again := reloader{path: path, address: probeListener.Addr().String(), started: c, manager: manager, logger: logger, beats: beats}
		again.listen(ctx, reloads)
	})
	if metricsListener != nil {
		wait.Go(func() {
			if err := counters.Serve(ctx, metricsListener); err != nil {
				logger.Error("metrics are no longer served", "error", err)
			}
		})
	}
	if decisions != nil {
		logger.Info("decisions can be read", "page", c.Web.Listen)
		wait.Go(func() {
			if err := decisions.Serve(ctx); err != nil {
				logger.Error("the page is no longer served", "error", err)
			}
		})
	}
	wait.Go(func() {
		if err := log.Examine(ctx); err != nil && ctx.Err() == nil {
			logger.Error("the decision log is damaged: restart gresized, and it begins a new one and keeps this one aside", "error", err, "message_id", messageDamaged)
		}
	})
	wait.Go(func() { keeper.Run(ctx) })
	wait.Go(func() {
		keeper.Account(ctx, c.Actuals.SacctEvery.Std(), func(ctx context.Context, ids []uint32) ([]client.Accounted, error) {
			return slurm.Accounting(ctx, c.Actuals.Sacct, ids)
		})
	})
	wait.Go(func() { forget(ctx, log, files, c.Log.KeepDays, beats, logger) })
	wait.Go(func() {
		if working.begun(ctx, logger) != nil {
			return
		}
		logger.Info("ready", "mode", c.Mode, "socket", c.Socket.Path, "probes", probeListener.Addr().String(), "slurm", version.String(), "log", c.Log.Path, "message_id", messageReady)
		if err := systemd.Ready("mode " + string(c.Mode)); err != nil {
			logger.Warn("systemd cannot be notified", "error", err)
		}
	})

	select {
	case <-ctx.Done():
	case err = <-failures:
	}
	if notifyErr := systemd.Stopping(); notifyErr != nil {
		logger.Debug("systemd cannot be notified", "error", notifyErr)
	}
	stop()
	err = errors.Join(err, listener.Close(), probes.Close())
	wait.Wait()
	return err
}

// listenForMetrics opens the address of the counters, nil when there is none.
func listenForMetrics(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := listen.On(address)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	return l, nil
}

// userIDs looks up names, and takes numbers as they are.
func userIDs(names []string) ([]uint32, error) {
	var uids []uint32
	for _, name := range names {
		uid, err := userID(name)
		if err != nil {
			return nil, fmt.Errorf("socket.allow_users: user %q: %w: name SlurmUser there", name, err)
		}
		uids = append(uids, uid)
	}
	return uids, nil
}

func userID(name string) (uint32, error) {
	if uid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(uid), nil
	}
	u, err := account.ByName(name)
	return u.UID, err
}
