package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestPipesAreRefused names a pipe that nobody writes to wherever a file is wanted: opening one would wait for ever, and no signal would end it.
func TestPipesAreRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe.json")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(dir, "table.csv")
	if err := os.WriteFile(table, []byte("id\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"log", "--db", pipe}, {"log", "--config", pipe}, {"show", "--db", pipe, "1"}, {"explain", "--db", pipe, "1"}, {"report", "--db", pipe}, {"export", "--db", pipe, "jobs"}, {"top", "--db", pipe},
		{"replay", "--with", pipe}, {"eval", pipe, "-o", filepath.Join(dir, "answers.csv")}, {"gpu", "show", pipe}, {"estimate", "--gpu", pipe, "--", "true"},
		{"simulate", pipe}, {"plan", pipe}, {"plot", pipe}, {"calibrate", "--compare", pipe, "--gpu", "h100"},
		{"actual", "add", "--config", pipe, "--job", "1", "--gpu-memory", "1GiB"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &out, &errs)
		if code != exitError && code != exitUsage || !strings.Contains(errs.String(), "pipe") || !strings.Contains(errs.String(), "no regular file") {
			t.Errorf("%q: exit code %d: %s", args, code, errs.String())
		}
	}
}
