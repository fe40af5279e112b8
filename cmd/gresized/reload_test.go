package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/site"
)

// configured counts what a reload puts in force.
type configured []jobs.Settings

func (c *configured) Configure(s jobs.Settings) { *c = append(*c, s) }

// TestReload: a sound file is put in force, a broken one is named with its place and changes nothing.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gresize.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("version = 1\n")
	started, _, err := site.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var put configured
	r := reloader{path: path, address: "127.0.0.1:1", started: started.Config, manager: &put, logger: slog.New(slog.NewTextHandler(&log, nil))}
	const row = "[[target]]\nfits = \"12GiB\"\nconstraint = \"gpu12g\"\n"
	for _, c := range []struct {
		name, text string
		inForce    bool
		says       []string
	}{
		{"sound", "version = 1\nmode = \"enforce\"\n" + row, true, []string{"read again", "mode=enforce", "targets=1"}},
		{"a typo", "version = 1\n[probe]\nhlod = \"60s\"\n", false, []string{path + ":3:1", "probe.hlod", "did you mean hold?", "the earlier one stays in force"}},
		{"half a file", "version = 1\n[probe]\nhold = \"60", false, []string{path + ":3:"}},
		{"no such card", "version = 1\n[gpu.a]\nprofile = \"a101\"\n", false, []string{path + ":3:1", "gpu.a.profile", "gresize gpu list"}},
		{"a binary file", "\x7fELF\x02\x01\x01\x00\x00", false, []string{path + ":1:1"}},
		{"what needs a start", "version = 1\n[socket]\npath = \"/run/other.sock\"\n", true, []string{"key=socket", "next start", "read again"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log.Reset()
			before := len(put)
			write(c.text)
			r.reload()
			if got := len(put) > before; got != c.inForce {
				t.Errorf("put in force: %v, want %v", got, c.inForce)
			}
			for _, says := range c.says {
				if !strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), says) {
					t.Errorf("the log does not say %q:\n%s", says, log.String())
				}
			}
		})
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	before := len(put)
	if r.reload(); len(put) != before {
		t.Error("a file that is gone was put in force")
	}
	if last := put[len(put)-1]; last.Mode != jobs.Shadow {
		t.Errorf("in force at the end: %+v", last)
	}
}

// TestTwoDaemonsAtOnce: the second is told so and has not touched the log.
func TestTwoDaemonsAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "decisions.db")
	first, err := lockLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockLog(path); err == nil || !strings.Contains(err.Error(), "another gresized uses the decision log "+path) {
		t.Errorf("the second got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := lockLog(path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	again.Close()
}
