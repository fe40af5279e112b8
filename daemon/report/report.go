// Package report sums decisions up for people who pay for GPUs: what was asked
// for, what would have done, and what is not known. It reads no file and
// decides nothing.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/request"
)

// Outcome is what a decision means to somebody who does not know its code.
type Outcome string

// The outcomes.
const (
	// Changed: the job was given another request.
	Changed Outcome = "changed"
	// WouldChange: in shadow mode, the job would have been given another request.
	WouldChange Outcome = "would_change"
	// NotCarriedOut: a change was decided and not made, or taken back.
	NotCarriedOut Outcome = "not_carried_out"
	// Right: what was asked for is the smallest that holds the job.
	Right Outcome = "right"
	// TooSmall: the job seems to need more than was asked for, or than the site has.
	TooSmall Outcome = "too_small"
	// Unknown: it was tried, and no answer may be acted upon.
	Unknown Outcome = "unknown"
	// NotTried: the job is of a kind that is left alone.
	NotTried Outcome = "not_tried"
	// Open: nothing is decided yet.
	Open Outcome = "open"
)

// Outcomes in the order in which they are shown.
var Outcomes = []Outcome{Changed, WouldChange, NotCarriedOut, Right, TooSmall, Unknown, NotTried, Open}

// OutcomeOf is the outcome of a job.
func OutcomeOf(mode, state string, verdict decision.Verdict, code string) Outcome {
	switch {
	case state == jobs.StateLeftAlone:
		return NotTried
	case verdict == "" && slices.Contains(jobs.LastStates, state):
		return Unknown // its owner acted, or time ran out, before anything was decided
	case verdict == "":
		return Open
	case verdict == decision.Rewrite && mode == string(jobs.Shadow):
		return WouldChange
	case verdict == decision.Rewrite && (state == jobs.StateUpdated || state == jobs.StateVerified):
		return Changed
	case verdict == decision.Rewrite && slices.Contains(jobs.LastStates, state):
		return NotCarriedOut
	case verdict == decision.Rewrite:
		return Open
	case verdict == decision.Keep:
		return Right
	case code == decision.CodeNeedsMore || code == decision.CodeFitsNothing:
		return TooSmall
	}
	return Unknown
}

// Report is the sum.
type Report struct {
	// Jobs are submissions; Tasks count each task of an array.
	Jobs     int64         `json:"jobs"`
	Tasks    int64         `json:"tasks"`
	Users    int64         `json:"users"`
	Outcomes []OutcomeLine `json:"outcomes"`
	Cards    []Card        `json:"cards"`
	Total    Card          `json:"total"`
	// Actuals is what is known of how jobs ended, and of how wrong their estimates were.
	Actuals decisionlog.Truth `json:"actuals"`
	// NotKnown are sentences that belong beside the figures.
	NotKnown []string `json:"not_known"`
}

// OutcomeLine is the jobs of one outcome and one code.
type OutcomeLine struct {
	Outcome Outcome `json:"outcome"`
	Code    string  `json:"code,omitempty"`
	Jobs    int64   `json:"jobs"`
	Tasks   int64   `json:"tasks"`
	// GPUHours are those asked for, by time limits.
	GPUHours float64 `json:"gpu_hours_asked"`
}

// Card is one kind of card in the site's words. Hours are the limits that owners gave, not what jobs took.
type Card struct {
	Kind string `json:"kind"`
	// Asked and Needed are the jobs that asked for this kind, and those that would do with it.
	Asked          int64   `json:"jobs_asked"`
	Needed         int64   `json:"jobs_needed"`
	TasksAsked     int64   `json:"tasks_asked"`
	TasksNeeded    int64   `json:"tasks_needed"`
	GPUHoursAsked  float64 `json:"gpu_hours_asked"`
	GPUHoursNeeded float64 `json:"gpu_hours_needed"`
	// GPUHoursFreed is asked less needed: negative where jobs moved to this kind. That of the total is what left its kind: the negative ones are not taken off it.
	GPUHoursFreed float64 `json:"gpu_hours_freed"`
	// GPUHoursAdded is what this kind was given more than it was asked for.
	GPUHoursAdded float64 `json:"gpu_hours_added"`
	// WithoutLimit are jobs that asked for this kind and are in no hours, because no time limit is known of them.
	WithoutLimit int64 `json:"jobs_without_limit"`
}

// Freed is what is shown beside GPUHoursAdded: a kind to which jobs moved has freed nothing, and so the total is the sum of its column.
func (c Card) Freed() float64 { return max(c.GPUHoursFreed, 0) }

// AboutFreed says how the freed hours of the total come about; empty when nothing was freed.
func (r Report) AboutFreed() string {
	if r.Total.GPUHoursFreed == 0 && r.Total.GPUHoursAdded == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f GPU-hours were freed on some kinds of card, and %.1f were added on others: a job that moved to another kind is in both.", r.Total.GPUHoursFreed, r.Total.GPUHoursAdded)
}

// TotalKind is the kind of the sum of all cards.
const TotalKind = "total"

// AnyGPU is the kind of a request that allows every card.
const AnyGPU = "any GPU"

// Kind is the kind of card that a request names: GPU types and features. Of the features only the site's own words count, when one of them is there.
func Kind(r request.Request, own map[string]bool) string {
	var words []string
	for _, ask := range r.Asks() {
		switch {
		case ask.Name != "gpu":
			words = append(words, ask.Name)
		case ask.Type != "":
			words = append(words, ask.Type)
		}
	}
	terms, alternatives, plain := request.FeatureTerms(r.Features)
	var named []string
	for _, term := range terms {
		if own[term] {
			named = append(named, term)
		}
	}
	switch {
	case plain && len(named) > 0 && alternatives && len(named) == len(terms):
		words = append(words, strings.Join(named, "|"))
	case plain && len(named) > 0 && !alternatives:
		words = append(words, strings.Join(named, "&"))
	case len(own) == 0 && r.Features != "":
		words = append(words, r.Features)
	}
	if len(words) == 0 {
		return AnyGPU
	}
	return strings.Join(words, " ")
}

// gpusOf is the number of GPUs that a request names, at least one. On several nodes there are more of them.
func gpusOf(r request.Request) float64 {
	var n uint64
	for _, ask := range r.Asks() {
		if ask.Name == "gpu" {
			n += min(ask.Count, 1<<16)
		}
	}
	return float64(max(n, 1))
}

// Make sums up. truth is what is known of what the jobs really used; own are the words with which the site tells its cards apart; empty: every feature counts.
func Make(span decisionlog.Span, groups []decisionlog.Group, truth decisionlog.Truth, own map[string]bool) Report {
	r := Report{Jobs: span.Jobs, Tasks: span.Tasks, Users: span.Users, Actuals: truth, Total: Card{Kind: TotalKind}}
	cards := map[string]*Card{}
	card := func(kind string) *Card {
		if cards[kind] == nil {
			cards[kind] = &Card{Kind: kind}
		}
		return cards[kind]
	}
	type key struct {
		outcome Outcome
		code    string
	}
	lines := map[key]*OutcomeLine{}
	own = withWordsGiven(own, groups)
	var shadow, withoutLimit int64
	for _, g := range groups {
		outcome := OutcomeOf(g.Mode, g.State, g.Verdict, g.Code)
		hours := float64(g.LimitMinutes) / 60 * gpusOf(g.Asked)
		k := key{outcome, g.Code}
		if lines[k] == nil {
			lines[k] = &OutcomeLine{Outcome: outcome, Code: g.Code}
		}
		lines[k].Jobs += g.Jobs
		lines[k].Tasks += g.Tasks
		lines[k].GPUHours += hours
		before := Kind(g.Asked, own)
		after := before
		if outcome == Changed || outcome == WouldChange {
			after = Kind(g.Now, own)
		}
		if outcome == WouldChange {
			shadow += g.Jobs
		}
		from, to := card(before), card(after)
		from.Asked += g.Jobs
		from.TasksAsked += g.Tasks
		from.GPUHoursAsked += hours
		from.WithoutLimit += g.Jobs - g.LimitedJobs
		to.Needed += g.Jobs
		to.TasksNeeded += g.Tasks
		to.GPUHoursNeeded += hours
		withoutLimit += g.Jobs - g.LimitedJobs
	}
	for _, kind := range slices.Sorted(maps.Keys(cards)) {
		c := *cards[kind]
		c.GPUHoursFreed = c.GPUHoursAsked - c.GPUHoursNeeded
		c.GPUHoursAdded = max(-c.GPUHoursFreed, 0)
		r.Cards = append(r.Cards, c)
		r.Total.Asked += c.Asked
		r.Total.Needed += c.Needed
		r.Total.TasksAsked += c.TasksAsked
		r.Total.TasksNeeded += c.TasksNeeded
		r.Total.GPUHoursAsked += c.GPUHoursAsked
		r.Total.GPUHoursNeeded += c.GPUHoursNeeded
		r.Total.GPUHoursFreed += max(c.GPUHoursFreed, 0)
		r.Total.GPUHoursAdded += c.GPUHoursAdded
		r.Total.WithoutLimit += c.WithoutLimit
	}
	slices.SortStableFunc(r.Cards, func(a, b Card) int { return cmp.Compare(b.GPUHoursAsked, a.GPUHoursAsked) })
	for _, line := range lines {
		r.Outcomes = append(r.Outcomes, *line)
	}
	slices.SortFunc(r.Outcomes, func(a, b OutcomeLine) int {
		return cmp.Or(cmp.Compare(slices.Index(Outcomes, a.Outcome), slices.Index(Outcomes, b.Outcome)), cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Code, b.Code))
	})
	r.NotKnown = notKnown(shadow, withoutLimit, r)
	return r
}

// withWordsGiven adds the features that rewrites have given: they told cards apart when they were given, whatever the table says today.
func withWordsGiven(own map[string]bool, groups []decisionlog.Group) map[string]bool {
	if len(own) == 0 {
		return own
	}
	own = maps.Clone(own)
	for _, g := range groups {
		if g.Verdict != decision.Rewrite {
			continue
		}
		asked, _, _ := request.FeatureTerms(g.Asked.Features)
		given, _, _ := request.FeatureTerms(g.Now.Features)
		for _, word := range given {
			if !slices.Contains(asked, word) {
				own[word] = true
			}
		}
	}
	return own
}

func notKnown(shadow, withoutLimit int64, r Report) []string {
	says := []string{
		fmt.Sprintf("Hours are the time limits that owners gave, not what jobs took. Of %d of %s it is known how %s (docs/actuals.md).", r.Actuals.Known, quantity.Count(r.Jobs, "job"), quantity.Word(r.Jobs, "it ended", "they ended")),
		"A job, and each task of an array, counts with the GPUs that its request names; on several nodes, or by the task of an srun, it has more.",
	}
	if withoutLimit > 0 {
		says = append(says, fmt.Sprintf("%d of %s gave no time limit, or it was not recorded: %s in no hours.", withoutLimit, quantity.Count(r.Jobs, "job"), quantity.Word(withoutLimit, "it is", "they are")))
	}
	if shadow > 0 {
		says = append(says, fmt.Sprintf("%s only recorded (shadow mode): whether the jobs would have run well on the smaller card is known of the %d whose memory was measured.", quantity.Count(shadow, "change was", "changes were"), r.Actuals.ShadowMeasured))
	}
	var unknown int64
	for _, line := range r.Outcomes {
		if line.Outcome == Unknown || line.Outcome == NotTried || line.Outcome == Open {
			unknown += line.Jobs
		}
	}
	if unknown > 0 {
		says = append(says, fmt.Sprintf("Of %d of %s the need is not known; %s for.", unknown, quantity.Count(r.Jobs, "job"), quantity.Word(unknown, "it counts as needing what it asked", "they count as needing what they asked")))
	}
	return says
}
