package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
)

// Cache says when an answer for an earlier job is good for a later one of the same owner.
type Cache string

// The ways; see daemon/config.
const (
	CacheOff    Cache = "off"
	CacheScript Cache = "script"
	CacheVerify Cache = "verify"
)

// cacheLimit bounds a look into the log for a probe.
const cacheLimit = 5 * time.Second

// earlier returns what the probe of an earlier job of the same owner found on the present card, when script, arguments, environment, folder and request are
// the same. only, when it is not 0, is the row of the log that it must come from.
func (m *Manager) earlier(ctx context.Context, l *trackedJob, only int64) (decisionlog.Cached, bool) {
	// The log knows what one probe found and which files it read; an array has several.
	if mode := m.settings().Cache; mode != CacheScript && mode != CacheVerify || l.array {
		return decisionlog.Cached{}, false
	}
	c, found, err := m.config.Log.Cached(ctx, l.job.UID, l.job.Fingerprint, l.job.Profile, only)
	if err != nil {
		m.config.Logger.Warn("earlier answers cannot be read; the job is probed", "token", l.job.Token, "error", err)
		return decisionlog.Cached{}, false
	}
	if !found || c.Estimate.GPU != l.job.Profile || c.Estimate.Validate() != nil {
		return decisionlog.Cached{}, false
	}
	// Another release may know better; an estimator that names none is not ours.
	release := c.Estimate.Versions.Gresize
	return c, m.config.Release == "" || release == "" || release == m.config.Release
}

// fromCache answers a job without a probe: where the site says that the script suffices, or where the files were found unchanged on another card already.
// done says that the step ends here.
func (m *Manager) fromCache(ctx context.Context, l *trackedJob) (again, done bool) {
	if m.settings().Cache != CacheScript && l.verified == 0 {
		return false, false
	}
	c, found := m.earlier(ctx, l, l.verified)
	if !found {
		return false, false
	}
	why := "script, arguments and environment are the same"
	if l.verified != 0 {
		why = filesUnchanged
	}
	l.useCached(c)
	return m.move(ctx, l, decisionlog.Transition{To: StateReported, Code: decision.CodeFromCache, Detail: answeredFrom(c, why)}), true
}

const filesUnchanged = "all files that its probe read are unchanged"

func answeredFrom(c decisionlog.Cached, why string) string {
	return fmt.Sprintf("answered from cache of job %d: %s", c.SlurmJobID, why)
}

func (l *trackedJob) useCached(c decisionlog.Cached) {
	l.estimate, l.fromJob = &c.Estimate, c.Job
}

// verifiable adds to what a probe is told the files that are to be looked at first.
func (m *Manager) verifiable(l *trackedJob, job *ProbeJob) {
	if m.settings().Cache != CacheVerify {
		return
	}
	job.RecordInputs = true
	ctx, cancel := context.WithTimeout(context.Background(), cacheLimit)
	defer cancel()
	if c, found := m.earlier(ctx, l, 0); found && len(c.Inputs) > 0 {
		job.Inputs, job.InputsOf = c.Inputs, c.Job
	}
}

// ProbeUnchanged takes the word of a probe that every file is as it was for the job in that row of the log. The word is that of the job's own user, whose
// earlier job it was.
func (m *Manager) ProbeUnchanged(name, key string, row int64) error {
	l, _, err := m.authorize(name, key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheLimit)
	defer cancel()
	c, found := m.earlier(ctx, l, row)
	if row == 0 || !found || m.settings().Cache != CacheVerify {
		return ErrUnknownProbe
	}
	return m.setReport(name, key, &report{unchanged: &c})
}

// ProbeInputs takes the list of the files that a probe read, which was checked before.
func (m *Manager) ProbeInputs(name, key string, files int, packed []byte) error {
	l, _, err := m.authorize(name, key)
	if err != nil {
		return err
	}
	if m.settings().Cache != CacheVerify {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheLimit)
	defer cancel()
	return m.config.Log.PutInputs(ctx, l.job.ID, files, packed)
}
