package main

import (
	"log/slog"
	"path/filepath"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/pluginhost"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
)

// recordingFor is how probes run a job so that the first estimator that is bundled can answer, and others whose mode is the same. Those of another
// mode would always answer that the run was recorded otherwise: the log says so once.
func recordingFor(c *config.Config, logger *slog.Logger) probejob.Recording {
	var all trace.Recording
	first := ""
	for _, e := range c.Estimators {
		method, err := bundled.Find(e.Name)
		if err != nil {
			continue // a site's own plugin reads what there is; one of ours may be run as a plugin, too
		}
		if first == "" {
			first, all = e.Name, method.Recording
		} else if both, ok := all.With(method.Recording); ok {
			all = both
		} else {
			logger.Warn("an estimator needs another kind of run than the first one and will have no answer", "estimator", e.Name, "first", first)
		}
	}
	r := probejob.Recording{}
	if mode := all.RunMode(); mode != trace.ModeVGPU {
		r.Mode = string(mode)
	}
	for _, p := range all.Parts {
		r.Parts = append(r.Parts, string(p))
	}
	return r
}

// newEstimators makes the host of the estimators that the configuration names.
func newEstimators(c *config.Config, log *decisionlog.Log, r *reader.Reader, logger *slog.Logger) *pluginhost.Host {
	private := []string{filepath.Dir(c.Log.Path), c.Log.Spool}
	if c.Actuals.Key != "" {
		private = append(private, c.Actuals.Key)
	}
	var entries []pluginhost.Entry
	for _, e := range c.Estimators {
		entry := pluginhost.Entry{Name: e.Name, Timeout: e.Timeout.Std(), SHA256: e.SHA256}
		if method, err := bundled.Find(e.Name); len(e.Command) == 0 && err == nil { // the configuration names no other
			entry.Builtin = bundleEstimator{method.Name, r}
			if method.Name == bundled.HistoryName {
				entry.Builtin = historyEstimator{log, r}
			}
		} else {
			entry.Command = contract.Command{Path: e.Command[0], Args: e.Command[1:], Reads: e.Reads, Hides: private}
			if _, err := contract.TrustedFile(e.Command[0], e.SHA256); err != nil {
				logger.Warn("an estimator will not be started as it is", "estimator", e.Name, "error", err)
			}
		}
		entries = append(entries, entry)
	}
	return pluginhost.New(entries, logger)
}
