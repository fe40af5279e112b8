// Package policy turns an estimate and the site's table into a new request, or
// into a reason to leave the job alone. It is pure: it reads no file, no clock
// and no queue, and the same input always gives the same decision.
package policy

import (
	"fmt"
	"math"
	"strings"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

// Row is one row of the site's table.
type Row struct {
	FitsBytes int64
	Target    request.Target
	// Profile is the GPU profile of the row's card; empty: not known, or several.
	Profile string
	// Slice says that the row is a part of a card (MIG).
	Slice bool
}

// Card is a GPU profile as far as the policy needs it.
type Card struct {
	Profile       string
	CapacityBytes int64
}

// Rules are what the site allows.
type Rules struct {
	// Scope is asked before a job is tried; Decide takes every job for one inside it.
	Scope Scope
	// ActOn are the levels of confidence at which a request may be changed.
	ActOn []estimator.Confidence
	// MarginPercent and MarginMinBytes make the margin that is added to the estimate: the larger of the two.
	MarginPercent  int
	MarginMinBytes int64
	// FloorPercent and FloorMinBytes are below what no calibrated margin goes: the larger of the two.
	FloorPercent  int
	FloorMinBytes int64
	// Upsizing allows a larger card than was asked for when the job would die on the one that was.
	Upsizing bool
	// Rows, smallest first.
	Rows []Row
	// ShardBytes is what one shard stands for, 0: no shards. ShardMax is the number of shards of one GPU.
	ShardBytes int64
	ShardMax   int
	// Counted is a count-only resource that stands for GPU memory; see Counted.
	Counted Counted
	// Host says whether the host memory may be lowered too.
	Host Host
	// Swap says whether a job may get a card that is one size too small, with a plan.
	Swap Swap
	// Own are the features of the table's constraints.
	Own map[string]bool
	// Cards are the GPU types and features that the site has tied to a GPU profile.
	Cards map[string]Card
}

// Input is one job.
type Input struct {
	Asked      request.Request
	Estimate   estimator.Estimate
	Version    release.Version
	EnvDropped bool
	// Margin is what is known of such estimates.
	Margin Calibrated
	// LeastFitsBytes leaves out rows that hold less: a need that was found on a card does not speak for smaller ones.
	LeastFitsBytes int64
}

// Decision is the verdict with everything that it rests on.
type Decision struct {
	Verdict     decision.Verdict
	Code        string
	Reason      string
	MarginBytes int64
	// MarginKind is empty where there was no margin.
	MarginKind string
	NeedBytes  int64
	Target     request.Target
	Change     request.Change
	// Profile and FitsBytes are those of the row that was chosen.
	Profile   string
	FitsBytes int64
}

// change is what a job asks for where it gets a row.
func (r Rules) change(in Input, row Row) (request.Change, error) {
	return in.Asked.Change(row.Target, request.Options{Version: in.Version, Own: r.Own, EnvDropped: in.EnvDropped})
}

// Targets are what a job may be moved to, for those who have to know the kinds and not the sizes.
func (r Rules) Targets() []request.Target {
	targets := make([]request.Target, 0, len(r.Rows)+1)
	for _, row := range r.Rows {
		targets = append(targets, row.Target)
	}
	if r.ShardBytes > 0 {
		targets = append(targets, request.Target{Shards: 1})
	}
	return targets
}

// Decide chooses the smallest row of the table that holds the job. It never chooses a row that is smaller than
// the need, and never one that is larger than what was asked for unless the site allows that.
func (r Rules) Decide(in Input) Decision {
	if err := in.Estimate.Validate(); err != nil {
		return leave(decision.CodeInvalidAnswer, "the estimate is not valid: %v", err)
	}
	if !r.actsOn(in.Estimate.Confidence) {
		if d, dies := r.afterDeath(in); dies {
			return d
		}
		return leave(decision.CodeConfidence, "the estimate's confidence is %s%s", in.Estimate.Confidence, because(in.Estimate.Reasons))
	}
	count := gpusAsked(in.Asked)
	rank, ok := in.Estimate.Largest()
	if !ok || len(in.Estimate.Ranks) > count {
		return leave(request.CodeSeveral, "the estimate is for %s, and the job asks for %d", quantity.Count(len(in.Estimate.Ranks), "GPU"), count)
	}
	d := Decision{}
	d.MarginBytes, d.MarginKind = r.margin(rank.ComfortableHighBytes, in.Margin)
	d.NeedBytes = rank.ComfortableHighBytes + d.MarginBytes
	need := fmt.Sprintf("the job needs %s: %s estimated (%s, confidence %s) and %s margin",
		quantity.GiB(d.NeedBytes), quantity.GiB(rank.ComfortableHighBytes), in.Estimate.Estimator, in.Estimate.Confidence, quantity.GiB(d.MarginBytes))

	if _, plain := request.Conjuncts(in.Asked.Features); !plain {
		return d.leave(request.CodeConstraint, "%s, but what the constraint %.200q leaves to choose is not certain", need, in.Asked.Features)
	}
	asked, specific, known := r.askedBytes(in.Asked, count)
	if !known {
		return d.leave(decision.CodeUnknownGPU, "%s, but the size of what was asked for (%s) is not in the site's table", need, in.Asked)
	}
	// A run that met the end of the modelled card's memory needs more than that card, however much it showed.
	wouldDie := d.NeedBytes > asked || !in.Estimate.Fits
	if wouldDie && !r.Upsizing {
		return d.leave(decision.CodeNeedsMore, "%s, more than the %s that was asked for can hold for certain", need, quantity.GiB(asked))
	}
	// Sizes come from the file and from GPU profiles, which differ a little for the same card.
	sameFrom, sameTo := asked-asked/16, asked+asked/16
	limit := asked
	switch {
	case wouldDie:
		limit = math.MaxInt64
	case specific:
		limit = sameTo
	}

	var refused *request.RefusedError
	hostMiB, hostReason := r.Host.lower(in, count)
	for _, row := range r.candidates(d.NeedBytes, in.Asked, count, specific) {
		row.Target.MemPerNodeMiB = hostMiB
		if row.FitsBytes < in.LeastFitsBytes || row.FitsBytes > limit || !in.Estimate.Fits && row.FitsBytes <= asked {
			continue
		}
		if specific && !wouldDie && row.FitsBytes > sameFrom && (row.Target.Shards == 0 || sharesCard(in.Asked)) {
			d.Reason = fmt.Sprintf("%s; %s (%s) is the smallest that holds it", need, in.Asked, quantity.GiB(row.FitsBytes))
			return d.keeping(in, row, hostReason).noting(refused)
		}
		if count > 1 && row.Slice {
			continue // a process sees one slice, and the ranks of a job cannot talk to each other from slices of one card
		}
		if word, other := r.elsewhere(in.Asked, row.Target); word != "" {
			if refused == nil {
				refused = &request.RefusedError{Code: decision.CodeOtherCard, Detail: fmt.Sprintf("%s was asked for by name, and that row's card is a %s", word, other)}
			}
			continue
		}
		change, err := r.change(in, row)
		if err != nil {
			if e, ok := request.IsRefused(err); ok && refused == nil {
				refused = e
			}
			continue
		}
		d.Target, d.Change, d.Profile, d.FitsBytes = row.Target, change, row.Profile, row.FitsBytes
		gpu := change.Result
		gpu.MemPerNodeMiB = in.Asked.MemPerNodeMiB
		switch {
		case len(request.Difference(in.Asked, gpu)) == 0:
			d.Reason = fmt.Sprintf("%s; %s (%s) is the smallest that holds it", need, in.Asked, quantity.GiB(row.FitsBytes))
			return d.keeping(in, row, hostReason).noting(refused)
		case wouldDie:
			d.Verdict, d.Code = decision.Rewrite, decision.CodeUpsized
			d.Reason = fmt.Sprintf("%s; it would die on %s (%s), and %s (%s) holds it", need, in.Asked, quantity.GiB(asked), change.Result, quantity.GiB(row.FitsBytes))
		case specific:
			d.Verdict, d.Code = decision.Rewrite, decision.CodeSmaller
			d.Reason = fmt.Sprintf("%s; %s (%s) is the smallest that holds it, %s (%s) was asked for", need, change.Result, quantity.GiB(row.FitsBytes), in.Asked, quantity.GiB(asked))
		default:
			d.Verdict, d.Code = decision.Rewrite, decision.CodeNarrowed
			d.Reason = fmt.Sprintf("%s; %s (%s) is the smallest that holds it, any GPU was asked for", need, change.Result, quantity.GiB(row.FitsBytes))
		}
		if hostReason != "" {
			d.Reason += "; " + hostReason
		}
		return d.noting(refused)
	}
	if refused != nil {
		return d.leave(refused.Code, "%s, but the request cannot be changed: %s", need, refused.Detail)
	}
	return d.leave(decision.CodeFitsNothing, "%s, and no row of the site's table that may be given holds it", need)
}

// gpusAsked is the number of GPUs in a request, 1 where it is not one number.
func gpusAsked(asked request.Request) int {
	if asks := asked.Asks(); len(asks) == 1 && asks[0].Name == "gpu" && asks[0].Count > 1 && asks[0].Count <= estimator.MaxRanks {
		return int(asks[0].Count)
	}
	return 1
}

// elsewhere returns a word of the request that names another card than the row does: such a job could never start there. Words that the row
// itself replaces do not count.
func (r Rules) elsewhere(asked request.Request, target request.Target) (word, card string) {
	rowWords, _, _ := request.FeatureTerms(target.Constraint)
	for _, e := range request.ParseList(target.Gres) {
		rowWords = append(rowWords, e.Type)
	}
	for _, w := range rowWords {
		if c, ok := r.Cards[w]; ok {
			card = c.Profile
		}
	}
	if card == "" {
		return "", ""
	}
	var wanted []string
	for _, ask := range asked.Asks() {
		if target.Gres == "" {
			wanted = append(wanted, ask.Type)
		}
	}
	groups, _ := request.Conjuncts(asked.Features)
	for _, group := range groups {
		if len(group) == 1 {
			wanted = append(wanted, group[0])
		}
	}
	for _, w := range wanted {
		if c, ok := r.Cards[w]; ok && !r.Own[w] && c.Profile != card {
			return w, card
		}
	}
	return "", ""
}

// FitsOf is what the smallest row with that card holds; 0: there is none.
func (r Rules) FitsOf(profile string) int64 {
	for _, row := range r.Rows {
		if row.Profile == profile {
			return row.FitsBytes
		}
	}
	return 0
}

// sizeOf is the size of the rows that match, the largest of them, or of the GPU profile that the site tied to the word.
func (r Rules) sizeOf(match func(request.Target) bool, word string) (int64, bool) {
	var bytes int64
	for _, row := range r.Rows {
		if match(row.Target) {
			bytes = max(bytes, row.FitsBytes)
		}
	}
	if bytes > 0 {
		return bytes, true
	}
	card, ok := r.Cards[word]
	return card.CapacityBytes, ok
}

func (r Rules) actsOn(level estimator.Confidence) bool {
	if level == estimator.Unknown {
		return false
	}
	for _, l := range r.ActOn {
		if l == level {
			return true
		}
	}
	return false
}

func leave(code, format string, args ...any) Decision { return Decision{}.leave(code, format, args...) }

func (d Decision) leave(code, format string, args ...any) Decision {
	d.Verdict, d.Code, d.Reason = decision.LeaveAlone, code, fmt.Sprintf(format, args...)
	d.Target, d.Change = request.Target{}, request.Change{}
	return d
}

// noting adds why a smaller row was passed over.
func (d Decision) noting(refused *request.RefusedError) Decision {
	if refused != nil {
		d.Reason += "; a smaller row was passed over: " + refused.Detail
	}
	return d
}

// because lists the first reasons of an estimate.
func because(reasons []estimator.Reason) string {
	const shown = 3
	var parts []string
	for i, reason := range reasons {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(reasons)-shown))
			break
		}
		parts = append(parts, reason.Words())
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "; ")
}
