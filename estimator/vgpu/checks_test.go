package vgpu

import (
	"testing"

	"github.com/gresize/gresize/estimator/trace"
)

// TestChecksPass: what PyTorch and programs check of values that nobody computed is what a working program has, on either side, and is no size.
func TestChecksPass(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0", "2.1.2") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			var peaks []int64
			for _, side := range []string{PolicyLow, PolicyHigh} {
				o := runPython(t, release, 1, []string{"testdata/checks.py", "checks"}, "GRESIZE_PROBE_STEPS=100", "OMP_NUM_THREADS=1", "GRESIZE_VGPU_VALUES="+side)
				if o.failed || len(o.ranks) != 1 {
					t.Fatalf("%s: %s", side, o.output)
				}
				peaks = append(peaks, o.ranks[0].PeakReservedBytes)
				for use := range o.ranks[0].Coverage.Values.Uses {
					if !branchUses[use] && use != useFetched { // what is only read
						t.Errorf("%s: %s was answered by a policy", side, use)
					}
				}
				if n := o.ranks[0].Coverage.ValuesPerStep; n > valuesPerStepExpected {
					t.Errorf("%s: %.1f values a step: a check is none", side, n)
				}
			}
			if peaks[0] != peaks[1] {
				t.Errorf("%d and %d bytes", peaks[0], peaks[1])
			}
		})
	}
}

// TestChecksPassWhenFollowingTookItsTime: a long run may ask more than there is time to follow; what it is told from then on is still what a working program is.
func TestChecksPassWhenFollowingTookItsTime(t *testing.T) {
	for _, side := range []string{PolicyLow, PolicyHigh} {
		for _, release := range often("2.6.0", "2.11.0") {
			t.Run(side+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := runPython(t, release, 1, []string{"testdata/checks.py", "rollout"}, "GRESIZE_PROBE_STEPS=100", "OMP_NUM_THREADS=1", "GRESIZE_VGPU_VALUES="+side)
				if o.failed || len(o.ranks) != 1 || o.ranks[0].Coverage.Values.Stopped != "time" {
					t.Errorf("%s", o.output)
				}
			})
		}
	}
}

// TestLoopsThatWaitForValuesEnd: with the same answer they would turn for ever; the reason says that an end was made up.
func TestLoopsThatWaitForValuesEnd(t *testing.T) {
	t.Parallel()
	for _, side := range often(PolicyLow, PolicyHigh) {
		o := runPython(t, "2.6.0", 1, []string{"testdata/checks.py", "loops"}, "GRESIZE_PROBE_STEPS=100", "OMP_NUM_THREADS=1", "GRESIZE_VGPU_VALUES="+side)
		if o.failed || len(o.ranks) != 1 || o.reports.Steps != 6 {
			t.Fatalf("%s: %d steps: %s", side, o.reports.Steps, o.output)
		}
		const use = "loop_by_values"
		if v := o.ranks[0].Coverage.Values; v.Uses[use] == 0 || v.branchesOnly() || !trace.PlainName(use) {
			t.Errorf("%s: %v", side, v.Uses)
		}
	}
}
