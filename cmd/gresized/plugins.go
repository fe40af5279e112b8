package main

import (
	"log/slog"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/pluginhost"
	"github.com/gresize/gresize/estimator/bundled"
	"github.com/gresize/gresize/estimator/contract"
)

// newEstimators makes the host of the estimators that the configuration names.
func newEstimators(c *config.Config, logger *slog.Logger) *pluginhost.Host {
	var entries []pluginhost.Entry
	for _, e := range c.Estimators {
		entry := pluginhost.Entry{Name: e.Name, Timeout: e.Timeout.Std()}
		if method, err := bundled.Find(e.Name); len(e.Command) == 0 && err == nil { // the configuration names no other
			entry.Builtin = bundleEstimator{method}
		} else {
			entry.Command = contract.Command{Path: e.Command[0], Args: e.Command[1:]}
		}
		entries = append(entries, entry)
	}
	return pluginhost.New(entries, logger)
}
