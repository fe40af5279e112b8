package vgpu

import (
	"os"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/methods/faketensor"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// faked runs a case of testdata/fake.py with tensors that have no content.
func faked(t *testing.T, release, name string, more ...string) *faketensor.Report {
	t.Helper()
	dir := t.TempDir()
	o := runInterpreter(t, torchtest.Python(t, release), 1, []string{"testdata/fake.py", name}, append(more, "GRESIZE_PROBE_MODE=fake", "GRESIZE_VGPU_REPORT_DIR="+dir)...)
	run, err := faketensor.ReadRun(dir)
	if err != nil || len(run.Reports) != 1 {
		t.Fatalf("%v, %+v\n%s", err, run, o.output)
	}
	return run.Reports[0]
}

func TestFake(t *testing.T) {
	const weights = int64(4 * (1024*4096 + 4096 + 4096*10 + 10))
	releases := []string{"2.6.0"}
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		releases = append(releases, "2.11.0")
	}
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			// Weights, gradients, two states of the optimizer, and what it makes on the way for all parameters at once.
			if r := faked(t, release, "whole"); r.Reason != "stopped" || r.Steps < 3 || r.ValuesRead == 0 || r.PeakBytes() < 5*weights || r.PeakBytes() > 6*weights {
				t.Errorf("%+v", r)
			}
			// Weights and gradients; input, hidden units, output; the sum and its gradient. The labels are not on the card yet.
			const published = 2*weights + 4*(128*1024+128*4096+128*10) + 4 + 4
			if r := faked(t, release, "whole", "GRESIZE_PROBE_PARTS=published"); r.Form != "published" || r.AfterBackwardBytes != published || r.Steps != 0 {
				t.Errorf("%+v, want %d", r, int64(published))
			}
			if r := faked(t, release, "masked"); r.Reason != "exception" || !strings.Contains(r.WithoutContent, "nonzero") && !strings.Contains(r.WithoutContent, "index") {
				t.Errorf("%+v", r)
			}
			// The weight, its gradient, those of both of its uses, and their sum: a weight that was not shared any more would be there twice.
			if r := faked(t, release, "tied"); r.Reason != "stopped" || r.PeakBytes() < 3*4*64000 || r.PeakBytes() >= 6*4*64000 {
				t.Errorf("%+v", r)
			}
		})
	}
}
