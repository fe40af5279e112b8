package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrongFilesAndFlags walks through what people get wrong: each answer names the file or the flag and the way out, in one line, with the exit code of the manual.
func TestWrongFilesAndFlags(t *testing.T) {
	dir := t.TempDir()
	at := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, noise := at("empty", ""), at("noise", "\x00\xff\x13noise\n\x01")
	nowhere := filepath.Join(dir, "none", "file")
	bundle := "../../estimator/methods/bundled/testdata/vgpu.bundle"
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"log", "--db", empty}, exitError, []string{empty, "no decision log", "--db names another file"}},
		{[]string{"report", "--db", noise}, exitError, []string{noise, "no decision log", "--db names another file"}},
		{[]string{"show", "5", "--db", noise}, exitError, []string{noise, "--db names another file"}},
		{[]string{"export", "--db", nowhere}, exitError, []string{nowhere, "no such file", "--db names another file"}},
		{[]string{"simulate", noise}, exitError, []string{noise, "neither a trace bundle"}},
		{[]string{"plan", empty}, exitError, []string{empty, "neither a trace bundle"}},
		{[]string{"plot", noise}, exitError, []string{noise, "gresize estimate --bundle FILE -- COMMAND makes one"}},
		{[]string{"plot", bundle, "-o", nowhere + ".svg"}, exitError, []string{"write " + nowhere + ".svg: no such file"}},
		{[]string{"estimate", "--bundle", nowhere, "--", "true"}, exitUsage, []string{"--bundle: write " + nowhere + ": no such file"}},
		{[]string{"estimate", "--budget", "5", "--", "true"}, exitUsage, []string{"--budget", "such as 90s, 5m or 1h30m"}},
		{[]string{"estimate", "--steps", "99999999999999999999", "--", "true"}, exitUsage, []string{"--steps", "out of range"}},
		{[]string{"estimate", "--steps", "0", "--", "true"}, exitUsage, []string{"--steps 0: it must be positive"}},
		{[]string{"estimate", "--gpus", "-1", "--", "true"}, exitUsage, []string{"--gpus -1: it must be positive"}},
		{[]string{"fit", "--budget", "0s", "--", "train", "--batch-size", "{}"}, exitUsage, []string{"--budget 0s: it must be positive"}},
		{[]string{"plan", bundle, "--time-limit", "x"}, exitUsage, []string{"--time-limit", "such as 90s"}},
		{[]string{"replay", "--with", nowhere}, exitError, []string{nowhere, "or name another file"}},
		{[]string{"replay", "--with", noise}, exitError, []string{noise + ":1:", "UTF-8"}},
		{[]string{"actual", "add"}, exitUsage, []string{"give --job ID and --gpu-memory SIZE"}},
		{[]string{"actual", "add", "--job", "5", "--gpu-memory", "5"}, exitUsage, []string{"--gpu-memory", "5", "for example"}},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), c.args, &out, &errs)
		said := errs.String() + out.String()
		for _, says := range c.says {
			if code != c.code || !strings.Contains(said, says) {
				t.Errorf("%q: exit code %d, want %d, saying %q:\n%s", c.args, code, c.code, says, said)
			}
		}
		if strings.Contains(said, ".file-") || strings.Contains(said, "strconv") {
			t.Errorf("%q speaks of what nobody named:\n%s", c.args, said)
		}
	}
}
