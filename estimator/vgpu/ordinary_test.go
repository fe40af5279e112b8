package vgpu

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestOrdinaryPrograms: programs as people write them, each also run to its own end with nothing left out: an answer that is relied on has what that took.
func TestOrdinaryPrograms(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		return // two runs of forty-one programs
	}
	listed, err := exec.Command(torchtest.Python(t, "2.6.0"), "-c", "import ast; print(*[n.name for n in ast.parse(open('testdata/ordinary.py').read()).body if isinstance(n, ast.FunctionDef) and not n.args.args])").Output()
	if err != nil {
		t.Fatal(err)
	}
	// What each batch of these differs in is said, or they go by values; the figure is not held to anything.
	low := []string{"curriculum_of_lengths", "progressive_resizing", "stream_of_an_epoch", "adam_then_lbfgs", "replay_on_the_card", "early_stopping", "buckets", "stream_grows", "stream_counts", "stream_of_workers", "stream_of_the_last_worker", "stream_counted_by_the_last_worker", "stream_of_shards",
		"hard_examples", "thaws_by_its_rate", "samples_by_the_batch", "stream_that_is_numbered"}
	for names := range slices.Chunk(strings.Fields(string(listed)), 3) { // an interpreter has five minutes
		ends := runEach(t, "2.6.0", "testdata/ordinary.py", names, "GRESIZE_PROBE_STEPS=1000000")
		outcomes := runEach(t, "2.6.0", "testdata/ordinary.py", names, inTimeLapse)
		for _, name := range names {
			o, end := outcomes[name], ends[name]
			if end.failed || end.reports.Stopped {
				t.Errorf("%s: its own end: failed %v, stopped %v\n%s", name, end.failed, end.reports.Stopped, end.output)
				continue
			}
			as := trace.Completed
			if o.reports.Stopped {
				as = trace.Stopped
			}
			e, whole := o.estimate(t, as), end.estimate(t, trace.Completed).Ranks[0]
			truth, peak, sure := whole.PeakAllocatedBytes, e.Ranks[0].PeakAllocatedBytes, e.Confidence.AtMost(estimator.High) == estimator.High
			most := e.Ranks[0].ComfortableHighBytes
			t.Logf("%s: %s, %d of %d MiB allocated, at most %d of %d MiB needed", name, e.Confidence, peak>>20, truth>>20, most>>20, whole.ComfortableBytes>>20)
			if sure && (peak < truth-truth/20-8*mib || most < whole.ComfortableBytes) || !sure && !slices.Contains(low, name) || o.failed {
				t.Errorf("%s: failed %v, confidence %s, %d of %d MiB allocated, at most %d of %d MiB needed, %q\n%s", name, o.failed, e.Confidence, peak>>20, truth>>20, most>>20, whole.ComfortableBytes>>20, reasonsText(e), o.output)
			}
		}
	}
}
