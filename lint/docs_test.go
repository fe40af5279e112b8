package lint

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	pageLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageSpan   = regexp.MustCompile("(?s)```.*?\n```|`[^`\n]+`")
	treePath   = regexp.MustCompile(`^[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+/?$`)
	makeTarget = regexp.MustCompile(`(?m)(?:^|[\x60;&|(]\s*)make ([a-z][a-z-]*)`)
	makeRule   = regexp.MustCompile(`(?m)^([a-z][a-z -]*):`)
)

// TestPagesNameWhatExists: each file, folder and make target that a page of the tree names is one that there is. CHANGELOG.md tells of what was.
func TestPagesNameWhatExists(t *testing.T) {
	exists := map[string]bool{}
	for _, name := range treeFiles(t) {
		for at := name; at != "."; at = path.Dir(at) {
			exists[at] = true
		}
	}
	targets := targetsOf(t)
	pages := 0
	for _, page := range sourceFiles(t, ".md") {
		if page == "CHANGELOG.md" {
			continue
		}
		pages++
		at := page
		if path.Dir(page) == "changelog/unreleased" {
			at = path.Base(page) // it becomes a part of CHANGELOG.md
		}
		for _, fault := range unknownOn(at, string(read(t, page)), exists, targets) {
			t.Errorf("%s: %s", page, fault)
		}
	}
	if pages < 30 {
		t.Errorf("only %d pages were read", pages)
	}
}

func targetsOf(t *testing.T) map[string]bool {
	t.Helper()
	targets := map[string]bool{}
	for _, m := range makeRule.FindAllStringSubmatch(string(read(t, "Makefile")), -1) {
		for _, target := range strings.Fields(m[1]) {
			targets[target] = true
		}
	}
	return targets
}

// unknownOn lists what a page names and is not in the tree. What a test made, and where the names of releases and cards stand for any, is no matter of the tree.
func unknownOn(page, text string, exists, targets map[string]bool) (faults []string) {
	for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
		to, _, _ := strings.Cut(m[1], "#")
		if to == "" || strings.Contains(to, ":") {
			continue
		}
		if !exists[path.Join(path.Dir(page), to)] {
			faults = append(faults, "a link to "+m[1]+", which does not exist")
		}
	}
	for _, span := range pageSpan.FindAllString(text, -1) {
		for _, m := range makeTarget.FindAllStringSubmatch(span, -1) {
			if !targets[m[1]] {
				faults = append(faults, "make "+m[1]+" is no target of the Makefile")
			}
		}
		for _, word := range strings.FieldsFunc(strings.Trim(span, "`"), func(r rune) bool { return strings.ContainsRune(" \t\n,;()'\"=", r) }) {
			word = strings.TrimPrefix(strings.TrimRight(word, ".:/"), "./")
			side, _, _ := strings.Cut(word, "/")
			// Below a package's own testdata the page says so by its place.
			if treePath.MatchString(word) && exists[side] && side != "testdata" && word == strings.ToLower(word) && !exists[word] {
				faults = append(faults, word+" does not exist")
			}
		}
	}
	return faults
}

// TestUnknownOn keeps the law itself honest.
func TestUnknownOn(t *testing.T) {
	exists := map[string]bool{"docs": true, "docs/a.md": true, "daemon": true, "daemon/web": true}
	targets := map[string]bool{"build": true}
	for text, says := range map[string]string{
		"[a](a.md#there) `docs/a.md` `daemon/web/` `make build` [x](https://x/y)": "",
		"[b](b.md)":                        "b.md",
		"`daemon/wub`":                     "daemon/wub",
		"```sh\n./daemon/old --flag\n```":  "daemon/old",
		"```sh\nmake all\n```":             "make all",
		"and then `make bulid`, if you do": "make bulid",
		"daemon/wub in a sentence, and `other/thing`, `/daemon/x`, make sure": "",
	} {
		got := strings.Join(unknownOn("docs/a.md", text, exists, targets), "; ")
		if (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%q: %q, want %q", text, got, says)
		}
	}
}
