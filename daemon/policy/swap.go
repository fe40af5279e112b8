package policy

import (
	"fmt"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
)

// Swap are the rules for a card that is one size too small, with a plan by which what does not fit goes to host memory and comes back. The zero value never gives one.
type Swap struct {
	Allow bool
	// Slowdown is by how many times a step may be longer.
	Slowdown float64
}

// Planned is what is known of a plan that was tried.
type Planned struct {
	// Slowdown is by how many times a step is longer at most, HostBytes the pinned host memory that it takes.
	Slowdown  float64
	HostBytes int64
	// PlainHostBytes is the host memory that the job took without the plan.
	PlainHostBytes int64
	// MemMiB is the host memory that the job asked for with --mem; 0: it did not say.
	MemMiB uint64
}

// Smaller is the card that is one size too small for a job of which plain was decided: to be made a plan for and tried. A plan is for one process, and only what is known well is planned for.
func (r Rules) Smaller(in Input, plain Decision) (row Row, found bool) {
	e := in.Estimate
	if !r.Swap.Allow || plain.Verdict == decision.LeaveAlone || plain.NeedBytes <= 0 || e.Confidence != estimator.Exact && e.Confidence != estimator.High || !e.Fits ||
		len(e.Ranks) != 1 || gpusAsked(in.Asked) != 1 || sharesCard(in.Asked) || plain.Target.Shards > 0 || plain.Target.Counted != "" {
		return Row{}, false
	}
	for _, x := range r.Rows {
		if x.FitsBytes >= plain.NeedBytes {
			break
		}
		if x.Profile == "" {
			continue // it could not be tried there
		}
		if word, _ := r.elsewhere(in.Asked, x.Target); word != "" {
			continue
		}
		if _, err := r.change(in, x); err != nil {
			continue
		}
		row, found = x, true
	}
	return row, found
}

// TargetBytes is what a plan for a row may take by its point estimate, so that the estimate's upper end and its margin find room there, too.
func (r Rules) TargetBytes(in Input, plain Decision, row Row) int64 {
	rank, _ := in.Estimate.Largest()
	return row.FitsBytes - plain.MarginBytes - (rank.ComfortableHighBytes - rank.ComfortableBytes)
}

// WithPlan decides for a job that was tried with a plan on a smaller row's card: in.Estimate is what it needs with it.
func (r Rules) WithPlan(in Input, plain Decision, row Row, plan Planned) Decision {
	refuse := func(format string, args ...any) Decision { return leave(decision.CodeNoPlan, format, args...) }
	e := in.Estimate
	rank, ok := e.Largest()
	switch {
	case e.Validate() != nil || !ok || len(e.Ranks) != 1:
		return refuse("the run with the plan has no valid estimate")
	case e.Confidence != estimator.Exact && e.Confidence != estimator.High:
		return refuse("the confidence of the run with the plan is %s%s", e.Confidence, because(e.Reasons))
	case plan.Slowdown > r.Swap.Slowdown:
		return refuse("with the plan a step may take %.2f times as long, and the site allows %.2f", plan.Slowdown, r.Swap.Slowdown)
	}
	d := Decision{Verdict: decision.Rewrite, Code: decision.CodePlanned, Profile: row.Profile, FitsBytes: row.FitsBytes}
	d.MarginBytes, d.MarginKind = r.margin(rank.ComfortableHighBytes, in.Margin)
	if d.NeedBytes = rank.ComfortableHighBytes + d.MarginBytes; d.NeedBytes > row.FitsBytes || !e.Fits {
		return refuse("with the plan it needs %s with its margin, and the card has %s", quantity.GiB(d.NeedBytes), quantity.GiB(row.FitsBytes))
	}
	// The run with the plan has taken its pinned memory as far as it went.
	if hostMiB := max(e.HostPeakBytes, plan.PlainHostBytes+plan.HostBytes) >> 20; plan.HostBytes > 0 && uint64(hostMiB) >= plan.MemMiB {
		says := "it does not say with --mem what it may take"
		if plan.MemMiB > 0 {
			says = fmt.Sprintf("it asked for %d MiB", plan.MemMiB)
		}
		return refuse("the plan takes %s of pinned host memory beside the %s that the job takes, and %s", quantity.GiB(plan.HostBytes), quantity.GiB(plan.PlainHostBytes), says)
	}
	change, err := r.change(in, row)
	if err != nil {
		return refuse("the request cannot be changed: %v", err)
	}
	d.Target, d.Change = row.Target, change
	host := "nothing goes to the host"
	if plan.HostBytes > 0 {
		host = quantity.GiB(plan.HostBytes) + " of pinned host memory"
	}
	d.Reason = fmt.Sprintf("without a plan the job needs %s, and %s (%s) is one size too small; with a plan it needs %s there (%s, a step at most %.2f times as long by roofline), which the job's node puts under it",
		quantity.GiB(plain.NeedBytes), change.Result, quantity.GiB(row.FitsBytes), quantity.GiB(d.NeedBytes), host, plan.Slowdown)
	return d
}
