package vgpu

import (
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// TestHabitsOfPrograms holds what public programs do and what once went wrong with it.
func TestHabitsOfPrograms(t *testing.T) {
	for _, c := range []struct {
		name    string
		devices int
		decides bool // by a value that no kernel computed
	}{
		{name: "second_device", devices: 2},
		{name: "batch_sampler", devices: 1},
		{name: "default_device", devices: 1},
		{name: "masks", devices: 1},
		{name: "script", devices: 1, decides: true},
	} {
		for _, release := range []string{"2.6.0", "2.11.0"} {
			t.Run(c.name+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := runPython(t, release, c.devices, []string{"testdata/programs.py", c.name})
				if o.failed || !o.reports.Stopped || len(o.reports.UnansweredSymbols) != 0 {
					t.Fatalf("failed %v, stopped %v, unanswered %v\n%s", o.failed, o.reports.Stopped, o.reports.UnansweredSymbols, o.output)
				}
				if e := o.estimate(t, trace.Stopped); !c.decides && e.Confidence != estimator.High {
					t.Errorf("confidence %s: %v", e.Confidence, e.Reasons)
				}
			})
		}
	}
}

// TestAfterAnEpoch: an epoch is cut short, and what follows it is in the figure.
func TestAfterAnEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		atLeast int64
		full    bool
	}{
		"validates": {atLeast: 1024 * 32 * 30 * 30 * 4}, "fails_after_an_epoch": {}, "lingers_after_an_epoch": {}, "full_after_an_epoch": {full: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, "2.6.0", 1, []string{"testdata/programs.py", name})
			if c.full {
				if !o.failed || !o.reports.OutOfMemory || o.reports.Stopped {
					t.Errorf("failed %v, out of memory %v, stopped %v\n%s", o.failed, o.reports.OutOfMemory, o.reports.Stopped, o.output)
				}
				return
			}
			if o.failed || !o.reports.Stopped {
				t.Fatalf("failed %v, stopped %v\n%s", o.failed, o.reports.Stopped, o.output)
			}
			e := o.estimate(t, trace.Stopped)
			if e.Confidence != estimator.High || hasReason(e, "phase_not_reached") || !hasReason(e, "run_cut_short") || e.Ranks[0].PeakAllocatedBytes < c.atLeast {
				t.Errorf("%+v", e)
			}
		})
	}
}
