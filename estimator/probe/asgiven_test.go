package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/trace"
)

// keepsReports leaves the command's standard output and arguments where the test reads them: in the bundle's tail of the output, by failing.
const keepsReports = `
printf '%s\n' "$1" "$NAME" "$(pwd)" "$(cat)" | od -An -v -tx1 | tr -d ' \n'; exit 3`

// A command, its variables, its folder and its input are bytes, and need not be text.
func TestACommandIsRunByteForByte(t *testing.T) {
	for name, plain := range map[string]bool{"in the sandbox": false, "without": true} {
		dir := filepath.Join(t.TempDir(), "lat\xe9")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		script := filepath.Join(dir, "b\xe9.sh")
		if err := os.WriteFile(script, []byte(keepsReports), 0o755); err != nil {
			t.Fatal(err)
		}
		o := options(t, "")
		o.Command, o.Dir, o.NoSandbox = []string{"/bin/sh", "b\xe9.sh", "ar\xff"}, dir, plain
		o.Env = append(o.Env, "NAME=v\xfe")
		o.Input = []byte("in\xfd\x80")
		r := mustRun(t, o)
		want := "6172ff0a" + "76fe0a" + hexOf(dir) + "0a" + "696efd800a"
		if got := r.Bundle.Manifest.OutputTail; r.Bundle.Manifest.ExitStatus != 3 || strings.TrimSpace(got) != want {
			t.Errorf("%s: status %d, output\n%s\nwant 3 and\n%s", name, r.Bundle.Manifest.ExitStatus, got, want)
		}
	}
}

func hexOf(s string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func TestTheInputOfACommandCannotBeMadeLarger(t *testing.T) {
	o := options(t, `if printf more >>/proc/self/fd/0; then exit 9; fi; cat; exit 3`)
	o.Input = []byte("all of it")
	if r := mustRun(t, o); r.Bundle.Manifest.ExitStatus != 3 || !strings.Contains(r.Bundle.Manifest.OutputTail, "all of it") {
		t.Errorf("status %d, %q", r.Bundle.Manifest.ExitStatus, r.Bundle.Manifest.OutputTail)
	}
	o.Input = make([]byte, MaxInputBytes+1)
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Errorf("an input beyond the limit: %v", err)
	}
}

func TestPlacesThatAreNotThere(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	o := options(t, "exit 3")
	o.Env = append(o.Env, "TMPDIR="+os.Getenv("TMPDIR"))
	if r := mustRun(t, o); r.Bundle.Manifest.ExitStatus != 3 {
		t.Errorf("without the folder of TMPDIR: %+v", r.Bundle.Manifest)
	}
	gone := t.TempDir()
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	o.Dir = ""
	_, err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "working directory is gone") || !strings.Contains(err.Error(), "go to one") {
		t.Errorf("in a folder that was removed: %v", err)
	}
}

func TestAsManyArgumentsAsTheKernelTakes(t *testing.T) {
	o := options(t, `test $# = 9000 && exit 3`)
	o.Command = append(o.Command, "name")
	for range 9000 {
		o.Command = append(o.Command, "argument")
	}
	r := mustRun(t, o)
	command := r.Bundle.Manifest.Command
	if r.Bundle.Manifest.ExitStatus != 3 || len(command) != 4096 || command[4095] != "... and 4909 arguments more" {
		t.Errorf("status %d, %d arguments, the last %q", r.Bundle.Manifest.ExitStatus, len(command), command[len(command)-1])
	}
	o.Command = []string{"/bin/sh", "-c", "exit 3", strings.Repeat("x", 1<<17-1), "y"}
	for range 10 {
		o.Command = append(o.Command, o.Command[3])
	}
	if r := mustRun(t, o); r.Bundle.Manifest.ExitStatus != 3 || !strings.HasPrefix(r.Bundle.Manifest.Command[len(r.Bundle.Manifest.Command)-1], "... and ") {
		t.Errorf("long arguments: status %d", r.Bundle.Manifest.ExitStatus)
	}
}

func TestAProgramThatNeverCameIsNotBlamedOnContainers(t *testing.T) {
	o := options(t, "")
	o.Command = []string{"/bin/sh", "-"}
	r := mustRun(t, o)
	if r.Bundle.Manifest.Outcome != trace.NoTorch || strings.Contains(r.Estimate.Reasons[0].Detail, "container") || !strings.Contains(r.Estimate.Reasons[0].Detail, "standard input") {
		t.Errorf("%s: %+v", r.Bundle.Manifest.Outcome, r.Estimate.Reasons)
	}
}
