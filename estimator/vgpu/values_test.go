package vgpu

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// often gives all of the list at night, and the first of it in every run: each is several starts of PyTorch.
func often(list ...string) []string {
	return oftenOf(1, list...)
}

// oftenOf gives all of the list at night, and the first n of it in every run.
func oftenOf(n int, list ...string) []string {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return list[:n]
	}
	return list
}

// TestEndThatNoProgramIsAt: where nothing is found the program fails, which a real one does not; with every other one and with everything found it needs about the same.
func TestEndThatNoProgramIsAt(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			outcomes, e := threeSides(t, release, PolicyHalf, "testdata/values.py", "windows")
			for side, o := range outcomes {
				if o.failed != (side == PolicyLow) {
					t.Fatalf("%s: %s", side, o.output)
				}
			}
			if e.Confidence != estimator.High || !e.HasReason("values_bounded") {
				t.Errorf("%+v", e)
			}
		})
	}
}

// threeSides runs a program with all three kinds of answers, and answers as the runner does where the first is that of first.
func threeSides(t *testing.T, release, first string, args ...string) (map[string]outcome, estimator.Estimate) {
	t.Helper()
	outcomes := map[string]outcome{}
	for _, side := range allSides {
		outcomes[side] = runPython(t, release, 1, args, "GRESIZE_VGPU_VALUES="+side)
	}
	return outcomes, answerOf(t, outcomes, first)
}

var allSides = []string{PolicyLow, PolicyHalf, PolicyHigh}

func answerOf(t *testing.T, outcomes map[string]outcome, first string) estimator.Estimate {
	t.Helper()
	bundles := map[string]*trace.Bundle{}
	var others []*trace.Bundle
	for _, side := range allSides {
		o, ended := outcomes[side], trace.Stopped
		if o.failed {
			ended = trace.Crashed
		}
		bundles[side] = &trace.Bundle{Manifest: trace.Manifest{Outcome: ended, Steps: o.reports.Steps, Reasons: o.reports.Reasons}, Ranks: o.reports.Ranks}
		if side != first {
			others = append(others, bundles[side])
		}
	}
	b := bundles[first]
	if err := errors.Join(AddOtherSide(b, others[0]), AddOtherSide(b, others[1])); err != nil {
		t.Fatal(err)
	}
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	e := Estimate(b, profile)
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	return e
}

// sides runs one case of testdata/values.py on either side and answers as the runner does.
func sides(t *testing.T, release, name string) (low, high outcome, e estimator.Estimate) {
	t.Helper()
	low = runPython(t, release, 1, []string{"testdata/values.py", name})
	high = runPython(t, release, 1, []string{"testdata/values.py", name}, "GRESIZE_VGPU_VALUES=high")
	bundle := func(o outcome) *trace.Bundle {
		return &trace.Bundle{Manifest: trace.Manifest{Outcome: trace.Stopped, Steps: o.reports.Steps, Reasons: o.reports.Reasons}, Ranks: o.reports.Ranks}
	}
	b := bundle(low)
	if err := AddOtherSide(b, bundle(high)); err != nil {
		t.Fatalf("%v\n%s\n%s", err, low.output, high.output)
	}
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	e = Estimate(b, profile)
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	return low, high, e
}

// TestValues holds what the program would need with its real values against the interval of the two sides.
func TestValues(t *testing.T) {
	var names []string
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		names = []string{"moe", "packed", "yolo", "ppo", "generate"} // the truth takes minutes on a busy machine
	}
	for _, name := range names {
		for _, release := range often("2.6.0", "2.11.0") {
			t.Run(name+"-"+release, func(t *testing.T) {
				low, high, e := sides(t, release, name)
				if low.failed || high.failed {
					t.Fatalf("%s\n%s", low.output, high.output)
				}
				record := filepath.Join(t.TempDir(), "record")
				script := []string{"testdata/truth.py", "record", record, "testdata/values.py", name}
				if o := runPython(t, release, 1, script, "DEVICE=cpu", "GRESIZE_VGPU_REPORT_DIR=", "OMP_NUM_THREADS=1"); o.failed {
					t.Fatal(o.output)
				}
				script[1] = "replay"
				truth := runPython(t, release, 1, script)
				if truth.failed || len(truth.ranks) != 1 {
					t.Fatal(truth.output)
				}
				k := e.Ranks[0]
				need := truth.ranks[0].PeakReservedBytes + k.OutsideBytes
				least := k.ComfortableBytes
				if k.ComfortableLowBytes > 0 {
					least = k.ComfortableLowBytes
				}
				t.Logf("reserved: %d and %d MiB, truth %d MiB", low.ranks[0].PeakReservedBytes/mib, high.ranks[0].PeakReservedBytes/mib, truth.ranks[0].PeakReservedBytes/mib)
				t.Logf("truth %d MiB in %d to %d MiB, %s %v", need/mib, least/mib, k.ComfortableHighBytes/mib, e.Confidence, e.Reasons)
				if need < least || need > k.ComfortableHighBytes {
					t.Errorf("truth %d is not in %d to %d", need, least, k.ComfortableHighBytes)
				}
				if name == "moe" && !e.HasReason("values_bounded") {
					t.Errorf("reasons %v", e.Reasons)
				}
			})
		}
	}
}

// TestKnownLengths: lengths that the host knows stay known through a packed sequence and back.
func TestKnownLengths(t *testing.T) {
	o := runPython(t, "2.6.0", 1, []string{"testdata/values.py", "packed"})
	if o.failed || len(o.ranks) != 1 {
		t.Fatal(o.output)
	}
	if v := o.ranks[0].Coverage.Values; len(v.Uses) > 0 || v.Followed == 0 {
		t.Errorf("%d followed, answered by a policy: %v", v.Followed, v.Uses)
	}
}

// TestSizesOfTheCard: what a tensor of the card is, is its size wherever it is given for one; one that nobody knows is a policy's.
func TestSizesOfTheCard(t *testing.T) {
	for _, release := range often("2.11.0", "2.6.0") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, release, 1, []string{"testdata/sizes.py", "known"})
			if o.failed || len(o.ranks) != 1 {
				t.Fatal(o.output)
			}
			if c := o.ranks[0].Coverage; len(c.Values.Uses) > 0 || c.ValuesPerStep > 0 {
				t.Errorf("%.1f values a step, answered by a policy: %v", c.ValuesPerStep, c.Values.Uses)
			}
			for _, side := range []string{PolicyLow, PolicyHalf, PolicyHigh} {
				o := runPython(t, release, 1, []string{"testdata/sizes.py", "unknown"}, "GRESIZE_VGPU_VALUES="+side)
				if o.failed || len(o.ranks) != 1 {
					t.Fatalf("%s: %s", side, o.output)
				}
				if o.ranks[0].Coverage.Values.Uses["size"] == 0 {
					t.Errorf("%s: answered by a policy: %v", side, o.ranks[0].Coverage.Values.Uses)
				}
			}
		})
	}
}

// TestSizesOfWhatWasRead: what the program makes of floats that it read, and takes a size from or decides by, differs between the sides; what it prints does not.
func TestSizesOfWhatWasRead(t *testing.T) {
	names := oftenOf(6, "printed", "counted", "of_an_array", "right_ones", "by_its_exponential", "voxels", "cast", "summed", "averaged", "of_a_tensor_on_the_host", "hard_ones", "sure_ones", "above_a_half")
	for _, release := range often("2.11.0", "2.6.0") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			sides := map[string]map[string]*outcome{}
			for _, side := range allSides {
				sides[side] = runEach(t, release, "testdata/sizes.py", names, "GRESIZE_VGPU_VALUES="+side)
			}
			for _, name := range names {
				outcomes := map[string]outcome{}
				for _, side := range allSides {
					outcomes[side] = *sides[side][name]
					if outcomes[side].failed {
						t.Fatalf("%s, %s: %s", name, side, outcomes[side].output)
					}
				}
				e, want := answerOf(t, outcomes, PolicyLow), estimator.Low
				if name == "printed" {
					want = estimator.High
					r, err := parseRank(outcomes[PolicyLow].reports.Ranks[0].Report)
					if err != nil || !r.Coverage.Values.fetchedOnly() || r.Coverage.Decisions > 0 {
						t.Errorf("to print decides something: %v, %+v", err, r.Coverage)
					}
				}
				if e.Confidence != want || !e.HasReason("values_bounded") && !e.HasReason("values_compared") {
					t.Errorf("%s: %+v", name, e)
				}
			}
		})
	}
}

// TestOrdinaryReads: programs that a GPU runs well run here, whatever they read.
func TestOrdinaryReads(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, release, 1, []string{"testdata/values.py", "reads"}, "GRESIZE_PROBE_STEPS=100", "OMP_NUM_THREADS=1")
			if o.failed || len(o.ranks) != 1 {
				t.Fatal(o.output)
			}
			if o.reports.ValuesReadBack < 10 {
				t.Errorf("%d values read back: what was made up counts as much as what was not", o.reports.ValuesReadBack)
			}
			for name := range o.ranks[0].Coverage.Values.Uses {
				if name != "ctc_loss" && name != useFetched { // lengths that are not known; what is only read
					t.Errorf("%s was answered by a policy", name)
				}
			}
		})
	}
}

// TestTablesOfCounts: a table with places for all classes has a known size, whatever the card finds; one without is answered by a policy.
func TestTablesOfCounts(t *testing.T) {
	for name, want := range map[string]map[string]int64{
		"confusion":           {},
		"confusion_by_values": {"bincount": 4, "unique": 1, "repeat_interleave": 1},
	} {
		for _, release := range often("2.6.0", "2.11.0") {
			t.Run(name+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := runPython(t, release, 1, []string{"testdata/values.py", name}, "GRESIZE_PROBE_STEPS=100", "OMP_NUM_THREADS=1")
				if o.failed || len(o.ranks) != 1 {
					t.Fatal(o.output)
				}
				uses := o.ranks[0].Coverage.Values.Uses
				for operator := range uses {
					uses[operator] /= 6 // steps
				}
				if !maps.Equal(uses, want) {
					t.Errorf("in a step, answered by a policy: %v, want %v", uses, want)
				}
			})
		}
	}
}

// TestFailureByValues: where a program fails after it went by values that nobody computed, the reasons say so.
func TestFailureByValues(t *testing.T) {
	t.Parallel()
	o := runPython(t, "2.6.0", 1, []string{"testdata/values.py", "fails"})
	if !o.failed || !slices.ContainsFunc(o.reports.Reasons, func(r estimator.Reason) bool { return r.Code == "values_read_back" }) {
		t.Errorf("failed %v, reasons %v\n%s", o.failed, o.reports.Reasons, o.output)
	}
}

// TestLossDriven: a program that looks at its losses neither stops early nor fails nor writes a checkpoint because of values that nobody computed.
func TestLossDriven(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0") {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			best := filepath.Join(t.TempDir(), "best.pt")
			o := runPython(t, release, 1, []string{"testdata/values.py", "driven", best})
			if o.failed || !o.reports.Stopped || o.reports.Steps < 4 {
				t.Errorf("stopped %v after %d steps\n%s", o.reports.Stopped, o.reports.Steps, o.output)
			}
			if _, err := os.Stat(best); err == nil {
				t.Error("a checkpoint was written because of a loss that was not computed")
			}
		})
	}
}

func TestFollowingChangesNoAllocation(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0") {
		for _, name := range often("mlp", "transformer") {
			t.Run(name+"-"+release, func(t *testing.T) {
				t.Parallel()
				with, without := train(t, release, name), train(t, release, name, "GRESIZE_VGPU_VALUES=off")
				if len(with.ranks) != 1 || len(without.ranks) != 1 {
					t.Fatal(with.output, without.output)
				}
				a, b := with.ranks[0], without.ranks[0]
				if a.PeakAllocatedBytes != b.PeakAllocatedBytes || a.PeakReservedBytes != b.PeakReservedBytes || a.Segments != b.Segments {
					t.Errorf("with %d and %d, without %d and %d", a.PeakAllocatedBytes, a.PeakReservedBytes, b.PeakAllocatedBytes, b.PeakReservedBytes)
				}
				v := a.Coverage.Values
				t.Logf("%d tensors followed in %.4f s of %.1f s", v.Followed, v.Seconds, a.WallSeconds)
				if v.Followed == 0 || v.Seconds > a.WallSeconds/10 {
					t.Errorf("%d followed in %.3f s of %.1f s", v.Followed, v.Seconds, a.WallSeconds)
				}
			})
		}
	}
}
