package packaging

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pages are the README and the manual.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("../docs", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			found[path] = ""
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found["../README.md"] = ""
	for path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[path] = string(text)
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

func TestLinksOfTheManual(t *testing.T) {
	for path, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

var (
	spoken = regexp.MustCompile("(?m)(?:`|^\\$? *)(?:build/bin/)?gresize ([a-z][a-z ]*)([^`\n]*)")
	option = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z-]*)`)
)

// TestCommandsOfTheManual holds the manual to the programs: each verb and each option of gresize that it names is there.
func TestCommandsOfTheManual(t *testing.T) {
	helps := map[string]string{}
	help := func(verb string) string {
		if text, ok := helps[verb]; ok {
			return text
		}
		text, err := exec.Command("../build/bin/gresize", append(strings.Fields(verb), "--help")...).Output()
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		helps[verb] = string(text)
		return helps[verb]
	}
	isVerb := func(parent, word string) bool {
		return regexp.MustCompile(`(?m)^  ` + word + ` `).MatchString(help(parent))
	}
	commands := 0
	for path, text := range pages(t) {
		for _, m := range spoken.FindAllStringSubmatch(text, -1) {
			var verb []string
			for _, word := range strings.Fields(m[1]) {
				if !isVerb(strings.Join(verb, " "), word) {
					break
				}
				verb = append(verb, word)
			}
			if len(verb) == 0 {
				t.Errorf("%s: there is no gresize %s", path, m[1])
				continue
			}
			commands++
			ours, _, _ := strings.Cut(m[1]+m[2], " -- ")
			known := option.FindAllString(help(strings.Join(verb, " ")), -1)
			for i := range known {
				known[i] = strings.TrimSpace(known[i])
			}
			for _, o := range option.FindAllStringSubmatch(ours, -1) {
				if !slices.Contains(known, o[1]) {
					t.Errorf("%s: gresize %s has no %s", path, strings.Join(verb, " "), o[1])
				}
			}
		}
	}
	if commands < 40 {
		t.Errorf("only %d commands were found in the manual", commands)
	}
}
