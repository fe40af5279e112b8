package logview

import (
	"slices"
	"strings"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
)

// withheld stands where a program's own words were.
const withheld = "(its own words are for its owner)"

// enough of the beginning of a text finds it again where it was cut.
const enough = 16

// Public is a story for whoever may see that there was such a job, and not what its program printed: a key may be in its last words. What a probe says of a run comes from the owner's process, so none of its text stays; the
// codes and their meanings do.
func Public(s decisionlog.Story) decisionlog.Story {
	var said []string
	add := func(text string) {
		if text != "" && !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	s.Estimates, s.Actuals = slices.Clone(s.Estimates), slices.Clone(s.Actuals)
	for i := range s.Estimates {
		e := &s.Estimates[i]
		e.Reasons = slices.Clone(e.Reasons)
		for n := range e.Reasons {
			add(e.Reasons[n].Detail)
			e.Reasons[n].Detail = ""
		}
	}
	for i := range s.Actuals {
		if a := &s.Actuals[i]; a.Source == decisionlog.EpilogOOM {
			add(a.Detail) // a line of the job's output
			a.Detail = ""
		}
	}
	// A text that holds another one goes first.
	slices.SortFunc(said, func(a, b string) int { return len(b) - len(a) })
	s.Events, s.Decisions = slices.Clone(s.Events), slices.Clone(s.Decisions)
	for i := range s.Events {
		e := &s.Events[i]
		if e.State == jobs.StateReported && e.Code != "" && e.Code != decision.CodeFromCache {
			e.Detail = "the probe could not make a bundle: " + withheld
		}
		e.Detail = without(e.Detail, said)
	}
	for i := range s.Decisions {
		s.Decisions[i].Reason = without(s.Decisions[i].Reason, said)
	}
	return OfOthers(s)
}

// OfOthers takes out of a story what is said of other users' probes: why those that failed before had failed.
func OfOthers(s decisionlog.Story) decisionlog.Story {
	s.Events, s.Decisions = slices.Clone(s.Events), slices.Clone(s.Decisions)
	cut := func(text string) string {
		before, _, _ := strings.Cut(text, jobs.TheLast)
		return before
	}
	for i := range s.Events {
		if s.Events[i].Code == decision.CodeProbesFailing {
			s.Events[i].Detail = cut(s.Events[i].Detail)
		}
	}
	for i := range s.Decisions {
		if s.Decisions[i].Code == decision.CodeProbesFailing {
			s.Decisions[i].Reason = cut(s.Decisions[i].Reason)
		}
	}
	return s
}

func without(text string, said []string) string {
	for _, words := range said {
		text = strings.ReplaceAll(text, words, withheld)
		if len(words) < enough {
			continue
		}
		if at := strings.Index(text, words[:enough]); at >= 0 { // it was cut short
			text = text[:at] + withheld
		}
	}
	return text
}
