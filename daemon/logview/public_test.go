package logview

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/estimator"
)

// TestNobodysWordsArePublic: wherever a program's words went in a story, they are not in what others see, and the codes are.
func TestNobodysWordsArePublic(t *testing.T) {
	words := "exit status 1: login failed with key sk-TOPSECRET-99"
	said := estimator.Reason{Code: "script_failed", Detail: words}
	line := "torch.OutOfMemoryError: sk-TOPSECRET-98"
	s := decisionlog.Story{
		Estimates: []estimator.Estimate{{Confidence: estimator.Unknown, Reasons: []estimator.Reason{said}}},
		Events: []decisionlog.Event{{State: jobs.StateReported, Code: "no_sandbox", Detail: "the probe could not make a bundle: sk-TOPSECRET-97"}, {State: jobs.StateDecided, Code: "confidence_too_low", Detail: said.Words()},
			{State: jobs.StateVerified, Code: "out_of_memory", Detail: "the job died: " + line}, {State: jobs.StateDecided, Detail: said.Words()[:60]}},
		Decisions: []decisionlog.Decision{{Code: "confidence_too_low", Reason: "the estimate's confidence is unknown: " + said.Words()}},
		Actuals:   []decisionlog.Actual{{Source: decisionlog.EpilogOOM, Detail: line}},
	}
	other := decisionlog.Story{Decisions: []decisionlog.Decision{{Code: decision.CodeProbesFailing, Reason: "6 probes ended in a row" + jobs.TheLast + "sk-TOPSECRET-96); one job is tried"}}}
	for _, story := range []decisionlog.Story{s, other} {
		text, err := json.Marshal([]any{Public(story), Explain(Public(story)), Facts(Public(story)), Steps(Public(story))})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "TOPSECRET") {
			t.Errorf("%s", text)
		}
	}
	if text := fmt.Sprint(Facts(Public(s))); !strings.Contains(text, "the command failed [script_failed]") {
		t.Errorf("%s", text)
	}
	if s.Estimates[0].Reasons[0].Detail != words || s.Actuals[0].Detail != line || !strings.Contains(s.Decisions[0].Reason, words) {
		t.Error("the story itself was changed")
	}
}
