package policy

import (
	"testing"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

func TestMargin(t *testing.T) {
	r := Rules{MarginPercent: 10, MarginMinBytes: gib / 2, FloorPercent: 1, FloorMinBytes: gib / 8}
	for _, c := range []struct {
		high  int64
		given Calibrated
		want  int64
		kind  string
	}{
		{100 * gib, Calibrated{}, 100 * gib / 100 * 10, decision.MarginFixed}, {gib, Calibrated{}, gib / 2, decision.MarginFixed}, {8 * gib, Calibrated{Worst: 1.25}, 2 * gib, decision.MarginSeen},
		{8 * gib, Calibrated{Worst: 0.5}, 8 * gib / 100 * 10, decision.MarginFixed}, {8 * gib, Calibrated{Ratio: 1.25, Worst: 2}, 2 * gib, decision.MarginCalibrated},
		{8 * gib, Calibrated{Ratio: 1}, gib / 8, decision.MarginFloor}, {100 * gib, Calibrated{Ratio: 1}, 100 * gib / 100, decision.MarginFloor}, {8 * gib, Calibrated{Ratio: 1e300}, 8 * 99 * gib, decision.MarginCalibrated},
	} {
		if got, kind := r.margin(c.high, c.given); got != c.want || kind != c.kind {
			t.Errorf("%d with %+v: %d %s, want %d %s", c.high, c.given, got, kind, c.want, c.kind)
		}
	}
}

// TestCalibratedMarginDecides: what jobs have used moves a job over the end of a row, in both directions.
func TestCalibratedMarginDecides(t *testing.T) {
	in := Input{Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"}, Estimate: estimate(11*gib, estimator.Exact), Version: release.Version{Major: 22, Minor: 5, Micro: 8}}
	for _, c := range []struct {
		given Calibrated
		fits  string
	}{{Calibrated{}, ""}, {Calibrated{Ratio: 1.01}, "rtx3060"}, {Calibrated{Ratio: 1.2}, ""}} {
		in.Margin = c.given
		d := table().Decide(in)
		if d.Profile != c.fits && c.fits != "" || c.fits == "" && d.Profile == "rtx3060" || d.NeedBytes != 11*gib+d.MarginBytes {
			t.Errorf("%+v: %+v", c.given, d)
		}
	}
}
