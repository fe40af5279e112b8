package eval

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract/contracttest"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
)

// answering is a method that says the same of every bundle of its mode.
func answering(name string, mode trace.Mode, parts ...trace.Part) bundled.Method {
	return bundled.Method{Name: name, Version: "1", Recording: trace.Recording{Mode: mode, Parts: parts}, Estimate: func(_ *trace.Bundle, _ *gpu.Profile) (estimator.Estimate, error) {
		return estimator.Estimate{Confidence: estimator.High, Fits: true, Ranks: []estimator.Rank{{PeakReservedBytes: 1 << 30, ComfortableBytes: 1 << 30, ComfortableHighBytes: 2 << 30}}}, nil
	}}
}

func someRows(n int) []Row {
	var rows []Row
	for i := range n {
		rows = append(rows, Row{Workload: Workload{Script: "train.py", Arguments: fmt.Sprint(i), GPU: "a100-80"}, MeasuredBytes: 1 << 30, Truth: Exact})
	}
	return rows
}

// sound runs nothing and gives a bundle of the wanted mode.
func sound(_ context.Context, _ Workload, card *gpu.Profile, r trace.Recording) (*trace.Bundle, error) {
	b := contracttest.SoundBundle(card)
	b.Manifest.Mode = r.Mode
	return b, nil
}

func open(t *testing.T, path string) *Answers {
	t.Helper()
	a, err := OpenAnswers(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestOneRunForEachMode holds that estimators which can share a run do, and that parts are asked for together.
func TestOneRunForEachMode(t *testing.T) {
	answers := open(t, filepath.Join(t.TempDir(), "a.csv"))
	defer answers.Close()
	var runs []string
	c := Comparison{Rows: append(someRows(1), someRows(1)...), Workers: 1, Answers: answers,
		Methods: []bundled.Method{answering("one", trace.ModeVGPU), answering("two", trace.ModeProfile), answering("three", trace.ModeVGPU, trace.PartModules)},
		Run: func(ctx context.Context, w Workload, card *gpu.Profile, r trace.Recording) (*trace.Bundle, error) {
			runs = append(runs, strings.Join(r.Environment(), " "))
			return sound(ctx, w, card, r)
		}}
	if err := c.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(runs, "|"); got != "GRESIZE_PROBE_PARTS=modules|GRESIZE_PROBE_MODE=profile" {
		t.Errorf("runs %q", got)
	}
	if len(answers.all) != 3 {
		t.Errorf("%d answers", len(answers.all))
	}
}

// TestGoesOn interrupts a comparison in the middle of a row, cuts the last line of the file, and goes on: each row is there once and whole.
func TestGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	var runs atomic.Int32
	compare := func(stopAfter int32) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := open(t, path)
		defer answers.Close()
		c := Comparison{Rows: someRows(7), Workers: 2, Answers: answers, Methods: []bundled.Method{answering("one", trace.ModeVGPU), answering("two", trace.ModeVGPU)},
			Run: func(ctx context.Context, w Workload, card *gpu.Profile, r trace.Recording) (*trace.Bundle, error) {
				if runs.Add(1) == stopAfter {
					cancel()
				}
				return sound(ctx, w, card, r)
			}}
		return c.Do(ctx)
	}
	if err := compare(4); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want that it was interrupted", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-9], 0o600); err != nil { // as a machine that lost its power leaves it
		t.Fatal(err)
	}
	before := runs.Load()
	if err := compare(0); err != nil {
		t.Fatal(err)
	}
	if again := runs.Load() - before; again >= 7 {
		t.Errorf("all %d rows were run again", again)
	}
	before = runs.Load()
	if err := compare(0); err != nil || runs.Load() != before {
		t.Errorf("%v, %d runs though all answers are there", err, runs.Load()-before)
	}
	answers, err := ReadAnswers(path)
	if err != nil || len(answers.all) != 14 {
		t.Fatalf("%v, %d answers, want 14", err, len(answers.all))
	}
	data, err = os.ReadFile(path)
	if err != nil || strings.Count(string(data), "\n") != 15 {
		t.Errorf("%v: not a line for each answer:\n%s", err, data)
	}
}

func TestOnlyOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	first := open(t, path)
	if _, err := OpenAnswers(path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second writer: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Close(); err != nil {
		t.Error(err)
	}
}

// TestRunFaults holds that a fault of a run ends the comparison, that of an estimator costs its own answer only, and a new version is asked again.
func TestRunFaults(t *testing.T) {
	answers := open(t, filepath.Join(t.TempDir(), "a.csv"))
	defer answers.Close()
	broken := answering("broken", trace.ModeVGPU)
	broken.Estimate = func(*trace.Bundle, *gpu.Profile) (estimator.Estimate, error) {
		return estimator.Estimate{}, errors.New("no idea")
	}
	c := Comparison{Rows: someRows(1), Workers: 1, Answers: answers, Methods: []bundled.Method{broken, answering("one", trace.ModeVGPU)}, Run: sound}
	if err := c.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, ok := answers.Find(c.Rows[0].Workload, "broken"); !ok || a.Verdict != Unknown || !strings.Contains(a.Reasons, "no idea") {
		t.Errorf("%t, %+v", ok, a)
	}
	c.Methods = []bundled.Method{answering("one", trace.ModeVGPU)}
	c.Methods[0].Version = "2"
	if err := c.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, _ := answers.Find(c.Rows[0].Workload, "one"); a.Version != "2" || a.Verdict != Fits {
		t.Errorf("%+v", a)
	}
	c.Rows, c.Run = someRows(3), func(context.Context, Workload, *gpu.Profile, trace.Recording) (*trace.Bundle, error) {
		return nil, errors.New("no virtual GPU")
	}
	if err := c.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "no virtual GPU") || !strings.Contains(err.Error(), "train.py 1") {
		t.Errorf("%v", err)
	}
	c.Workers = 3
	if err := c.Do(t.Context()); err == nil {
		t.Error("three workers")
	}
}

func TestBadAnswers(t *testing.T) {
	line := strings.Join(answerColumns, ",") + "\n"
	for text, says := range map[string]string{
		"a,b\n1,2\n": ":1:1: no column is called",
		line + "t.py,,a100-80,one,1,maybe,,,,high,,1,1,,\n":                  ":2:21: verdict",
		line + "t.py,,a100-80,one,1,fits,x,1,1,high,,1,1,,\n":                ":2:26: reserved_bytes",
		line + "t.py,,a100-80,one,1,fits,1,1,1,sure,,1,1,,\n":                ":2:32: confidence",
		line + "t.py,,a100-80,one,1,fits,1,1,1,high,,NaN,1,,\n":              ":2:38: run_seconds",
		line + "t.py,,a100-80,one,1,fits,1,1,1,high,,1,-1,,\n":               ":2:40: estimate_seconds",
		strings.Replace(line, "workload,arguments", "arguments,workload", 1): "another order",
	} {
		path := filepath.Join(t.TempDir(), "a.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAnswers(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.200q: %v, want %q", text, err, says)
		}
	}
}

// TestAgain holds that answers which are there are made once more when that is asked for, and only those: the new line counts.
func TestAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	answers := open(t, path)
	c := Comparison{Rows: someRows(3), Workers: 1, Answers: answers, Methods: []bundled.Method{answering("one", trace.ModeVGPU)}, Run: sound}
	slow := c.Rows[1].Workload
	if err := answers.Append(Answer{Workload: slow, Estimator: "one", Version: "1", Verdict: Unknown, Confidence: estimator.Unknown, Reasons: "budget_spent"}); err != nil {
		t.Fatal(err)
	}
	ran := 0
	c.Run = func(ctx context.Context, w Workload, card *gpu.Profile, r trace.Recording) (*trace.Bundle, error) {
		ran++
		return sound(ctx, w, card, r)
	}
	for _, x := range []struct {
		again func(Answer) bool
		runs  int
	}{
		{nil, 2},
		{func(a Answer) bool { return a.Verdict == Unknown }, 1},
		{func(a Answer) bool { return a.Verdict == Unknown }, 0},
		{func(Answer) bool { return true }, 3},
	} {
		ran, c.Again = 0, x.again
		if err := c.Do(t.Context()); err != nil || ran != x.runs {
			t.Errorf("%v, %d runs, want %d", err, ran, x.runs)
		}
	}
	if err := answers.Close(); err != nil {
		t.Fatal(err)
	}
	read, err := ReadAnswers(path)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := read.Find(slow, "one"); !ok || a.Verdict != Fits || len(read.all) != 3 {
		t.Errorf("%+v, %d answers", a, len(read.all))
	}
}

// TestForeignFileIsLeftAlone: what somebody names as the file of answers by mistake is refused and keeps every byte.
func TestForeignFileIsLeftAlone(t *testing.T) {
	for name, content := range map[string]string{
		"notes without an end of line": "one\ntwo", "a table": header + "train.py,,a100-40,1,exact,,,,\nx", "binary": "\x80\x04\n\x00\x01", "other columns": "workload,arguments\na,b",
	} {
		path := filepath.Join(t.TempDir(), "a.csv")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := OpenAnswers(path); err == nil {
			t.Errorf("%s: taken", name)
			_ = a.Close()
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != content {
			t.Errorf("%s: %v, now %q", name, err, now)
		}
	}
	// What an interruption left of the first line is made anew.
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("workload,argum"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Close(); err != nil {
		t.Error(err)
	}
	if _, err := ReadAnswers(path); err != nil {
		t.Error(err)
	}
}

// TestEstimatorsThatLie: whatever an estimator says, the others' answers are kept, the file can be read again, and what is no answer is unknown.
func TestEstimatorsThatLie(t *testing.T) {
	lie := func(name string, e estimator.Estimate, err error) bundled.Method {
		return bundled.Method{Name: name, Version: "1", Estimate: func(*trace.Bundle, *gpu.Profile) (estimator.Estimate, error) { return e, err }}
	}
	rank := func(bytes int64) []estimator.Rank {
		return []estimator.Rank{{PeakReservedBytes: bytes, ComfortableBytes: bytes, ComfortableHighBytes: bytes}}
	}
	flood := make([]estimator.Reason, 100_000)
	for i := range flood {
		flood[i] = estimator.Reason{Code: "values_read_back", Detail: strings.Repeat("x", 100)}
	}
	panics := lie("panics", estimator.Estimate{}, nil)
	panics.Estimate = func(*trace.Bundle, *gpu.Profile) (estimator.Estimate, error) { panic("out of range\n\x1b[2J") }
	path := filepath.Join(t.TempDir(), "a.csv")
	answers := open(t, path)
	methods := []bundled.Method{
		lie("negative", estimator.Estimate{Confidence: estimator.Exact, Fits: true, Ranks: rank(-1)}, nil),
		lie("enormous", estimator.Estimate{Confidence: estimator.Exact, Fits: true, Ranks: rank(1 << 62)}, nil),
		lie("sure-of-nothing", estimator.Estimate{Confidence: "certain", Fits: true, Ranks: rank(1)}, nil),
		lie("floods", estimator.Estimate{Confidence: estimator.High, Fits: true, Ranks: rank(1), Reasons: flood}, nil),
		lie("shouts", estimator.NewUnknown("shouts", "a100-80", estimator.Reason{Code: "not_covered", Detail: "a,b\"\r\n\x1b[2J\xff=cmd|x"}), nil),
		lie("fails", estimator.Estimate{}, errors.New("a line\nand one more\x00")),
		panics, answering("honest", trace.ModeVGPU),
	}
	c := Comparison{Rows: someRows(2), Workers: 2, Answers: answers, Methods: methods, Run: sound}
	if err := errors.Join(c.Do(t.Context()), answers.Close()); err != nil {
		t.Fatal(err)
	}
	read, err := ReadAnswers(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range methods {
		for _, row := range c.Rows {
			a, ok := read.Find(row.Workload, m.Name)
			if want := map[bool]Verdict{true: Fits, false: Unknown}[m.Name == "honest"]; !ok || a.Verdict != want || len(a.Reasons) > maxReasonBytes {
				t.Errorf("%s: %v %+v", m.Name, ok, a)
			}
		}
	}
	compared, err := Compare(c.Rows, read)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := compared.Print(&out, 5); err != nil || strings.ContainsAny(out.String(), "\x1b\x00\r") {
		t.Errorf("%v\n%q", err, out.String())
	}
}
