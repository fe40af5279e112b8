package policy

import (
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
)

// afterDeath decides for a job whose run ended for want of memory on a card that is no smaller than the one that was asked for: what it needs is not known, and that it
// dies on what it asked for is. Where the site allows upsizing it points to the next larger card, on which the job is tried before anything is changed.
func (r Rules) afterDeath(in Input) (d Decision, dies bool) {
	e := in.Estimate
	count := gpusAsked(in.Asked)
	asked, specific, known := r.askedBytes(in.Asked, count)
	tried := r.FitsOf(e.GPU)
	if e.Confidence != estimator.Unknown || e.Fits || !known || !specific || tried < asked-asked/16 || tried == 0 ||
		!e.HasReason(estimator.CodeOutOfMemory) {
		return Decision{}, false
	}
	if !r.Upsizing {
		return leave(decision.CodeNeedsMore, "the job ran out of memory on a %s, no smaller than the %s that was asked for (%s)", e.GPU, quantity.GiB(asked), in.Asked), true
	}
	for _, row := range r.Rows {
		// Without its profile the job could not be tried there.
		if row.FitsBytes <= tried || row.Profile == "" || row.Profile == e.GPU || count > 1 && row.Slice {
			continue
		}
		if word, _ := r.elsewhere(in.Asked, row.Target); word != "" {
			continue
		}
		change, err := r.change(in, row)
		if err != nil {
			continue
		}
		d := Decision{Verdict: decision.Rewrite, Code: decision.CodeUpsized, Target: row.Target, Change: change, Profile: row.Profile, FitsBytes: row.FitsBytes}
		d.Reason = "the job ran out of memory on a " + e.GPU + ", and would die on what was asked for (" + in.Asked.String() + ", " + quantity.GiB(asked) + "); " + change.Result.String() + " (" + quantity.GiB(row.FitsBytes) + ") is the next larger row"
		return d, true
	}
	return leave(decision.CodeFitsNothing, "the job ran out of memory on a %s, and no larger row of the site's table may be given", e.GPU), true
}
