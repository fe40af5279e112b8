package jobs

import (
	"context"
	"fmt"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
)

// margin tells the policy what is known of the margin of an estimate, and returns the evidence for the log.
func (m *Manager) margin(e *estimator.Estimate, in *policy.Input) (evidence decisionlog.Margin) {
	if m.config.Margins != nil {
		in.Margin, evidence = m.config.Margins.Margin(e)
	}
	return evidence
}

// diedBefore lets a job go of which an earlier one, the same in all that is known, died of memory on what it was given. left says that the step ends here.
func (m *Manager) diedBefore(ctx context.Context, l *life) (again, left bool) {
	dead, err := m.config.Log.DiedAfterRewrite(ctx, l.job.UID, l.job.Fingerprint)
	switch {
	case err != nil:
		m.config.Logger.Error("earlier jobs cannot be read; the job waits", "token", l.job.Token, "error", err)
		return false, true
	case dead == 0:
		return false, false
	}
	return m.letGo(ctx, l, codeDiedBefore, fmt.Sprintf("the job was left alone: job %d, which was the same, died of GPU memory on what gresize had given it", dead)), true
}
