package vgpu

import (
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// TestLargestBatch: where samples have several sizes, a batch of the largest is run, and the answer is sure where the data set says how large they are.
func TestLargestBatch(t *testing.T) {
	t.Parallel()
	const longest = 16 * 512 * 4096 * 4 // one tensor of the batch that holds the longest text
	outcomes := runEach(t, "2.6.0", "testdata/largest.py", []string{"a_long_one", "cut_to_a_length", "too_many", "by_chance"}, inTimeLapse)
	for name, want := range map[string]struct {
		confidence estimator.Confidence
		atLeast    int64
	}{
		"a_long_one":      {estimator.High, 2 * longest},
		"cut_to_a_length": {estimator.High, 2 * longest},
		"too_many":        {estimator.Low, 0},
		"by_chance":       {estimator.Low, 0},
	} {
		o := outcomes[name]
		e := o.estimate(t, trace.Stopped)
		if peak := e.Ranks[0].PeakAllocatedBytes; o.failed || e.Confidence != want.confidence || peak < want.atLeast || peak > 4*longest || !e.HasReason("batches_vary") {
			t.Errorf("%s: failed %v, confidence %s, %d MiB allocated, %q\n%s", name, o.failed, e.Confidence, peak>>20, reasonsText(e), o.output)
		}
	}
}
