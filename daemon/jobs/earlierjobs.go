package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
)

// margin tells the policy what is known of the margin of an estimate, and returns the evidence for the log.
func (m *Manager) margin(e *estimator.Estimate, in *policy.Input) (evidence decisionlog.Margin) {
	if m.config.Margins != nil {
		in.Margin, evidence = m.config.Margins.Margin(e)
	}
	return evidence
}

// diedBefore lets a job go of which an earlier one, the same in all that is known, died of memory on what it was given. left says that the step ends here.
func (m *Manager) diedBefore(ctx context.Context, l *trackedJob) (again, left bool) {
	dead, err := m.config.Log.DiedAfterRewrite(ctx, l.job.UID, l.job.Fingerprint)
	switch {
	case err != nil:
		m.config.Logger.Error("earlier jobs cannot be read; the job waits", "token", l.job.Token, "error", err)
		return false, true
	case dead == 0:
		return m.distrusted(ctx, l)
	}
	return m.leaveAlone(ctx, l, decision.CodeDiedBefore, fmt.Sprintf("the job was left alone: job %d, which was the same, died of GPU memory on what gresize had given it", dead)), true
}

// An owner whose changed jobs keep dying on what they were given is left alone until enough of the deaths are past: whatever makes their programs larger on a card than in a probe, they are not to pay for it again and again.
const (
	trustWindow = 7 * 24 * time.Hour
	// distrustDeaths in the window, if they are at least one in distrustOneIn of the owner's changed jobs, are too many.
	distrustDeaths = 3
	distrustOneIn  = 10
)

// distrusted lets the job go of an owner whose changed jobs keep dying.
func (m *Manager) distrusted(ctx context.Context, l *trackedJob) (again, left bool) {
	died, known, err := m.config.Log.OwnersDeaths(ctx, l.job.UID, time.Now().Add(-trustWindow))
	switch {
	case err != nil:
		m.config.Logger.Error("earlier jobs cannot be read; the job waits", "token", l.job.Token, "error", err)
		return false, true
	case died < distrustDeaths || died*distrustOneIn < known:
		return false, false
	}
	return m.leaveAlone(ctx, l, decision.CodeOwnersDeaths, fmt.Sprintf("the job was left alone: of its owner's last %s whose end is known, %d died of GPU memory on what gresize had given them; jobs of this owner are not made smaller until these are %d days past",
		quantity.Count(known, "changed job", "changed jobs"), died, int(trustWindow.Hours()/24))), true
}
