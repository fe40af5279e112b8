// Package replay decides jobs of the log again with another site's rules: what
// would that table have done? It asks nobody and changes nothing, and where the
// log cannot say, it says so.
package replay

import (
	"fmt"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

// Player decides again.
type Player struct {
	Rules policy.Rules
	// ProfileOf chooses the GPU profile on which a request is probed first.
	ProfileOf func(request.Request) string
	// Version is the release of Slurm for jobs of which the log does not know it.
	Version release.Version
}

// Result is what the rules make of a job.
type Result struct {
	Verdict decision.Verdict `json:"verdict"`
	Code    string           `json:"code"`
	Reason  string           `json:"reason"`
	// Now is what a rewrite asks for.
	Now request.Request `json:"now,omitzero"`
	// Untried is the card of which the log has no estimate, with decision.CodeNoEstimate.
	Untried string `json:"untried_card,omitempty"`
	// AssumedVersion says that the release of Slurm was not in the log.
	AssumedVersion bool `json:"assumed_slurm_version,omitempty"`
}

// Decide goes the way of the daemon, with the margin that had been learnt when the job was decided: it looks at the estimate on the first card, and where that points to another card, at the one on that card.
func (p Player) Decide(job decisionlog.Job, estimates []estimator.Estimate, margin decisionlog.Margin) Result {
	version, err := release.Parse(job.SlurmVersion)
	assumed := err != nil
	if assumed {
		version = p.Version
	}
	if outside := p.Rules.Scope.Outside(policy.Who{Partition: job.Partition, Account: job.Account, QOS: job.QOS, UID: job.UID}, false); outside != "" {
		return Result{Verdict: decision.LeaveAlone, Code: decision.CodeOutsideScope, Reason: outside, AssumedVersion: assumed}
	}
	profile := p.ProfileOf(job.Asked)
	for look := 1; ; look++ {
		estimate, found := latestOn(estimates, profile)
		if !found {
			return Result{Verdict: decision.LeaveAlone, Code: decision.CodeNoEstimate, Untried: profile, AssumedVersion: assumed,
				Reason: fmt.Sprintf("the job would be tried on %s, of which the log has no estimate", profile)}
		}
		// The log does not hold the environment. Held under these rules the job would have lost the variables that contradict, unless its script reads them.
		in := policy.Input{Asked: job.Asked, Estimate: estimate, Version: version, EnvDropped: true, Margin: policy.Calibrated{Ratio: margin.Ratio}}
		if look > 1 {
			in.LeastFitsBytes = p.Rules.FitsOf(profile)
		}
		d := p.Rules.Decide(in)
		if d.Verdict == decision.Rewrite && d.Profile != "" && d.Profile != estimate.GPU {
			if look < jobs.MaxCards {
				profile = d.Profile
				continue
			}
			return Result{Verdict: decision.LeaveAlone, Code: decision.CodeCardsDisagree, AssumedVersion: assumed, Reason: fmt.Sprintf("tried on %d cards, and each pointed to another; the last to %s", look, d.Profile)}
		}
		return Result{Verdict: d.Verdict, Code: d.Code, Reason: d.Reason, Now: d.Change.Result, AssumedVersion: assumed}
	}
}

// latestOn is the last estimate that was made on a card.
func latestOn(estimates []estimator.Estimate, profile string) (estimator.Estimate, bool) {
	for i := len(estimates) - 1; i >= 0; i-- {
		if estimates[i].GPU == profile {
			return estimates[i], true
		}
	}
	return estimator.Estimate{}, false
}
