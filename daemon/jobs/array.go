package jobs

import (
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

// parseArray reads Slurm's list of array tasks (0-15:4%2, 1,3,5-7) and chooses those that are tried: the first, the middle and the last one.
func parseArray(list string) (*spool.Array, error) {
	list, _, _ = strings.Cut(list, "%")
	var tasks []uint32
	for part := range strings.SplitSeq(list, ",") {
		span, stepText, hasStep := strings.Cut(part, ":")
		step, from, to := uint64(1), uint64(0), uint64(0)
		lowText, highText, isSpan := strings.Cut(span, "-")
		from, err := strconv.ParseUint(lowText, 10, 32)
		to = from
		if err == nil && isSpan {
			to, err = strconv.ParseUint(highText, 10, 32)
		}
		if err == nil && hasStep {
			step, err = strconv.ParseUint(stepText, 10, 32)
		}
		if err != nil || step == 0 || to < from || hasStep && !isSpan {
			return nil, fmt.Errorf("%.60q is no list of array tasks", part)
		}
		if to > mostArrayTasks || uint64(len(tasks))+(to-from)/step+1 > mostArrayTasks {
			return nil, fmt.Errorf("the array has more than %d tasks", mostArrayTasks)
		}
		for task := from; task <= to; task += step {
			tasks = append(tasks, uint32(task))
		}
	}
	slices.Sort(tasks)
	tasks = slices.Compact(tasks)
	last := len(tasks) - 1
	a := &spool.Array{Count: uint32(len(tasks)), Min: tasks[0], Max: tasks[last], Step: 1}
	if last > 0 {
		a.Step = tasks[1] - tasks[0]
	}
	for _, i := range []int{0, last / 2, last} {
		a.Tried = append(a.Tried, tasks[i])
	}
	a.Tried = slices.Compact(a.Tried)
	return a, nil
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
