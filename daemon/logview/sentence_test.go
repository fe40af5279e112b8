package logview

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
)

// TestOwnersReadSentences: a list of libraries is said to be one, and a line that nothing follows does not go on.
func TestOwnersReadSentences(t *testing.T) {
	story := decisionlog.Story{Estimates: []estimator.Estimate{{Confidence: estimator.High, GPU: "t4", Reasons: []estimator.Reason{{Code: "workspace_bounded", Detail: "conv, norm"}}}}}
	lines := Explain(story)
	for _, line := range lines {
		if line.Text == "caveat: conv, norm" {
			t.Errorf("%+v", lines)
		}
	}
	word := OwnersWord(decisionlog.Job{Finished: true})
	if len(word) != 1 || strings.HasSuffix(word[0].Text, ";") {
		t.Errorf("%+v", word)
	}
}
