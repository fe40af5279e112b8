package planning

import (
	"fmt"
	"math"

	"github.com/gresize/gresize/estimator/analysis/planning/swap"
)

// Clock says how long requests take. A trace of an allocator holds no kernels, so this is an assumption: every request takes RequestNanos, and an
// allocation the time to fill what it made at FillBytesPerSecond. StepNanos, when it is not 0, is the measured length of one iteration, to which all is
// scaled.
type Clock struct {
	RequestNanos       int64
	FillBytesPerSecond float64
	StepNanos          int64
}

// DefaultClock is a launch of 5 microseconds for each request, and 100 GB/s.
var DefaultClock = Clock{RequestNanos: 5_000, FillBytesPerSecond: 100e9}

// nearRequests is how many requests after its allocation and before its free a block counts as in use.
const nearRequests = 8

// Job is the trace as something that can be swapped. Step i+1 is request i; step 0 is before the first. Blocks are used when they were seen to be, and steps take what
// their operators take. Where seen is nil or does not know a block, an allocator's trace holds no reads and writes: the block counts as used near its allocation and near its
// free, which is true of what a forward pass keeps for the backward pass; what is never freed may be used at any time, and stays.
func (l *Lifetimes) Job(c Clock, it *Iteration, seen *Seen) (*swap.Job, error) {
	if c.RequestNanos < 1 || c.RequestNanos > 1<<40 || !(c.FillBytesPerSecond >= 1) || c.FillBytesPerSecond > 1e18 || c.StepNanos < 0 || c.StepNanos > 1<<50 {
		return nil, fmt.Errorf("the clock %+v makes no sense", c)
	}
	j := &swap.Job{Blocks: l.Blocks, Accesses: make([][]int32, len(l.Blocks)), StepNanos: make([]int64, l.Requests+2)}
	for i := range j.StepNanos {
		if j.StepNanos[i] = c.RequestNanos; seen != nil && seen.timed && seen.stepNanos[i] >= 0 {
			j.StepNanos[i] = max(seen.stepNanos[i], 1)
		}
	}
	for i, b := range l.Blocks {
		if b.Start > 0 && (seen == nil || !seen.timed) {
			j.StepNanos[b.Start] += int64(float64(b.SizeBytes) * 1e9 / c.FillBytesPerSecond)
		}
		if seen != nil && seen.accesses[i] != nil {
			j.Accesses[i] = seen.accesses[i]
			continue
		}
		if l.Permanent[i] || b.Start == 0 {
			continue
		}
		// The end of the first use and the begin of the last: what lies between is an absence.
		first, last := b.Start+nearRequests, b.End-1-nearRequests
		if last <= first {
			first, last = b.Start, b.End-1
			if last-first <= nearRequests {
				j.Accesses[i] = []int32{int32(first)}
				continue
			}
			first = last // used throughout
		}
		j.Accesses[i] = []int32{int32(first)}
		if last > first {
			j.Accesses[i] = append(j.Accesses[i], int32(last))
		}
	}
	if c.StepNanos > 0 {
		var whole int64
		from, to := 0, l.Requests
		if it != nil {
			from, to = it.First, it.First+it.Requests
		}
		for i := from; i < to; i++ {
			whole += j.StepNanos[i+1]
		}
		scale := float64(c.StepNanos) / math.Max(float64(whole), 1)
		for i := range j.StepNanos {
			j.StepNanos[i] = max(int64(float64(j.StepNanos[i])*scale), 1)
		}
	}
	return j, nil
}
