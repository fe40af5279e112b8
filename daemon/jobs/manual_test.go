package jobs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestManualNamesEveryStateAndCode holds docs/decisionlog.md to what is written into the log.
func TestManualNamesEveryStateAndCode(t *testing.T) {
	root := filepath.Join("..", "..")
	manual, err := os.ReadFile(filepath.Join(root, "docs", "decisionlog.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Concat(OpenStates, LastStates)
	for path, pattern := range map[string]string{
		"daemon/decision/decision.go": `(?m)^\t(?:Code\w+|\w+ +Verdict)\s*= "(\w+)"`,
		"slurm/request/request.go":    `(?m)^\tCode\w+\s*= "(\w+)"`,
		"slurm/wire/wire.go":          `(?m)^\tSkip\w+\s*= "(\w+)"`,
	} {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllSubmatch(source, -1)
		if len(found) == 0 {
			t.Errorf("no word found in %s", path)
		}
		for _, m := range found {
			words = append(words, string(m[1]))
		}
	}
	for _, word := range words {
		if !strings.Contains(string(manual), "`"+word+"`") {
			t.Errorf("docs/decisionlog.md does not name %s", word)
		}
	}
}
