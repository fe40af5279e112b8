package jobs

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

// deadOnTheSmall dies of memory on the small card and takes 20 GiB on any other.
type deadOnTheSmall struct{}

func (deadOnTheSmall) Estimate(_ context.Context, _ estimator.Job, _ *os.File, profile string) (estimator.Estimate, error) {
	if profile == "rtx3060" {
		e := estimator.NewUnknown("vgpu", profile, estimator.Reason{Code: "out_of_memory", Detail: "the job needs more than the modelled card"})
		e.Ranks = []estimator.Rank{{PeakReservedBytes: 11 * gib, ComfortableBytes: 11 * gib, ComfortableHighBytes: 11 * gib}}
		return e, nil
	}
	return estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: profile, Confidence: estimator.Exact, Fits: true, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: 20 * gib, ComfortableBytes: 20 * gib, ComfortableHighBytes: 20 * gib}}}, nil
}

// TestUpsizing: a job that dies on the card that it asked for is tried on the next larger one, and given that one when it holds it; where the site does not allow it, nothing is changed
// and the report counts it as too small.
func TestUpsizing(t *testing.T) {
	for _, upsizing := range []bool{true, false} {
		b := newBench(t, Enforce, time.Minute)
		b.manager.config.Estimator = deadOnTheSmall{}
		settings := *b.manager.settings()
		settings.Rules.Upsizing = upsizing
		settings.Rules.Rows[0].Profile, settings.Rules.Rows[1].Profile = "rtx3060", "a100-80"
		settings.ProfileOf = func(request.Request) string { return "rtx3060" }
		b.manager.Configure(settings)
		r := sample()
		r.Features = "gpu12g"
		_, token := b.submit(r)
		b.report(1)
		if !upsizing {
			b.ends(token, StateReleased, decision.CodeNeedsMore)
			continue
		}
		b.report(2)
		b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
		if d := b.story(token).Decisions; len(d) != 1 || d[0].Code != decision.CodeUpsized || d[0].Change.Result.Features != "gpu80g" || d[0].NeedBytes < 20*gib {
			t.Errorf("%+v", d)
		}
	}
}
