package config

import "time"

// Cache says when the answer for an earlier job is good for a later one of the same owner.
type Cache string

// The ways: after a short job has found all files unchanged that the probe read; when script, arguments and environment are the same; never.
const (
	CacheVerify Cache = "verify"
	CacheScript Cache = "script"
	CacheOff    Cache = "off"
)

// Margin is how the margin is learnt from what jobs have used.
type Margin struct {
	// TargetFailureRate is the part of the jobs that may need more than estimate and margin; 0: nothing is learnt.
	TargetFailureRate float64 `toml:"target_failure_rate"`
	// FloorPercent and FloorMin are below what no learnt margin goes: the larger of the two.
	FloorPercent int   `toml:"floor_percent"`
	FloorMin     Bytes `toml:"floor_min"`
}

// OOM is what becomes of a job that died of GPU memory on what it was given.
type OOM struct {
	// Requeue runs it again at once with what its owner had asked for.
	Requeue bool `toml:"requeue"`
}

// Actuals is where it is learnt what jobs really used.
type Actuals struct {
	// Unmunge reads the credentials that gresize-epilog sends.
	Unmunge string `toml:"unmunge"`
	// MungeSocket is where munged listens; empty: its default place.
	MungeSocket string `toml:"munge_socket"`
	// Key is a file that only root and SlurmUser of the cluster's machines can read, by which Epilogs prove in place of munge who they are; empty: with munge.
	Key   string `toml:"key"`
	Sacct string `toml:"sacct"`
	// SacctEvery is the time between two requests to Slurm's accounting; 0: it is not asked.
	SacctEvery Duration `toml:"sacct_every"`
}

func (c *Config) checkActuals(found *faults) {
	if c.Cache != CacheVerify && c.Cache != CacheScript && c.Cache != CacheOff {
		found.add("cache", `one of "verify", "script", "off"`, "%q is none", c.Cache)
	}
	if r := c.Margin.TargetFailureRate; !(r == 0 || r >= 0.0001 && r <= 0.5) {
		found.add("margin.target_failure_rate", "0.01 is one job in a hundred; 0 keeps the fixed margin", "%v is neither 0 nor between 0.0001 and 0.5", r)
	}
	if n := c.Margin.FloorPercent; n < 0 || n > 100 {
		found.add("margin.floor_percent", "a number from 0 to 100", "%d is not between 0 and 100", n)
	}
	if every := c.Actuals.SacctEvery.Std(); every != 0 && (every < 10*time.Second || every > 24*time.Hour) {
		found.add("actuals.sacct_every", `"0s" never asks`, "%s is neither 0 nor between 10s and 24h", every)
	}
}
