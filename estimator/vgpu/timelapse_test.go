package vgpu

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// inTimeLapse lets a run go on after its first answer, as a probe does; the other tests end there.
const inTimeLapse = "GRESIZE_PROBE_QUICK=0"

// TestTimeLapse: what comes after the first answer is seen, by whatever loop of a library it comes, and what goes wrong there spoils no answer.
func TestTimeLapse(t *testing.T) {
	const (
		wide     = 4096 * 4096 * 4 // the large layer, beside which the others are small
		unfrozen = 16 * 1024 * 1024 * 4
		samples  = 250 * 64
	)
	for name, want := range map[string]struct {
		atLeast, atMost int64
		says, prints    string
	}{
		"a_search":                 {3 * wide, 5 * wide, "", ""},
		"unfrozen":                 {4 * unfrozen, 7 * unfrozen, "to its end", ""},
		"a_second_fit":             {3 * wide, 5 * wide, "to its end", ""},
		"fails_later":              {0, 2 * wide, "up to an error that real batches may not lead to (ValueError: too few batches", ""},
		"counts_batches":           {0, 2 * wide, "to its end", "counted 180"},
		"a_checkpoint_too_many":    {0, 2 * wide, "to its end", ""},
		"slow_at_last":             {0, 2 * wide, "in time-lapse", ""},
		"a_lazy_module":            {0, 2 * wide, "to its end", ""},
		"loaders_of_its_own":       {0, 2 * wide, "", ""},
		"counts_its_steps":         {3 * wide, 5 * wide, "to its end", ""},
		"two_step_in_turn":         {3 * wide, 5 * wide, "to its end", ""},
		"similarities":             {4 * samples * samples, 4*samples*samples + 2*wide, "to its end", ""},
		"similarities_by_the_host": {4 * samples * samples, 4*samples*samples + 2*wide, "to its end", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, "2.6.0", 1, []string{"testdata/lapse.py", name}, inTimeLapse, "GRESIZE_PROBE_SECONDS=400")
			as := trace.Completed
			if o.reports.Stopped {
				as = trace.Stopped
			}
			e := o.estimate(t, as)
			peak := e.Ranks[0].PeakAllocatedBytes
			if o.failed || e.Confidence.AtMost(estimator.High) != estimator.High || peak < want.atLeast || peak > want.atMost || !strings.Contains(reasonsText(e), want.says) || !strings.Contains(o.output, want.prints) {
				t.Errorf("failed %v, confidence %s, %d MiB allocated, %q\n%s", o.failed, e.Confidence, peak>>20, reasonsText(e), o.output)
			}
		})
	}
}

// TestAStreamThatTakesTime: where there was no time to come to a stream's later items, no answer rests on the first ones.
func TestAStreamThatTakesTime(t *testing.T) {
	o := runPython(t, "2.6.0", 1, []string{"testdata/lapse.py", "slow_stream"}, inTimeLapse)
	if e := o.estimate(t, trace.Stopped); o.failed || e.Confidence != estimator.Low || !strings.Contains(reasonsText(e), "a stream of Slow was not read on") {
		t.Errorf("failed %v, confidence %s, %q\n%s", o.failed, e.Confidence, reasonsText(e), o.output)
	}
}

func reasonsText(e estimator.Estimate) string {
	var said []string
	for _, r := range e.Reasons {
		said = append(said, r.Code+": "+r.Detail)
	}
	return strings.Join(said, "\n")
}

// TestAFailedLookIsLow: a fault of what looks at later steps leaves no answer that anybody relies on, and the program runs on.
func TestAFailedLookIsLow(t *testing.T) {
	for _, where := range oftenOf(7, "program.lines_not_run Blocks look", "program.call_stack Turns observe", "steady.kept_by_turns Leaves turn", "lapse.program_counters Counters step", "lapse.epoch_cut Phases again", "lapse.gathered Gathered batch", "lapse.time_lapse TimeLapse see",
		"program.lines_not_run Blocks takes", "program.lines_run Passed lost", "steady.kept_by_turns Leaves bytes", "lapse.counting_loops Loops steps_in_all", "lapse.counting_loops Loops places", "lapse.turn_numbers Notes landings", "lapse.epoch_cut Phases begin", "lapse.epoch_cut Phases gave",
		"lapse.gathered Gathered ended", "steady.steady_state Steadiness sample", "steady.steady_state Steadiness batch") {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, "2.6.0", 1, append([]string{"testdata/planted.py"}, strings.Fields(where)...), inTimeLapse)
			e := o.estimate(t, trace.Stopped)
			if o.failed || e.Confidence != estimator.Low || !strings.Contains(reasonsText(e), "could not be examined (KeyError)") {
				t.Errorf("failed %v, confidence %s, %q\n%s", o.failed, e.Confidence, reasonsText(e), o.output)
			}
		})
	}
}

// TestTurnsThatDiffer: of the turns of a counting loop that are left out, those come by at which the program's own questions have another answer.
func TestTurnsThatDiffer(t *testing.T) {
	const largeBatch = 65536 * 512 * 4 // one tensor of the larger batch
	for _, script := range []struct {
		name  string
		cases map[string]int64 // and the least that the case takes
	}{
		{"testdata/ahead.py", map[string]int64{"far": 3 * largeBatch, "another_epoch": 3 * largeBatch, "sizes_by_arithmetic": 3 * largeBatch, "two_deep": 3 * largeBatch, "a_property": 3 * largeBatch}},
		// Counters that the program counts up by itself.
		{"testdata/later.py", map[string]int64{"ends_behind": 3 * largeBatch, "ends_before": 0, "ordinary": 0}},
		{"testdata/evaluations.py", map[string]int64{"samples_more": 2 * 32768 * 512 * 4}},
		{"testdata/found.py", map[string]int64{"a_callback": 0, "a_log": 0}},
	} {
		names := slices.Sorted(maps.Keys(script.cases))
		outcomes := runEach(t, "2.6.0", script.name, names, inTimeLapse)
		for _, name := range names {
			o := outcomes[name]
			e := o.estimate(t, trace.Stopped)
			if o.failed || e.Confidence != estimator.High || e.Ranks[0].PeakAllocatedBytes < script.cases[name] {
				t.Errorf("%s: failed %v, confidence %s, %d MiB allocated, %q\n%s", name, o.failed, e.Confidence, e.Ranks[0].PeakAllocatedBytes>>20, reasonsText(e), o.output)
			}
		}
	}
}
