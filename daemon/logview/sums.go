package logview

import (
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/report"
	"github.com/gresize/gresize/internal/printable"
)

// outcomeText are the outcomes of a report in a manager's words.
var outcomeText = map[report.Outcome]string{
	report.Changed:       "changed to another card",
	report.WouldChange:   "would have been changed (shadow mode)",
	report.NotCarriedOut: "change decided, not made or taken back",
	report.Right:         "asked for the right card",
	report.TooSmall:      "seem to need more than they asked for",
	report.Unknown:       "need not known",
	report.NotTried:      "not tried: left alone",
	report.Open:          "not decided yet",
}

// Outcome is the sum of the jobs of one outcome.
type Outcome struct {
	// Slug is the outcome in one word.
	Slug    string
	Text    string
	Jobs    int64
	Percent float64
	Codes   []Count
}

// Count is a number with what it counts.
type Count struct {
	N    int64
	Text string
}

// Outcomes sums up the lines of a report by outcome; those of no job are left out.
func Outcomes(r report.Report) []Outcome {
	var all []Outcome
	for _, outcome := range report.Outcomes {
		o := Outcome{Text: outcomeText[outcome]}
		for _, line := range r.Outcomes {
			if line.Outcome != outcome {
				continue
			}
			o.Jobs += line.Jobs
			code := line.Code
			if code == "" {
				code = "no decision"
			}
			o.Codes = append(o.Codes, Count{line.Jobs, printable.Clip(code, 60)})
			o.Slug = string(outcome)
		}
		if o.Jobs > 0 {
			o.Percent = 100 * float64(o.Jobs) / float64(max(r.Jobs, 1))
			all = append(all, o)
		}
	}
	return all
}

// HowItWent says how jobs ended, as far as it is known.
func HowItWent(t decisionlog.Truth) []Count {
	return []Count{
		{t.Known, "jobs of which it is known how they ended"}, {t.Died, "died of GPU memory"}, {t.DiedAfterRewrite, "of them on what gresize had given them"},
		{t.RanAgain, "of them were run again with what their owner had asked for"}, {t.ShadowMeasured, "changes of shadow mode whose job's memory was measured"},
		{t.WouldHaveDied, "of them took more than estimate and margin: they would have died on the smallest card"}, {t.FromCache, "jobs were answered from an earlier job, without a run"},
	}
}
