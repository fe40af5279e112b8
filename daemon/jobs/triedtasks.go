package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/batch"
)

// triedOf chooses the tasks of an array that are tried: the first, the middle and the last one.
func triedOf(list string) (*spool.Array, error) {
	a, err := batch.ParseArray(list)
	if err != nil {
		return nil, err
	}
	last := a.Count - 1
	return &spool.Array{Count: a.Count, Min: a.Min, Max: a.Max, Step: a.Step, Tried: slices.Compact([]uint32{a.Task(0), a.Task(last / 2), a.Task(last)})}, nil
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
		estimator.Reason{Code: estimator.CodeArrayTasks, Detail: fmt.Sprintf("%s; of those that were tried (%s), task %d needs most", quantity.Count(a.Count, "task"), tried(a), a.Tried[at])})
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
