package main

import (
	"fmt"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/printable"
)

// readUtilization reads the operators of the rank that needs the most memory. What is missing or cannot be read is unknown advice.
func (r *reading) readUtilization(b *trace.Bundle, p *gpu.Profile) {
	stream := new(utilization.Stream)
	largest, _ := r.Largest()
	var fault error
	if largest.Rank < len(b.Ranks) {
		if data := b.Ranks[largest.Rank].Parts[trace.PartOperators]; len(data) > 0 {
			if stream, fault = utilization.Read(data); fault != nil {
				stream = new(utilization.Stream)
			}
		}
	}
	advice := utilization.Estimate(stream, p)
	if fault != nil {
		advice.Reasons = []estimator.Reason{{Code: estimator.CodeBundleInvalid, Detail: printable.Text(fault.Error())}}
	}
	r.Utilization = &advice
}

func (r *reading) printUtilization(b *strings.Builder) {
	u := r.Utilization
	if u == nil {
		return
	}
	if u.Confidence == estimator.Unknown {
		fmt.Fprintf(b, "  utilization  unknown: %s\n", printable.Text(u.Reasons[0].Detail))
		return
	}
	fmt.Fprintf(b, "  utilization  %s a step (%s to %s), bound by %s\n", duration(u.StepSeconds.Value), duration(u.StepSeconds.Low), duration(u.StepSeconds.High), u.Bound)
	fmt.Fprintf(b, "               multiprocessors busy %s, memory busy %s; %s confidence, as advice\n", percents(u.SMActivity), percents(u.MemoryActivity), u.Confidence)
	names := make([]string, 0, len(u.Operators))
	for _, o := range u.Operators {
		names = append(names, fmt.Sprintf("%s (%s) %.0f %%", printable.Text(o.Operator), printable.Text(o.Type), 100*o.Share))
	}
	fmt.Fprintf(b, "               most of the device's time: %s\n", strings.Join(names, ", "))
}

func duration(seconds float64) string {
	if seconds < 1 {
		return fmt.Sprintf("%.1f ms", 1000*seconds)
	}
	return fmt.Sprintf("%.2f s", seconds)
}

func percents(i utilization.Interval) string {
	return fmt.Sprintf("%.0f %% (%.0f to %.0f %%)", 100*i.Value, 100*i.Low, 100*i.High)
}
