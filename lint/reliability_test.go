package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReliabilityNamesRealTests holds RELIABILITY.md and the page of its runs to the tree: each of the 31 promises has a row and its runs, each row of the fault
// matrix says what covers it or that it is open, and whatever test is named exists.
func TestReliabilityNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("../RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	runs := string(read(t, "docs/reliability-runs.md"))
	for i := 1; i <= 31; i++ {
		if !strings.Contains(string(page), fmt.Sprintf("\n| P%d |", i)) {
			t.Errorf("promise P%d has no row", i)
		}
		if !strings.Contains(runs, fmt.Sprintf("\n### P%d: ", i)) {
			t.Errorf("promise P%d has no runs on docs/reliability-runs.md", i)
		}
	}
	tests := testsOfTheTree(t)
	for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`).FindAllString(string(page)+runs, -1) {
		if !tests[name] {
			t.Errorf("RELIABILITY.md or docs/reliability-runs.md names %s, and there is no such test", name)
		}
	}
	_, matrix, _ := strings.Cut(string(page), "## The fault matrix")
	matrix, _, _ = strings.Cut(matrix, "\n## ")
	for _, line := range strings.Split(matrix, "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 3 && !strings.HasPrefix(line, "|---") && !strings.HasPrefix(line, "| fault ") &&
			!strings.Contains(cells[2], "Test") && !strings.Contains(cells[2], "open") {
			t.Errorf("neither a test nor open: %s", line)
		}
	}
}

// testsOfTheTree are the names of all tests, fuzz targets and benchmarks.
func testsOfTheTree(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == ".git" || path == "../build") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			tests[name[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// TestSecurityNamesRealTests holds the table of threats in docs/security.md to the tree: each threat has a test, and each test that is named exists.
func TestSecurityNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n## By threat\n")
	table, _, _ = strings.Cut(table, "\n## ")
	tests, rows := testsOfTheTree(t), 0
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| threat ") {
			continue
		}
		rows++
		names := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`").FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(cells) != 3 || len(names) == 0 {
			t.Errorf("no test in: %s", line)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("docs/security.md names %s, and there is no such test", name[1])
			}
		}
	}
	if !found || rows < 20 {
		t.Errorf("%d threats", rows)
	}
}

// TestTheCheckerIsAlone: what judges the history of `make chaos` shares no code with what it judges.
func TestTheCheckerIsAlone(t *testing.T) {
	found := false
	for _, p := range listPackages(t) {
		if p.name() != "e2e/check" {
			continue
		}
		found = true
		for _, name := range p.Imports {
			if strings.Contains(name, ".") {
				t.Errorf("e2e/check imports %s", name)
			}
		}
	}
	if !found {
		t.Error("there is no e2e/check")
	}
}
