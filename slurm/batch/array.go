package batch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MostArrayTasks is above what Slurm lets a site configure (MaxArraySize).
const MostArrayTasks = 4_000_001

// Array is a list of array tasks, read: how many there are, the first and the last, and the step, as the variables of a task say it.
type Array struct {
	Count, Min, Max, Step uint32
	spans                 []span
}

// span is a run of array tasks: every step-th from the first to the last, which is one of them.
type span struct{ from, to, step uint64 }

func (s span) count() uint64 { return (s.to-s.from)/s.step + 1 }

// ParseArray reads Slurm's list of array tasks (0-15:4%2, 1,3,5-7). It never makes a list of the tasks: a line of twenty characters names millions.
func ParseArray(list string) (Array, error) {
	spans, err := parseSpans(list)
	if err != nil {
		return Array{}, err
	}
	if spans, err = disjoint(spans); err != nil {
		return Array{}, err
	}
	count := uint64(0)
	for _, s := range spans {
		count += s.count()
	}
	if count > MostArrayTasks {
		return Array{}, fmt.Errorf("the array has more than %d tasks", MostArrayTasks)
	}
	a := Array{Count: uint32(count), Step: firstStep(list), spans: spans}
	a.Min, a.Max = a.Task(0), a.Task(a.Count-1)
	return a, nil
}

// firstStep is what slurmctld takes for the step of the whole list: the number behind the first colon in it (_create_job_array in src/slurmctld/job_mgr.c).
func firstStep(list string) uint32 {
	_, behind, found := strings.Cut(list, ":")
	if !found {
		return 1
	}
	rest := strings.TrimLeft(behind, "0123456789")
	step, err := strconv.ParseUint(behind[:len(behind)-len(rest)], 10, 32)
	if err != nil {
		return 1
	}
	return uint32(step)
}

// Task is the number of the nth task, the first of which is the 0th.
func (a Array) Task(nth uint32) uint32 {
	rest := uint64(nth)
	for _, s := range a.spans {
		if n := s.count(); rest >= n {
			rest -= n
			continue
		}
		return uint32(s.from + rest*s.step)
	}
	return uint32(a.spans[len(a.spans)-1].to)
}

func parseSpans(list string) (spans []span, err error) {
	list, _, _ = strings.Cut(list, "%")
	for part := range strings.SplitSeq(list, ",") {
		ends, stepText, hasStep := strings.Cut(part, ":")
		s := span{step: 1}
		lowText, highText, isSpan := strings.Cut(ends, "-")
		s.from, err = strconv.ParseUint(lowText, 10, 32)
		s.to = s.from
		if err == nil && isSpan {
			s.to, err = strconv.ParseUint(highText, 10, 32)
		}
		if err == nil && hasStep {
			s.step, err = strconv.ParseUint(stepText, 10, 32)
		}
		if err != nil || s.step == 0 || s.to < s.from || hasStep && !isSpan {
			return nil, fmt.Errorf("%.60q is no list of array tasks", part)
		}
		if s.to > MostArrayTasks {
			return nil, fmt.Errorf("the array has more than %d tasks", MostArrayTasks)
		}
		s.to -= (s.to - s.from) % s.step
		if s.from == s.to {
			s.step = 1
		}
		spans = append(spans, s)
	}
	return spans, nil
}

// disjoint sorts spans and joins those of step 1 that share tasks. Where others do, which tasks there are is not reckoned.
func disjoint(spans []span) ([]span, error) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	out := spans[:1]
	for _, s := range spans[1:] {
		last := &out[len(out)-1]
		switch {
		case s.from > last.to:
			out = append(out, s)
		case s == *last:
		case s.step == 1 && last.step == 1:
			last.to = max(last.to, s.to)
		default:
			return nil, fmt.Errorf("array tasks %d-%d:%d and %d-%d:%d overlap", last.from, last.to, last.step, s.from, s.to, s.step)
		}
	}
	return out, nil
}
