package vgpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
)

const (
	// valuesPerStepExpected is what a plain loop reads back: its loss, and whether a scaler found an overflow.
	valuesPerStepExpected = 2
	// maxValueUses bounds the operators that a process may name.
	maxValueUses = 64
	// useUnbounded is the use of a value for which no policy has an answer: it was zero.
	useUnbounded = "unbounded"
)

// The policies by which the Python layer answers what only a kernel could know: as if it found nothing and spread evenly, or
// as if it found everything and sent it the same way.
const (
	PolicyLow  = "low"
	PolicyHigh = "high"
)

// ValuesSide is one process's account of the values that no kernel computed.
type ValuesSide struct {
	// Policy is PolicyLow or PolicyHigh.
	Policy string `json:"policy,omitempty"`
	// Followed is how many small tensors were computed on the CPU; Seconds is what that took.
	Followed int64   `json:"followed,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	// Stopped says why following ended before the run: time, compile.
	Stopped string `json:"stopped,omitempty"`
	// Uses counts, by the asking operator, what the program did by a policy's answer.
	Uses map[string]int64 `json:"uses,omitempty"`
}

func (v *ValuesSide) check() error {
	if len(v.Uses) > maxValueUses {
		return errors.New("values.uses: too many entries")
	}
	for name, calls := range v.Uses {
		if !plainName.MatchString(name) || calls < 0 {
			return fmt.Errorf("values.uses: %.40q: %d is no count of an operator", name, calls)
		}
	}
	if !(v.Seconds >= 0 && v.Seconds <= maxSeconds) {
		return errors.New("values.seconds: out of range")
	}
	v.Policy, v.Stopped = clip(v.Policy), clip(v.Stopped)
	return nil
}

// usesText lists the operators, the most frequent first.
func (v *ValuesSide) usesText() string {
	names := slices.SortedFunc(maps.Keys(v.Uses), func(a, b string) int {
		if d := v.Uses[b] - v.Uses[a]; d != 0 {
			return int(min(max(d, -1), 1))
		}
		return strings.Compare(a, b)
	})
	list := make([]string, 0, len(names))
	for _, name := range names {
		list = append(list, fmt.Sprintf("%s %d times", name, v.Uses[name]))
	}
	return strings.Join(list, ", ")
}

func (a *answer) judgeValues(r *rankReport) {
	if r.Coverage.ValuesPerStep > valuesPerStepExpected {
		a.lower(estimator.Low, "values_read_back", fmt.Sprintf("%.1f values a step: the program may decide by what a kernel would have computed", r.Coverage.ValuesPerStep))
	}
	if r.Coverage.Decisions > 0 {
		a.lower(estimator.Low, "values_compared", fmt.Sprintf("the program compared values that it had read back, %d times: on a real GPU it may go another way", r.Coverage.Decisions))
	}
	if len(r.Coverage.Values.Uses) > 0 {
		a.lower(estimator.Low, "values_bounded", "the program's sizes or branches depend on values that only the GPU computes: "+r.Coverage.Values.usesText())
	}
}
