package logview

import (
	"testing"

	"github.com/gresize/gresize/daemon/report"
)

func TestOutcomesHaveWords(t *testing.T) {
	for _, o := range report.Outcomes {
		if outcomeText[o] == "" {
			t.Errorf("%s has no text", o)
		}
	}
	r := report.Report{Jobs: 4, Outcomes: []report.OutcomeLine{{Outcome: report.Right, Code: "already_smallest", Jobs: 1}, {Outcome: report.Open, Jobs: 2}, {Outcome: report.Right, Code: "x\x1b", Jobs: 1}}}
	got := Outcomes(r)
	if len(got) != 2 || got[0].Jobs != 2 || got[0].Percent != 50 || got[0].Codes[1].Text != "x?" || got[1].Codes[0].Text != "no decision" {
		t.Errorf("%+v", got)
	}
}
