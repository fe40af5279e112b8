package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var changeName = regexp.MustCompile(`^changelog/unreleased/[a-z0-9-]+\.md$`)

// TestChangesWaitAsBullets: what tools/changelog joins must be a list in every file, or the version's section falls apart.
func TestChangesWaitAsBullets(t *testing.T) {
	for _, name := range treeFiles(t) {
		if filepath.Dir(name) != "changelog/unreleased" {
			continue
		}
		if !changeName.MatchString(name) {
			t.Errorf("%s: a change is named in small letters, digits and hyphens, and ends in .md", name)
		}
		text := string(read(t, name))
		if !strings.HasSuffix(text, "\n") || strings.Contains(text, "\n\n") {
			t.Errorf("%s: one list, no empty line, with a line feed at its end", name)
		}
		for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
			if !strings.HasPrefix(line, "- ") && (i == 0 || !strings.HasPrefix(line, "  ")) {
				t.Errorf("%s:%d: neither a bullet nor the rest of one: %q", name, i+1, line)
			}
		}
	}
}

// TestChangelogMakesAVersion runs the command on a copy of what it reads.
func TestChangelogMakesAVersion(t *testing.T) {
	for _, row := range []struct {
		name, version string
		changes       map[string]string
		wantOutput    string
		wantLog       string
	}{
		{"a version", "0.2.0", map[string]string{"b": "- Second.\n", "a": "- First,\n  in two lines.\n"}, "CHANGELOG.md has version 0.2.0", "# Changelog\n\n## 0.2.0\n\n- First,\n  in two lines.\n- Second.\n\n## 0.1.0\n\n- Old.\n"},
		{"a version that is there", "0.1.0", map[string]string{"a": "- First.\n"}, "has a version 0.1.0 already", ""},
		{"no version", "next", map[string]string{"a": "- First.\n"}, "three numbers are wanted", ""},
		{"no change", "0.2.0", nil, "no change waits", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := t.TempDir()
			for _, folder := range []string{"tools", "changelog/unreleased"} {
				if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			const before = "# Changelog\n\n## 0.1.0\n\n- Old.\n"
			write := func(name, text string, mode os.FileMode) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(root, name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			write("CHANGELOG.md", before, 0o644)
			write("tools/changelog", string(read(t, "tools/changelog")), 0o755)
			for name, text := range row.changes {
				write("changelog/unreleased/"+name+".md", text, 0o644)
			}
			out, err := exec.Command(filepath.Join(root, "tools/changelog"), row.version).CombinedOutput()
			if !strings.Contains(string(out), row.wantOutput) {
				t.Errorf("it says %q, want %q", out, row.wantOutput)
			}
			want := row.wantLog
			if want == "" {
				want = before
			}
			if (err == nil) != (row.wantLog != "") {
				t.Errorf("it ends with %v", err)
			}
			got, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("CHANGELOG.md is\n%s\nwant\n%s", got, want)
			}
			left, _ := filepath.Glob(filepath.Join(root, "changelog/unreleased/*.md"))
			if row.wantLog != "" && len(left) > 0 {
				t.Errorf("%v are still there", left)
			}
		})
	}
}
