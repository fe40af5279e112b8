package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/quantity"
)

// mostArrayTasks is above what Slurm lets a site configure (MaxArraySize).
const mostArrayTasks = 4_000_001

// codeArrayTask is the code of a job whose next task is to be tried.
const codeArrayTask = "array_next_task"

// reasonArray is the code of an estimate that speaks for the tasks of an array.
const reasonArray = "array_tasks"

// span is a run of array tasks: every step-th from the first to the last, which is one of them.
type span struct{ from, to, step uint64 }

func (s span) count() uint64 { return (s.to-s.from)/s.step + 1 }

// parseArray reads Slurm's list of array tasks (0-15:4%2, 1,3,5-7) and chooses those that are tried: the first, the middle and the last one. It never makes a list of
// the tasks: a line of twenty characters names millions.
func parseArray(list string) (*spool.Array, error) {
	spans, err := parseSpans(list)
	if err != nil {
		return nil, err
	}
	spans, err = disjoint(spans)
	if err != nil {
		return nil, err
	}
	count := uint64(0)
	for _, s := range spans {
		count += s.count()
	}
	if count > mostArrayTasks {
		return nil, fmt.Errorf("the array has more than %d tasks", mostArrayTasks)
	}
	task := func(nth uint64) uint32 {
		for _, s := range spans {
			if n := s.count(); nth >= n {
				nth -= n
				continue
			}
			return uint32(s.from + nth*s.step)
		}
		return uint32(spans[len(spans)-1].to)
	}
	last := count - 1
	a := &spool.Array{Count: uint32(count), Min: task(0), Max: task(last), Step: 1}
	if last > 0 {
		a.Step = task(1) - task(0)
	}
	for _, nth := range []uint64{0, last / 2, last} {
		a.Tried = append(a.Tried, task(nth))
	}
	a.Tried = slices.Compact(a.Tried)
	return a, nil
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
		if s.to > mostArrayTasks {
			return nil, fmt.Errorf("the array has more than %d tasks", mostArrayTasks)
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

// tried are the tasks of an array in words.
func tried(a *spool.Array) string {
	words := make([]string, len(a.Tried))
	for i, task := range a.Tried {
		words[i] = strconv.FormatUint(uint64(task), 10)
	}
	return strings.Join(words, ", ")
}

// largestOf is one estimate for an array whose tasks were tried: that of the task that needs most, at the confidence of the least certain one. What a
// single task is sure to need says nothing of the others, so one that is unknown is the answer.
func largestOf(seen []estimator.Estimate, a *spool.Array) estimator.Estimate {
	at, fits, host := 0, true, int64(0)
	for i, e := range seen {
		if less(seen[at], e) {
			at = i
		}
		fits, host = fits && e.Fits, max(host, e.HostPeakBytes)
	}
	all := seen[at]
	for _, e := range seen {
		if rankOf(e.Confidence) < rankOf(all.Confidence) {
			all.Confidence = e.Confidence
		}
	}
	all.Fits, all.HostPeakBytes = fits, host
	all.Reasons = append(slices.Clone(all.Reasons[:min(len(all.Reasons), estimator.MaxReasons-1)]),
		estimator.Reason{Code: reasonArray, Detail: fmt.Sprintf("%s; of those that were tried (%s), task %d needs most", quantity.Count(a.Count, "task"), tried(a), a.Tried[at])})
	return all
}

// less says whether b is the estimate that has to be believed of the two.
func less(a, b estimator.Estimate) bool {
	if aUnknown, bUnknown := a.Confidence == estimator.Unknown, b.Confidence == estimator.Unknown; aUnknown || bUnknown {
		return bUnknown && !aUnknown
	}
	largestA, _ := a.Largest()
	largestB, _ := b.Largest()
	return largestB.ComfortableHighBytes > largestA.ComfortableHighBytes
}

// rankOf orders the levels of confidence.
func rankOf(c estimator.Confidence) int {
	return slices.Index([]estimator.Confidence{estimator.Unknown, estimator.Low, estimator.High, estimator.Exact}, c)
}
