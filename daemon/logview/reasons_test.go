package logview

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decision"
)

// TestEveryCodeHasWords: each code of a decision that the manual names has its words.
func TestEveryCodeHasWords(t *testing.T) {
	manual, err := os.ReadFile("../../docs/decisionlog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(manual), "## Codes")
	section, _, _ = strings.Cut(section, "`out_of_memory_after_rewrite`") // from here on, what comes after a decision
	named := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
			if named++; decision.Words(code[1]) == "" {
				t.Errorf("%s has no words", code[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d codes were found", named)
	}
	if got := Why("no_such_code"); got != "no such code" {
		t.Errorf("%q", got)
	}
}
