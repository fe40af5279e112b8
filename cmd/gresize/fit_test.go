package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"pgregory.net/rapid"
)

func TestWithBatch(t *testing.T) {
	for _, c := range []struct{ command, env, want, wantEnv, err string }{
		{command: "train.py --n {} --out run-{}", want: "train.py --n 7 --out run-7"},
		{command: "env BATCH={} train.py --batch-size 3", want: "env BATCH=7 train.py --batch-size 3"},
		{command: "train.py --batch-size 32 --lr 1", want: "train.py --batch-size 7 --lr 1"},
		{command: "train.py --batch_size=32", want: "train.py --batch_size=7"},
		{command: "main.py -b 64 -a resnet50", want: "main.py -b 7 -a resnet50"},
		{command: "run.py --per_device_train_batch_size 8 --per_device_eval_batch_size 9", want: "run.py --per_device_train_batch_size 7 --per_device_eval_batch_size 9"},
		{command: "run.py train.batch_size=8 model=x", want: "run.py train.batch_size=7 model=x"},
		{command: "run.py -b {} --batch-size x", want: "run.py -b 7 --batch-size x"},
		{command: "git -b main", env: "BATCH_SIZE=9", want: "git -b main", wantEnv: "BATCH_SIZE=7"},
		{command: "train.py", env: "BATCH_SIZE=9", want: "train.py", wantEnv: "BATCH_SIZE=7"},
		{command: "train.py", err: "write {} where"},
		{command: "train.py --batch-size", err: "write {} where"},
		{command: "train.py --batch-size 3 -b 4", err: "2 times (--batch-size, -b)"},
	} {
		var env []string
		if c.env != "" {
			env = []string{"HOME=/", c.env}
		}
		got, newEnv, err := withBatch(strings.Fields(c.command), env, 7)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.command, err, c.err)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != c.want || c.wantEnv != "" && !slices.Contains(newEnv, c.wantEnv) {
			t.Errorf("%s: %v %v %v, want %s", c.command, got, newEnv, err, c.want)
		}
		if c.env != "" && !slices.Contains(env, c.env) {
			t.Errorf("%s: the caller's environment was changed", c.command)
		}
	}
	if n := batchOf([]string{"train.py", "--batch-size=48"}); n != 48 {
		t.Error(n)
	}
}

func TestParseWhatIf(t *testing.T) {
	for _, c := range []struct {
		text string
		want whatIf
		err  string
	}{
		{text: "gpu=l40s,batch=64,conf=expandable_segments:True", want: whatIf{gpu: "l40s", batch: 64, conf: "expandable_segments:True", setConf: true}},
		{text: "conf=max_split_size_mb:64,garbage_collection_threshold:0.8,batch=2", want: whatIf{batch: 2, conf: "max_split_size_mb:64,garbage_collection_threshold:0.8", setConf: true}},
		{text: "conf=", want: whatIf{setConf: true}},
		{text: "batch=0", err: "positive"},
		{text: "batch=many", err: "positive"},
		{text: "gpus=2", err: "gpu=NAME"},
		{text: "", err: "gpu=NAME"},
		{text: "gpu=t4,fast", err: "\"fast\""},
	} {
		got, err := parseWhatIf(c.text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.text, err, c.err)
			}
			continue
		}
		c.want.text = c.text
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v", c.text, got, err)
		}
	}
}

const testCapacity = int64(1000)

// readingOf is a run that needs so much, and as much more at the most.
func readingOf(need, more int64) reading {
	r := reading{Estimate: estimator.Estimate{Schema: estimator.SchemaEstimate, Confidence: estimator.High, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: need, ComfortableBytes: need, ComfortableHighBytes: need + more}}},
		Status: statusFits, CapacityBytes: testCapacity, Headroom: &headroom{Bytes: testCapacity - need - more}, Outcome: trace.Stopped,
		WouldFit: []string{}, Owners: []owner{}, PeakByPurpose: map[string]int64{}, Command: []string{}, Notes: []string{}, Hints: []string{}}
	switch {
	case need > testCapacity:
		r.Status, r.Fits, r.Confidence, r.Headroom = statusDoesNotFit, false, estimator.Unknown, nil
	case need+more > testCapacity:
		r.Status = statusUnknown
	}
	r.ExitCode = exitOf[r.Status]
	return r
}

func failed() reading {
	r := readingOf(1, 0)
	r.Status, r.ExitCode, r.Confidence, r.Headroom, r.Outcome, r.CommandExitStatus = statusFailed, exitFailed, estimator.Unknown, nil, trace.Crashed, 1
	r.Reasons = []estimator.Reason{{Code: "script_failed", Detail: "ValueError: empty data set"}}
	return r
}

func TestFitSearch(t *testing.T) {
	linear := func(each int64) func(int) (reading, error) {
		return func(n int) (reading, error) { return readingOf(int64(n)*each, 0), nil }
	}
	for _, c := range []struct {
		name              string
		try               func(int) (reading, error)
		first, step, most int
		batch, fails      int
		status            string
		proven            bool
		runs              int // at most
	}{
		{"straight", linear(7), 8, 1, 1 << 20, 142, 143, statusFits, true, 9},
		{"steps of eight", linear(7), 8, 8, 1 << 20, 136, 144, statusFits, true, 8},
		{"the first is too large", linear(7), 1000, 1, 1 << 20, 142, 143, statusFits, true, 12},
		{"one alone fits", linear(900), 8, 1, 1 << 20, 1, 2, statusFits, true, 4},
		{"none fits", linear(2000), 8, 1, 1 << 20, 0, 1, statusDoesNotFit, true, 4},
		{"all fit", linear(1), 8, 1, 100, 100, 0, statusFits, false, 5},
		{"too close between", func(n int) (reading, error) { return readingOf(int64(n)*7, int64(n)), nil }, 8, 1, 1 << 20, 125, 143, statusFits, true, 15},
		// Another algorithm takes far more from 60 to 99: the search ends below that gap, and says no more than that 60 fails.
		{"not monotone", func(n int) (reading, error) {
			if n >= 60 && n < 100 {
				return readingOf(2*testCapacity, 0), nil
			}
			return readingOf(int64(n)*5, 0), nil
		}, 8, 1, 1 << 20, 59, 60, statusFits, true, 12},
		{"the command fails from some size on", func(n int) (reading, error) {
			if n > 50 {
				return failed(), nil
			}
			return readingOf(int64(n), 0), nil
		}, 8, 1, 1 << 20, 32, 0, statusFailed, false, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fitSearch{first: c.first, step: c.step, most: c.most, capacity: testCapacity, try: c.try}
			got, err := s.search()
			if err != nil || got.Batch != c.batch || got.FailsAt != c.fails || got.Status != c.status || got.Proven != c.proven || len(got.Runs) > c.runs {
				var batches []int
				for _, run := range got.Runs {
					batches = append(batches, run.Batch)
				}
				got.Runs = nil
				t.Errorf("%v, runs of %v: %+v", err, batches, got)
			}
			checkFit(t, c.try, &got)
			p, err := gpu.Load("t4")
			if err != nil {
				t.Fatal(err)
			}
			got.GPU = p.ID
			var b bytes.Buffer
			if err := got.print(&b, p); err != nil || strings.Count(b.String(), "\n")-strings.Count(b.String(), "\n  because  ") != len(got.Runs)+2 {
				t.Errorf("%v\n%s", err, b.String())
			}
			data, err := json.Marshal(got)
			if err == nil {
				err = loadSchema(t).check(data)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	s := fitSearch{first: 1, step: 1, most: 9, try: func(int) (reading, error) { return reading{}, errors.New("no sandbox") }}
	if _, err := s.search(); err == nil {
		t.Error("the error of a run was lost")
	}
}

// checkFit holds an answer to its word: what it says was run, and is so.
func checkFit(t interface{ Errorf(string, ...any) }, try func(int) (reading, error), f *fitResult) {
	status := map[int]string{}
	for _, run := range f.Runs {
		if _, twice := status[run.Batch]; twice {
			t.Errorf("%d was run twice", run.Batch)
		}
		status[run.Batch] = run.Estimate.Status
		if r, _ := try(run.Batch); r.Status != run.Estimate.Status {
			t.Errorf("%d: %s, not %s", run.Batch, run.Estimate.Status, r.Status)
		}
	}
	if f.Batch > 0 && status[f.Batch] != statusFits {
		t.Errorf("%d was not run, or does not fit", f.Batch)
	}
	if next, ran := status[f.Batch+f.Step]; f.Proven && (!ran || next == statusFits) {
		t.Errorf("%d was not run, or fits", f.Batch+f.Step)
	}
	if f.FailsAt > 0 && status[f.FailsAt] != statusDoesNotFit {
		t.Errorf("%d was not run, or does not fail", f.FailsAt)
	}
}

// TestFitSearchNeedsNoOrder: with memory that jumps about at will the answer is still one that was run.
func TestFitSearchNeedsNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.Int64Range(1, 1500), 64, 64).Draw(t, "needs")
		more := rapid.Int64Range(0, 200).Draw(t, "more")
		try := func(n int) (reading, error) { return readingOf(needs[min(n, 64)-1], more), nil }
		s := fitSearch{first: rapid.IntRange(1, 64).Draw(t, "first"), step: rapid.IntRange(1, 5).Draw(t, "step"), most: 64, capacity: testCapacity, try: try}
		got, err := s.search()
		if err != nil {
			t.Fatal(err)
		}
		checkFit(t, try, &got)
		if len(got.Runs) > 64 {
			t.Fatalf("%d runs", len(got.Runs))
		}
	})
}

// A search ends where it can tell no more: at an interval that is wider than what is left, at the end of its time, and where the size changes nothing.
func TestFitEndsEarly(t *testing.T) {
	try := func(n int) (reading, error) {
		r := readingOf(int64(n)*7, 0)
		r.asked = fmt.Sprint(n)
		if len(r.Ranks) > 0 && r.Fits {
			r.Ranks[0].ComfortableHighBytes = r.Ranks[0].ComfortableBytes
		}
		return r, nil
	}
	wide := func(n int) (reading, error) { return readingOf(int64(n)*int64(n)/16, 300), nil }
	runs := 0
	for name, c := range map[string]struct {
		s    fitSearch
		says string
		most int
	}{
		"a narrow interval": {fitSearch{try: try, coarse: true}, "; 143 does not", 9},
		"a wide interval":   {fitSearch{try: wide, coarse: true}, "does not, or not for sure; what lies between was not tried (they differ by less than the interval tells: --exact)", 10},
		"no time":           {fitSearch{try: try, spent: func() bool { runs++; return runs > 3 }}, "the time of --within was spent", 5},
	} {
		c.s.first, c.s.step, c.s.most, c.s.capacity = 8, 1, 1<<20, testCapacity
		got, err := c.s.search()
		if err != nil || got.Status != statusFits || !strings.Contains(got.proof(), c.says) || len(got.Runs) > c.most {
			t.Errorf("%s: %v, %d with %d runs: %q", name, err, got.Batch, len(got.Runs), got.proof())
		}
		checkFit(t, c.s.try, &got)
	}
	same := fitSearch{first: 8, step: 1, most: 1 << 20, capacity: testCapacity, try: func(int) (reading, error) {
		r := readingOf(100, 0)
		r.asked = "[512 2048]"
		return r, nil
	}}
	got, err := same.search()
	if err != nil || got.Status != statusUnknown || got.Batch != 0 || len(got.Runs) != 2 || !strings.Contains(got.Why, "with 8 and 16 the command asked for the same memory") {
		t.Errorf("%v: %+v", err, got.Why)
	}
}

func TestFitUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"fit"}, "no command"},
		{[]string{"fit", "--", "train.py"}, "write {} where"},
		{[]string{"fit", "--step", "0", "--", "train.py", "-b", "3"}, "--step"},
		{[]string{"fit", "--from", "64", "--most", "32", "--", "train.py", "-b", "3"}, "--from 64 is above --most 32"},
		{[]string{"estimate", "--bundle", "/no/such/folder/b", "--", "train.py"}, "/no/such/folder"},
		{[]string{"estimate", "--bundle", "/", "--", "train.py"}, "/ is a folder"},
		{[]string{"fit", "--gpu", "abacus", "--", "train.py", "-b", "3"}, "rtx3060"},
		{[]string{"estimate", "--what-if", "size=3", "--", "train.py"}, "gpu=NAME"},
		{[]string{"estimate", "--what-if", "conf=bogus:1", "--", "train.py"}, "conf: PyTorch"},
		{[]string{"estimate", "--what-if", "gpu=abacus", "--", "train.py"}, "rtx3060"},
		{[]string{"estimate", "--what-if", "gpu=t4", "--", "train.py", "{}"}, "batch=N"},
		{[]string{"estimate", "--what-if", "batch=4", "--", "train.py"}, "write {} where"},
		{[]string{"estimate", "--bundle", "x", "--what-if", "batch=4", "--", "train.py", "-b", "4"}, "--bundle"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), c.text) || stdout.Len() != 0 {
			t.Errorf("%q: %d\n%s%s", c.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestWhatIfTable(t *testing.T) {
	low, full := readingOf(300, 0), readingOf(2000, 0)
	full.Reasons = []estimator.Reason{{Code: "run_cut_short"}}
	low.Status, low.Confidence, low.Reasons = statusUnknown, estimator.Low, []estimator.Reason{{Code: "values_read_back"}, {Code: "run_cut_short"}}
	table := whatIfTable{Schema: schemaWhatIf, Rows: []whatIfRow{{"", readingOf(500, 100)}, {"batch=9", full}, {"gpu=t4", low}, {"batch=1", failed()}}}
	for i := range table.Rows {
		table.Rows[i].Estimate.GPU, table.Rows[i].Estimate.CapacityBytes = "t4", 16<<30
	}
	var b bytes.Buffer
	if err := table.print(&b); err != nil {
		t.Fatal(err)
	}
	want := `WHAT IF     STATUS          GPU             RESERVED  NEEDED      AT MOST   HEADROOM        CONFIDENCE
(as given)  fits            t4 (16.00 GiB)  0.00 GiB  0.00 GiB    0.00 GiB  0.00 GiB (0 %)  high
batch=9     does not fit    t4 (16.00 GiB)  0.00 GiB  > 0.00 GiB  -         -               unknown
gpu=t4      unknown         t4 (16.00 GiB)  0.00 GiB  0.00 GiB    0.00 GiB  0.00 GiB (0 %)  low
batch=1     command failed  t4 (16.00 GiB)  0.00 GiB  0.00 GiB    0.00 GiB  -               unknown
because  rows 2, 3: only the first steps were run [run_cut_short]
because  row 3: the program reads values that only a real GPU would have computed [values_read_back]
because  row 4: the command failed: ValueError: empty data set [script_failed]
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	data, err := json.Marshal(table)
	if err == nil {
		err = loadSchema(t).check(data)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestFitSaysWhatItTries: whoever waits without a terminal sees a line for each size.
func TestFitSaysWhatItTries(t *testing.T) {
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", lib)
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"fit", "--gpu", "t4", "--", "sh", "-c", "exit 3", "sh", "-b", "4"}, &out, &errs)
	if code != exitFailed || !strings.HasPrefix(errs.String(), "gresize: batch 4: command failed, ") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit %d, %q:\n%s", code, errs.String(), out.String())
	}
}

func TestEvalHelpNamesTheRowsOnTop(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"eval", "--help"}, &out, &errs); code != exitOK || strings.Count(out.String(), "constants are taken from come on top") != 2 {
		t.Errorf("%d\n%s", code, out.String())
	}
}

// TestFitSaysWhyItIsNotSurer: the reasons of the answer and of the size that fails stand under the table, once each, and no others.
func TestFitSaysWhyItIsNotSurer(t *testing.T) {
	s := fitSearch{first: 8, step: 1, most: 1 << 20, capacity: testCapacity, try: func(n int) (reading, error) {
		r := readingOf(int64(n)*100, 0)
		r.Reasons = []estimator.Reason{{Code: "run_cut_short", Detail: "4 steps"}, {Code: "workspace_bounded", Detail: fmt.Sprintf("with %d", n)}}
		return r, nil
	}}
	got, err := s.search()
	if err != nil {
		t.Fatal(err)
	}
	p, err := gpu.Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := got.print(&b, p); err != nil {
		t.Fatal(err)
	}
	_, reasons, _ := strings.Cut(b.String(), "SECONDS\n")
	reasons = reasons[strings.Index(reasons, "  because"):]
	want := `  because  only the first steps were run: 4 steps [run_cut_short]
  because  batch 10: sizes of library workspaces are a model and not the library's own answer: with 10 [workspace_bounded]
  because  batch 11: sizes of library workspaces are a model and not the library's own answer: with 11 [workspace_bounded]
`
	if diff := cmp.Diff(want, reasons); diff != "" {
		t.Error(diff)
	}
}

// TestHeadroomBelowNothingIsNoZero: what reaches over the end of the card by some MiB is said in MiB.
func TestHeadroomBelowNothingIsNoZero(t *testing.T) {
	r := readingOf(testCapacity, 3<<20)
	if got := r.cells()[3]; got != "-3.0 MiB" {
		t.Error(got)
	}
}
