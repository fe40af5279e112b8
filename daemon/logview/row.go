package logview

import (
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// Row is one job of a list in a few words; a dash stands for what is not known.
type Row struct {
	Submitted, JobID, User, Name, Asked, Needs, Confidence, Verdict, Now, State, Why string
}

// RowOf is a line of the log for a list.
func RowOf(l decisionlog.Line, names *Names) Row {
	j := l.Job
	r := Row{Submitted: j.SubmittedAt.Local().Format(time.DateTime), JobID: JobID(j), User: printable.Clip(names.Of(j.UID), 16), Name: printable.Clip(j.Name, 20), Asked: Short(j.Asked),
		Needs: "-", Confidence: "-", Verdict: "-", Now: "-", State: Spaced(j.State), Why: "-"}
	if l.Confidence != "" {
		r.Confidence = l.Confidence
	}
	if d := l.Decision; d != nil {
		r.Verdict, r.Why = Spaced(string(d.Verdict)), d.Code
		if d.Verdict == decision.Rewrite {
			r.Now = Short(d.Change.Result)
		}
		if d.NeedBytes > 0 {
			r.Needs = quantity.GiB(d.NeedBytes)
		}
	}
	return r
}
