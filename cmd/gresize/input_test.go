package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
)

func TestWhatACommandGetsOnItsStandardInput(t *testing.T) {
	file := func(data []byte) *os.File {
		path := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	pipe := func(text string) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(text); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		if strings.HasSuffix(text, "end") {
			w.Close()
		}
		return r
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	rest := file([]byte("line\nrest"))
	if _, err := rest.Seek(5, 0); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte{'x'}, probe.MaxInputBytes+1)
	for name, c := range map[string]struct {
		command []string
		in      *os.File
		want    string
		says    string
	}{
		"a file":                        {[]string{"python", "-"}, file([]byte("a\xffb")), "a\xffb", ""},
		"the rest of a file":            {[]string{"python", "x.py"}, rest, "rest", ""},
		"a pipe that is asked for":      {[]string{"python", "-"}, pipe("to the end"), "to the end", ""},
		"a pipe that may never end":     {[]string{"python", "x.py"}, pipe("open"), "", ""},
		"no input":                      {[]string{"python", "-"}, null, "", ""},
		"a file too large":              {[]string{"python", "-"}, file(large), "", "larger than 16 MiB"},
		"a large file that nobody asks": {[]string{"python", "x.py"}, file(large), "", ""},
	} {
		got, err := inputFor(c.command, c.in)
		if string(got) != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %.40q, %v; want %q, %q", name, got, err, c.want, c.says)
		}
	}
	if at, err := rest.Seek(0, 1); err != nil || at != 5 {
		t.Errorf("the file is read from %d on now, %v; want it left at 5", at, err)
	}
}

func TestABundleOutlivesARunThatRecordedNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.gresize")
	empty := &trace.Bundle{Manifest: trace.Manifest{Schema: trace.Schema, Outcome: trace.Crashed}, Ranks: []trace.Rank{}}
	if notes, err := keepBundle(path, empty); err != nil || len(notes) != 0 {
		t.Fatalf("a new file: %q, %v", notes, err)
	}
	if err := os.WriteFile(path, []byte("good"), 0o600); err != nil {
		t.Fatal(err)
	}
	notes, err := keepBundle(path, empty)
	if data, _ := os.ReadFile(path); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "left as it was") || string(data) != "good" {
		t.Errorf("over an older one: %q, %v, the file holds %.20q", notes, err, data)
	}
	full := &trace.Bundle{Manifest: trace.Manifest{Schema: trace.Schema, Outcome: trace.Stopped, RankCount: 1}, Ranks: []trace.Rank{{Report: []byte(`{}`)}}}
	if notes, err := keepBundle(path, full); err != nil || len(notes) != 0 {
		t.Errorf("a run that recorded: %q, %v", notes, err)
	}
	if b, err := trace.ReadFile(path); err != nil || len(b.Ranks) != 1 {
		t.Errorf("the new bundle: %v", err)
	}
}
