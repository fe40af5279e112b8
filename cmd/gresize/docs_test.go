package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	// codeSpans are the places of a page in which commands stand: blocks, and words in backquotes.
	codeSpans = regexp.MustCompile("(?s)```.*?\n```|`[^`\n]+`")
	ofGresize = regexp.MustCompile(`(?m)(?:^|[\s\x60$;|&(])(?:build/bin/)?gresize ([a-z][^\n\x60|;&)#]*)`)
	longFlag  = regexp.MustCompile(`^--([a-z][a-z0-9-]*)`)
)

// TestDocsNameWhatExists: each verb of gresize, and each option behind one, that a page of the manual names is one that there is.
func TestDocsNameWhatExists(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/accuracy/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, page := range append(append(pages, more...), "../../README.md", "../../RELIABILITY.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range codeSpans.FindAllString(string(text), -1) {
			span = strings.ReplaceAll(span, "\\\n", " ")
			for _, m := range ofGresize.FindAllStringSubmatch(span, -1) {
				commands++
				if fault := unknownIn(newRootCommand(), strings.Fields(m[1])); fault != "" {
					t.Errorf("%s: gresize %s: %s", filepath.Base(page), strings.TrimSpace(m[1]), fault)
				}
			}
		}
	}
	if commands < 100 {
		t.Errorf("only %d commands were found", commands)
	}
}

// unknownIn says what of a command line is not there.
func unknownIn(root *cobra.Command, words []string) string {
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return "there is no verb " + rest[0]
	}
	if cmd.DisableFlagParsing { // another program reads its options
		return ""
	}
	for _, word := range rest {
		if word == "--" {
			break
		}
		m := longFlag.FindStringSubmatch(word)
		if m == nil || m[1] == "help" {
			continue
		}
		if cmd.Flags().Lookup(m[1]) == nil && cmd.InheritedFlags().Lookup(m[1]) == nil {
			return word + " is none of its options"
		}
	}
	return ""
}

// TestUnknownIn keeps the law itself honest.
func TestUnknownIn(t *testing.T) {
	for line, says := range map[string]string{
		"log --since 7d": "", "log --csv --verdict=oom": "", "estimate --gpu x -- python a.py --batch 3": "", "estimator run P --bundle B": "", "slurm check /x.so": "", "log --help": "",
		"logg": "no verb", "slurm chekc": "no verb", "log --nope": "--nope", "fit --gpus=2 --stepz 3 -- x": "--stepz",
	} {
		if got := unknownIn(newRootCommand(), strings.Fields(line)); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%s: %q, want %q", line, got, says)
		}
	}
}
