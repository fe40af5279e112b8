package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// conditional are the ways to leave a test out but GRESIZE_NIGHTLY, which make nightly sets.
var conditional = regexp.MustCompile(`(?m)^//go:build|\bt\.Skip(f|Now)?\(|testing\.Short\(\)`)

// surely are the ways that make nightly, which root runs, does not go.
var surely = regexp.MustCompile(`t\.Skip\("(run by make nightly|a part of make nightly|only root)`)

// testNames are the functions and the literal names of subtests and table rows in all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	pattern := regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Benchmark\w+)\(|t\.Run\("([^"]+)"|^\t+\{(?:name: )?"([^"]+)"`)
	must(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if conditional.Match(surely.ReplaceAll(text, nil)) {
			return nil // what neither make test nor make nightly is certain to run is no test to name
		}
		for _, m := range pattern.FindAllSubmatch(text, -1) {
			for _, name := range m[1:] {
				if len(name) > 0 {
					names[string(name)] = true
				}
			}
		}
		return nil
	}))
	return names
}

// tableTests are the rows of a page's tables with what its last column names in backquotes.
func tableTests(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	must(t, err)
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 5 || strings.Contains(line, "---") || strings.TrimSpace(cells[len(cells)-2]) == "test" {
			continue
		}
		row := strings.TrimSpace(cells[1])
		rows[row] = []string{}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[len(cells)-2], -1) {
			rows[row] = append(rows[row], m[1])
		}
	}
	return rows
}

// TestManualOfJobsNamesTests: no row without a test, no test that does not exist, and every subtest of TestKinds has its row.
func TestManualOfJobsNamesTests(t *testing.T) {
	names, named := testNames(t), map[string]bool{}
	rows := tableTests(t, "jobs.md")
	if len(rows) < 40 {
		t.Fatalf("%d rows were read", len(rows))
	}
	for row, tests := range rows {
		if len(tests) == 0 {
			t.Errorf("docs/jobs.md: %s names no test", row)
		}
		for _, test := range tests {
			named[test] = true
			if !names[test] {
				t.Errorf("docs/jobs.md: %s names the test %q, which does not exist", row, test)
			}
		}
	}
	text, err := os.ReadFile("kinds_test.go")
	must(t, err)
	for _, m := range regexp.MustCompile(`(?m)t\.Run\("([^"]+)"|^\t\t\{"([^"]+)", `).FindAllStringSubmatch(string(text), -1) {
		if name := m[1] + m[2]; !named[name] {
			t.Errorf("docs/jobs.md has no row for %q of TestKinds", name)
		}
	}
}
