package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/eval"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

const smallTable = "../../testdata/workloads/small.csv"

// TestEvalSmall compares estimators with figures that others measured on real GPUs: the default one on five rows, and at night all on
// all rows of the small table. The bounds are what the default one must keep to.
func TestEvalSmall(t *testing.T) {
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", lib)
	t.Setenv("OMP_NUM_THREADS", "1")
	answers := filepath.Join(t.TempDir(), "answers.csv")
	plot := filepath.Join(t.TempDir(), "plot.svg")
	args := []string{"eval", smallTable, "-o", answers, "--python", torchtest.Python(t, "2.6.0"), "--plot", plot}
	rows, asked := 5, []string{bundled.Default}
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		rows, asked = 15, bundled.Names()
		args = append(args, "--workers", "2", "--timeout", "2m") // what a CPU cannot train in that time is unknown to the estimators that need it to
	} else {
		args = append(args, "--estimators", bundled.Default, "--only", "quick")
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), args, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit %d\n%s%s", code, stdout.String(), stderr.String())
	}
	t.Logf("\n%s%s", stdout.String(), stderr.String())
	table, err := eval.ReadTable(smallTable)
	if err != nil {
		t.Fatal(err)
	}
	got, err := eval.ReadAnswers(answers)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range asked {
		n := 0
		for _, row := range table {
			if _, ok := got.Find(row.Workload, name); ok {
				n++
			}
		}
		if n != rows {
			t.Errorf("%s: %d answers, want %d", name, n, rows)
		}
	}
	c, err := eval.Compare(table, got)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Scores() {
		if s.Group == eval.AllGroups && s.Estimator == bundled.Default && (s.Answered != s.Rows || s.MedianError > 0.05 || s.Covered < 1 || s.OOMForeseen != s.OOMRows || s.FalseOOM > 0) {
			t.Errorf("%+v", s)
		}
	}
	if picture, err := os.ReadFile(plot); err != nil || !strings.Contains(string(picture), bundled.Default+": ") {
		t.Errorf("the picture: %v, %d bytes", err, len(picture))
	}
	// All is there: the same command runs nothing more.
	stderr.Reset()
	if code := run(t.Context(), args, &stdout, &stderr); code != exitOK || strings.Contains(stderr.String(), " left: ") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
}

// TestEvalRefuses holds that what cannot be compared costs no run.
func TestEvalRefuses(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const header = "workload,gpu,measured_bytes,truth\n"
	good := write("good.csv", header+"train.py,a100-40,1,crash\n")
	out := filepath.Join(folder, "out.csv")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{good}, exitUsage, "-o ANSWERS.csv"},
		{[]string{good, "-o", out, "--only", "zzz"}, exitError, "no row holds"},
		{[]string{good, good, "-o", out}, exitUsage, "one table"},
		{[]string{good, "-o", out, "--again=some"}, exitUsage, "--again=all"},
		{[]string{good, "-o", out, "--again", "--print"}, exitUsage, "give one of them"},
		{[]string{good, "-o", out, "--workers", "3"}, exitUsage, "--workers is 1 to 2"},
		{[]string{good, "-o", out, "--estimators", "vgpu,nobody"}, exitUsage, "there are vgpu"},
		{[]string{good, "-o", out, "--python", "no-such-python"}, exitUsage, "no-such-python"},
		{[]string{filepath.Join(folder, "none.csv"), "-o", out}, exitError, "no such file"},
		{[]string{write("bad.csv", header+"train.py,a100-40,much,exact\n"), "-o", out}, exitError, "bad.csv:2:18: measured_bytes"},
		{[]string{write("lost.csv", header+"no.py,a100-40,1,exact\n"), "-o", out, "--python", "sh"}, exitError, "lost.csv:2:1: no script no.py"},
		{[]string{good, "-o", good, "--python", "sh"}, exitError, "good.csv:1:"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(context.Background(), append([]string{"eval"}, c.args...), &stdout, &stderr)
		if code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%v: exit %d, %q; want %d and %q", c.args, code, stderr.String(), c.code, c.says)
		}
	}
}
