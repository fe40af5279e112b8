package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
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
		got, newEnv, err := WithBatch(strings.Fields(c.command), env, 7)
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
	if n := BatchOf([]string{"train.py", "--batch-size=48"}); n != 48 {
		t.Error(n)
	}
}

const testCapacity = int64(1000)

// answerOf is a run that needs so much, and as much more at the most.
func answerOf(need, more int64) answer.Answer {
	r := answer.Answer{Estimate: estimator.Estimate{Schema: estimator.SchemaEstimate, Confidence: estimator.High, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: need, ComfortableBytes: need, ComfortableHighBytes: need + more}}},
		Status: answer.Fits, CapacityBytes: testCapacity, Headroom: &answer.Headroom{Bytes: testCapacity - need - more}, Outcome: trace.Stopped,
		WouldFit: []string{}, Owners: []answer.Owner{}, PeakByPurpose: map[string]int64{}, Command: []string{}, Notes: []string{}, Hints: []string{}}
	switch {
	case need > testCapacity:
		r.Status, r.Fits, r.Confidence, r.Headroom = answer.DoesNotFit, false, estimator.Unknown, nil
	case need+more > testCapacity:
		r.Status = answer.Unknown
	}
	r.ExitCode = answer.ExitCode(r.Status)
	return r
}

func failed() answer.Answer {
	r := answerOf(1, 0)
	r.Status, r.ExitCode, r.Confidence, r.Headroom, r.Outcome, r.CommandExitStatus = answer.Failed, answer.ExitFailed, estimator.Unknown, nil, trace.Crashed, 1
	r.Reasons = []estimator.Reason{{Code: "script_failed", Detail: "ValueError: empty data set"}}
	return r
}

func TestSearch(t *testing.T) {
	linear := func(each int64) func(int) (Run, error) {
		return func(n int) (Run, error) { return Run{Estimate: answerOf(int64(n)*each, 0)}, nil }
	}
	for _, c := range []struct {
		name              string
		try               func(int) (Run, error)
		first, step, most int
		batch, fails      int
		status            string
		proven            bool
		runs              int // at most
	}{
		{"straight", linear(7), 8, 1, 1 << 20, 142, 143, answer.Fits, true, 9},
		{"steps of eight", linear(7), 8, 8, 1 << 20, 136, 144, answer.Fits, true, 8},
		{"the first is too large", linear(7), 1000, 1, 1 << 20, 142, 143, answer.Fits, true, 12},
		{"one alone fits", linear(900), 8, 1, 1 << 20, 1, 2, answer.Fits, true, 4},
		{"none fits", linear(2000), 8, 1, 1 << 20, 0, 1, answer.DoesNotFit, true, 4},
		{"all fit", linear(1), 8, 1, 100, 100, 0, answer.Fits, false, 5},
		{"too close between", func(n int) (Run, error) { return Run{Estimate: answerOf(int64(n)*7, int64(n))}, nil }, 8, 1, 1 << 20, 125, 143, answer.Fits, true, 15},
		// Another algorithm takes far more from 60 to 99: the search ends below that gap, and says no more than that 60 fails.
		{"not monotone", func(n int) (Run, error) {
			if n >= 60 && n < 100 {
				return Run{Estimate: answerOf(2*testCapacity, 0)}, nil
			}
			return Run{Estimate: answerOf(int64(n)*5, 0)}, nil
		}, 8, 1, 1 << 20, 59, 60, answer.Fits, true, 12},
		{"the command fails from some size on", func(n int) (Run, error) {
			if n > 50 {
				return Run{Estimate: failed()}, nil
			}
			return Run{Estimate: answerOf(int64(n), 0)}, nil
		}, 8, 1, 1 << 20, 32, 0, answer.Failed, false, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Search{First: c.first, Step: c.step, Most: c.most, CapacityBytes: testCapacity, Try: c.try}
			got, err := s.Run()
			if err != nil || got.Batch != c.batch || got.FailsAt != c.fails || got.Status != c.status || got.Proven != c.proven || len(got.Runs) > c.runs {
				var batches []int
				for _, run := range got.Runs {
					batches = append(batches, run.Batch)
				}
				got.Runs = nil
				t.Errorf("%v, runs of %v: %+v", err, batches, got)
			}
			checkResult(t, c.try, &got)
		})
	}
	s := Search{First: 1, Step: 1, Most: 9, Try: func(int) (Run, error) { return Run{}, errors.New("no sandbox") }}
	if _, err := s.Run(); err == nil {
		t.Error("the error of a run was lost")
	}
}

// checkResult holds an answer to its word: what it says was run, and is so.
func checkResult(t interface{ Errorf(string, ...any) }, try func(int) (Run, error), f *Result) {
	status := map[int]string{}
	for _, run := range f.Runs {
		if _, twice := status[run.Batch]; twice {
			t.Errorf("%d was run twice", run.Batch)
		}
		status[run.Batch] = run.Estimate.Status
		if r, _ := try(run.Batch); r.Estimate.Status != run.Estimate.Status {
			t.Errorf("%d: %s, not %s", run.Batch, run.Estimate.Status, r.Estimate.Status)
		}
	}
	if f.Batch > 0 && status[f.Batch] != answer.Fits {
		t.Errorf("%d was not run, or does not fit", f.Batch)
	}
	if next, ran := status[f.Batch+f.Step]; f.Proven && (!ran || next == answer.Fits) {
		t.Errorf("%d was not run, or fits", f.Batch+f.Step)
	}
	if f.FailsAt > 0 && status[f.FailsAt] != answer.DoesNotFit {
		t.Errorf("%d was not run, or does not fail", f.FailsAt)
	}
}

// TestSearchNeedsNoOrder: with memory that jumps about at will the answer is still one that was run.
func TestSearchNeedsNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := rapid.SliceOfN(rapid.Int64Range(1, 1500), 64, 64).Draw(t, "needs")
		more := rapid.Int64Range(0, 200).Draw(t, "more")
		try := func(n int) (Run, error) { return Run{Estimate: answerOf(needs[min(n, 64)-1], more)}, nil }
		s := Search{First: rapid.IntRange(1, 64).Draw(t, "first"), Step: rapid.IntRange(1, 5).Draw(t, "step"), Most: 64, CapacityBytes: testCapacity, Try: try}
		got, err := s.Run()
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, try, &got)
		if len(got.Runs) > 64 {
			t.Fatalf("%d runs", len(got.Runs))
		}
	})
}

// A search ends where it can tell no more: at an interval that is wider than what is left, at the end of its time, and where the size changes nothing.
func TestSearchEndsEarly(t *testing.T) {
	try := func(n int) (Run, error) {
		r := answerOf(int64(n)*7, 0)
		if len(r.Ranks) > 0 && r.Fits {
			r.Ranks[0].ComfortableHighBytes = r.Ranks[0].ComfortableBytes
		}
		return Run{Estimate: r, Asked: fmt.Sprint(n)}, nil
	}
	wide := func(n int) (Run, error) { return Run{Estimate: answerOf(int64(n)*int64(n)/16, 300)}, nil }
	runs := 0
	for name, c := range map[string]struct {
		s    Search
		says string
		most int
	}{
		"a narrow interval": {Search{Try: try, Coarse: true}, "; 143 does not", 9},
		"a wide interval":   {Search{Try: wide, Coarse: true}, "does not, or not for sure; what lies between was not tried (they differ by less than the interval tells: --exact)", 10},
		"no time":           {Search{Try: try, Spent: func() bool { runs++; return runs > 3 }}, "the time of --within was spent", 5},
	} {
		c.s.First, c.s.Step, c.s.Most, c.s.CapacityBytes = 8, 1, 1<<20, testCapacity
		got, err := c.s.Run()
		if err != nil || got.Status != answer.Fits || !strings.Contains(got.Proof(), c.says) || len(got.Runs) > c.most {
			t.Errorf("%s: %v, %d with %d runs: %q", name, err, got.Batch, len(got.Runs), got.Proof())
		}
		checkResult(t, c.s.Try, &got)
	}
	same := Search{First: 8, Step: 1, Most: 1 << 20, CapacityBytes: testCapacity, Try: func(int) (Run, error) {
		return Run{Estimate: answerOf(100, 0), Asked: "[512 2048]"}, nil
	}}
	got, err := same.Run()
	if err != nil || got.Status != answer.Unknown || got.Batch != 0 || len(got.Runs) != 2 || !strings.Contains(got.Why, "with 8 and 16 the command asked for the same memory") {
		t.Errorf("%v: %+v", err, got.Why)
	}
}
