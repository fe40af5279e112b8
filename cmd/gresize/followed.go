package main

import (
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// followed is a run of a command in time-lapse, on which runs of the same command with another batch size or on another card rest: they end at their first answer.
type followed struct {
	known bool
	// more says that the time-lapse needed more than the first answer: each of the other runs is then followed, too.
	more   bool
	doubts []estimator.Reason
}

// options sets how a run is made.
func (f *followed) options(o probe.Options) probe.Options {
	o.Quick = f.known && !f.more
	o.Followed = o.Quick
	return o
}

// conclude notes what a run that was followed said of later phases, and has the others say so.
func (f *followed) conclude(r *probe.Result, o probe.Options) {
	if !o.Followed {
		if m := r.Bundle.Manifest; !f.known && (m.Outcome == trace.Stopped || m.Outcome == trace.Completed) {
			f.known, f.more = true, vgpu.LaterNeedsMore(r.Bundle)
			f.doubts = vgpu.LaterDoubts(&r.Estimate)
		}
		return
	}
	for _, doubt := range f.doubts {
		r.Estimate.Confidence = r.Estimate.Confidence.AtMost(estimator.Low)
		if !slices.Contains(r.Estimate.Reasons, doubt) && len(r.Estimate.Reasons) < estimator.MaxReasons {
			r.Estimate.Reasons = append(r.Estimate.Reasons, doubt)
		}
	}
}
