package jobs

import (
	"github.com/gresize/gresize/daemon/decisionlog"

	"github.com/gresize/gresize/daemon/decision"
)

// messageDecided tells a decision from other lines of the journal; docs/journal.md.
const messageDecided = "466289e08f3340e6957af3e7af03aac3"

// say writes a decision to the daemon's log, with a field for each thing that somebody may look for.
func (m *Manager) say(j decisionlog.Job, d *decisionlog.Decision) {
	if d == nil {
		return
	}
	now := ""
	if d.Verdict == decision.Rewrite {
		now = d.Change.Result.String()
	}
	m.config.Logger.Info("decided", "verdict", string(d.Verdict), "code", d.Code, "reason", d.Reason, "slurm_job_id", j.SlurmJobID, "token", j.Token, "uid", j.UID, "partition", j.Partition,
		"mode", j.Mode, "asked", j.Asked.String(), "now", now, "need_bytes", d.NeedBytes, "margin_bytes", d.MarginBytes, "message_id", messageDecided)
}
