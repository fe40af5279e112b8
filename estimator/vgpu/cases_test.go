package vgpu

import (
	"os"
	"os/exec"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestCases: programs on which an answer was once wrong, refused or needlessly unsure.
func TestCases(t *testing.T) {
	for name, want := range map[string]struct {
		args            []string
		steps           int   // that were seen, at least
		atLeast, atMost int64 // MiB
	}{
		"accumulates":                        {[]string{"accumulates"}, 4, 60, 80},
		"whole graph":                        {[]string{"whole_graph"}, 4, 60, 80},
		"compiler imported early":            {[]string{"compiler_imported_early", "dynamo"}, 4, 60, 80},
		"compiler imported for a function":   {[]string{"compiler_imported_early", "disabled"}, 4, 60, 80},
		"compiler imported for a wrapper":    {[]string{"compiler_imported_early", "wrapper"}, 4, 60, 80},
		"compiler imported for a checkpoint": {[]string{"compiler_imported_early", "checkpoint"}, 4, 60, 80},
		"permutes":                           {[]string{"permutes"}, 4, 60, 80},
		"rollout":                            {[]string{"rollout"}, 4, 60, 90},
		"windows":                            {[]string{"windows"}, 4, 60, 260},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var side []string
			if name == "windows" {
				side = []string{"GRESIZE_VGPU_VALUES=" + PolicyHigh} // a probe goes on to this side where the other ends in an error
			}
			o := runPython(t, "2.6.0", 1, append([]string{"testdata/cases.py"}, want.args...), side...)
			if o.failed || len(o.ranks) == 0 {
				t.Fatalf("failed %v\n%s", o.failed, o.output)
			}
			e := o.estimate(t, trace.Stopped)
			peak := e.Ranks[0].PeakAllocatedBytes / mib
			if o.reports.Steps < want.steps || peak < want.atLeast || peak > want.atMost || doubtsLater(e) || e.Confidence == estimator.Unknown {
				t.Errorf("%d steps, %d MiB allocated, confidence %s, %q", o.reports.Steps, peak, e.Confidence, reasonsText(e))
			}
		})
	}
}

// TestCasesOfLibraries: what a library's loop, callback or second call brings is in the figure: that of the same part alone.
func TestCasesOfLibraries(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // twelve starts of libraries
	}
	python := torchtest.Python(t, "2.11.0")
	for name, needs := range map[string]string{"search": "sklearn", "unfrozen": "lightning", "second_fit": "lightning"} {
		t.Run(name, func(t *testing.T) {
			// Not imported: without the virtual GPU this PyTorch finds no libraries of NVIDIA's.
			if exec.Command(python, "-c", "import importlib.util as u; assert u.find_spec('"+needs+"')").Run() != nil {
				t.Skipf("%s is not installed; PYTHONPATH may name a folder that has it: tools/accuracy/overlay makes one", needs)
			}
			sides := map[string]outcome{}
			for _, side := range allSides {
				sides[side] = runPython(t, "2.11.0", 1, []string{"testdata/cases_of_libraries.py", name}, inTimeLapse, "GRESIZE_VGPU_VALUES="+side, "GRESIZE_PROBE_SECONDS=600")
			}
			whole := sides[PolicyLow]
			alone := runPython(t, "2.11.0", 1, []string{"testdata/cases_of_libraries.py", name, "alone"})
			e := answerOf(t, sides, PolicyLow)
			if whole.failed || alone.failed || len(alone.ranks) == 0 || len(whole.ranks) == 0 || whole.ranks[0].PeakAllocatedBytes < alone.ranks[0].PeakAllocatedBytes*99/100 || e.Confidence.AtMost(estimator.High) != estimator.High {
				t.Errorf("confidence %s, %q\n%s\n%s", e.Confidence, reasonsText(e), whole.output, alone.output)
			}
		})
	}
}
