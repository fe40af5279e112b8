package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/methods/bundled"
)

// serveArgument makes this test's own program what `gresize-estimator serve NAME` is. A plugin gets no environment of its host's, so its
// arguments say which.
const serveArgument = "serve"

func TestMain(m *testing.M) {
	if contract.Starter() {
		os.Exit(contract.StartPlugin())
	}
	if len(os.Args) == 3 && os.Args[1] == serveArgument {
		root := newRootCommand()
		root.SetArgs(os.Args[1:])
		if err := root.Execute(); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestList(t *testing.T) {
	out, _, err := execute(t, "list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 1+len(bundled.Names()) || !strings.HasPrefix(lines[0], "NAME ") || !strings.HasPrefix(lines[1], bundled.Default+" ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestVersion(t *testing.T) {
	if out, _, err := execute(t, "--version"); err != nil || !strings.HasPrefix(out, "gresize estimator version ") {
		t.Errorf("%v: %q", err, out)
	}
}

// TestHelp holds that the help names the command that a person types.
func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args  []string
		usage string
	}{{[]string{"--help"}, "gresize estimator [command]"}, {[]string{"run", "--help"}, "gresize estimator run PLUGIN --bundle FILE --gpu NAME"}, {[]string{"check", "--help"}, "gresize estimator check PLUGIN"}} {
		out, _, err := execute(t, c.args...)
		if err != nil || !strings.Contains(out, c.usage) {
			t.Errorf("%v: %v, no %q in\n%s", c.args, err, c.usage, out)
		}
	}
}

func TestRunAndCheck(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := filepath.Abs("../../estimator/methods/bundled/testdata/vgpu.bundle")
	if err != nil {
		t.Fatal(err)
	}
	out, errs, err := execute(t, "run", "--bundle", bundle, "--gpu", "a100-80", "--", self, serveArgument, "vgpu")
	var e estimator.Estimate
	if err != nil || json.Unmarshal([]byte(out), &e) != nil || e.Validate() != nil || e.Estimator != "vgpu" || len(e.Ranks) != 1 || !strings.Contains(errs, "contract 1: start ") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
	out, _, err = execute(t, "check", "--", self, serveArgument, "vgpu")
	if err != nil || strings.Count(out, " ok\n") < 7 {
		t.Errorf("%v\n%s", err, out)
	}
	out, _, err = execute(t, "check", "--", self, serveArgument, "nobody")
	if err == nil || !strings.Contains(err.Error(), "cases failed") || strings.Contains(out, " ok\n") {
		t.Errorf("a plugin that does not start: %v\n%s", err, out)
	}
}

// TestCheckOfAPluginThatFloods: what it wrote is told once, and the table has one line a case.
func TestCheckOfAPluginThatFloods(t *testing.T) {
	out, _, err := execute(t, "check", "sh", "--", "-c", "yes 'noise of a plugin' | head -c 100000 >&2")
	if err == nil || !strings.Contains(err.Error(), "cases failed") {
		t.Fatalf("%v\n%s", err, out)
	}
	table, whole, found := strings.Cut(out, "\n\nthe first failure in full: ")
	if !found || strings.Count(whole, "noise of a plugin") < 20 || strings.Count(whole, "\n") != 1 || len(whole) > 4<<10 {
		t.Errorf("the whole of the first failure: %d bytes\n%s", len(whole), out)
	}
	for line := range strings.Lines(table) {
		if len([]rune(line)) > 43+reportRunes+1 {
			t.Errorf("a line of %d letters: %s", len(line), line)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		says string
		code int
		args []string
	}{
		{"no-such-plugin", exitFailed, []string{"check", "no-such-plugin"}},
		{"give --bundle FILE and --gpu NAME", exitUsage, []string{"run", "sh", "--gpu", "a100-80"}},
		{"nocard", exitUsage, []string{"run", "sh", "--bundle", "x", "--gpu", "nocard"}},
		{"--bundle: stat no-bundle: no such file", exitFailed, []string{"run", "sh", "--bundle", "no-bundle", "--gpu", "a100-80"}},
		{"there are vgpu", exitUsage, []string{"serve", "nobody"}},
		{`no command "dance"; see gresize estimator --help`, exitUsage, []string{"dance"}},
		{"a PLUGIN is wanted, 0 given", exitUsage, []string{"check"}},
		{"no argument is wanted, 1 given", exitUsage, []string{"list", "all"}},
		{"--dance", exitUsage, []string{"list", "--dance"}},
		{"exit status 0) before it said where it listens", exitFailed, []string{"run", "true", "--bundle", "../../estimator/methods/bundled/testdata/vgpu.bundle", "--gpu", "a100-80"}},
	} {
		if _, _, err := execute(t, c.args...); err == nil || !strings.Contains(err.Error(), c.says) || codeOf(err) != c.code {
			t.Errorf("%v: %v, want %q", c.args, err, c.says)
		}
	}
}
