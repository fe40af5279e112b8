package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/fit"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

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
	r := reading{answer.Answer{Estimate: estimator.Estimate{Schema: estimator.SchemaEstimate, Confidence: estimator.High, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: need, ComfortableBytes: need, ComfortableHighBytes: need + more}}},
		Status: answer.Fits, CapacityBytes: testCapacity, Headroom: &answer.Headroom{Bytes: testCapacity - need - more}, Outcome: trace.Stopped,
		WouldFit: []string{}, Owners: []answer.Owner{}, PeakByPurpose: map[string]int64{}, Command: []string{}, Notes: []string{}, Hints: []string{}}}
	switch {
	case need > testCapacity:
		r.Status, r.Fits, r.Confidence, r.Headroom = answer.DoesNotFit, false, estimator.Unknown, nil
	case need+more > testCapacity:
		r.Status = answer.Unknown
	}
	r.ExitCode = answer.ExitCode(r.Status)
	return r
}

func failed() reading {
	r := readingOf(1, 0)
	r.Status, r.ExitCode, r.Confidence, r.Headroom, r.Outcome, r.CommandExitStatus = answer.Failed, exitFailed, estimator.Unknown, nil, trace.Crashed, 1
	r.Reasons = []estimator.Reason{{Code: "script_failed", Detail: "ValueError: empty data set"}}
	return r
}

// TestFitTable: one row for each run, and a JSON form that keeps to its schema.
func TestFitTable(t *testing.T) {
	p, err := gpu.Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func(int) reading{
		"some fit": func(n int) reading { return readingOf(int64(n)*7, 0) }, "none fits": func(int) reading { return readingOf(2000, 0) },
		"all fit": func(int) reading { return readingOf(1, 0) }, "it fails": func(int) reading { return failed() },
		"too close": func(n int) reading { return readingOf(int64(n)*7, int64(n)) },
	} {
		s := fit.Search{First: 8, Step: 1, Most: 100, CapacityBytes: testCapacity, Try: func(n int) (fit.Run, error) { return fit.Run{Estimate: try(n).Answer}, nil }}
		got, err := s.Run()
		if err != nil {
			t.Fatal(err)
		}
		got.GPU = p.ID
		var b bytes.Buffer
		if err := printFit(&b, &got, p); err != nil || strings.Count(b.String(), "\n")-strings.Count(b.String(), "\n  because  ") != len(got.Runs)+2 {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
		data, err := json.Marshal(got)
		if err == nil {
			err = loadSchema(t).check(data)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
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
		{[]string{"estimate", "--what-if", "gpu=t4,batch=4", "--what-if", "gpu=t4", "--", "train.py", "{}"}, "batch=N"},
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
	low.Status, low.Confidence, low.Reasons = answer.Unknown, estimator.Low, []estimator.Reason{{Code: "values_read_back"}, {Code: "run_cut_short"}}
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
	s := fit.Search{First: 8, Step: 1, Most: 1 << 20, CapacityBytes: testCapacity, Try: func(n int) (fit.Run, error) {
		r := readingOf(int64(n)*100, 0)
		r.Reasons = []estimator.Reason{{Code: "run_cut_short", Detail: "4 steps"}, {Code: "workspace_bounded", Detail: fmt.Sprintf("with %d", n)}}
		return fit.Run{Estimate: r.Answer}, nil
	}}
	got, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	p, err := gpu.Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := printFit(&b, &got, p); err != nil {
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
