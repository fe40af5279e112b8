package vgpu

import (
	"os"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// TestWhatALaterStepDoes: what a loop's own counter brings soon is waited for; what it brings late lowers the confidence, unless it is logging or saving.
func TestWhatALaterStepDoes(t *testing.T) {
	const largeBatch = 65536 * 512 * 4 // one tensor of the larger batch
	for name, want := range map[string]struct {
		confidence estimator.Confidence
		atLeast    int64
		says       string
		always     bool // the others are run every night
	}{
		"grows_soon":             {estimator.High, 3 * largeBatch, "run_cut_short", true},
		"chooses_soon":           {estimator.High, 3 * largeBatch, "run_cut_short", false},
		"grows_while_it_gathers": {estimator.High, 3 * largeBatch, "run_cut_short", false},
		"grows_late":             {estimator.Low, 0, "later.py line 55, ", true},
		"trains_otherwise_late":  {estimator.Low, 0, "later.py line 63, ", false},
		"validates_more_behind":  {estimator.Low, 0, "later.py line 71", false},
		"evaluates_late":         {estimator.High, 0, "an evaluation was not reached (later.py line 79, ", false},
		"ordinary":               {estimator.High, 0, "steps were seen: memory", true},
	} {
		if !want.always && os.Getenv("GRESIZE_NIGHTLY") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, "2.6.0", 1, []string{"testdata/later.py", name})
			e := o.estimate(t, trace.Stopped)
			var said []string
			for _, r := range e.Reasons {
				said = append(said, r.Code+": "+r.Detail)
			}
			if o.failed || e.Confidence != want.confidence || e.Ranks[0].PeakAllocatedBytes < want.atLeast || !strings.Contains(strings.Join(said, "\n"), want.says) {
				t.Errorf("failed %v, confidence %s, allocated %d, %q\n%s", o.failed, e.Confidence, e.Ranks[0].PeakAllocatedBytes, said, o.output)
			}
		})
	}
}

// TestPlacesAhead: what a program's own process reports is cut down to what a reason may hold.
func TestPlacesAhead(t *testing.T) {
	reported := make([]string, 100)
	for i := range reported {
		reported[i] = "a\nb " + strings.Repeat("ä", 1000)
	}
	places := placesAhead(reported)
	if len(places) != placesMost || len([]rune(places[0])) != placeRunesLimit || strings.Contains(places[0], "\n") || placesAhead(nil) != nil {
		t.Errorf("%d places, the first %q", len(places), places[0])
	}
}
