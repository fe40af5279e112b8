package vgpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

const (
	// valuesPerStepExpected is what a plain loop reads back: its loss, and whether a scaler found an overflow.
	valuesPerStepExpected = 2
	// maxValueUses bounds the operators that a process may name.
	maxValueUses = 64
	// valuesAllowancePercent is for blocks whose sizes change with the values from step to step: an allocator that cannot use them again
	// reserves more than with the sizes of either side, 4 % in the mixture of experts of docs/accuracy/values.md.
	valuesAllowancePercent = 10
	// sidesNearPercent, or sidesNearBytes where that is more, is how far apart the answers of all sides may be for their need to be as good as the same:
	// the interval, which has them all and valuesAllowancePercent more, is then no wider than that of a model. A segment for large blocks has 20 MiB.
	sidesNearPercent = 5
	sidesNearBytes   = 20 << 20
	// poolSameBytes is how far apart two runs of a program of JAX may be that took the same.
	poolSameBytes = 1 << 20
	// leftSameBytes is what a step may leave, such as the loss that is kept, for runs that were seen for different numbers of steps to be the same.
	leftSameBytes = 4 << 10
)

// The policies by which the Python layer answers what only a kernel could know: as if it found nothing and spread evenly, or
// as if it found everything and sent it the same way. PolicyHalf finds every other one.
const (
	PolicyLow  = "low"
	PolicyHalf = "half"
	PolicyHigh = "high"
)

// ValuesSide is one process's account of the values that no kernel computed.
type ValuesSide struct {
	// Policy is PolicyLow, PolicyHalf or PolicyHigh.
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
		if !trace.PlainName(name) || calls < 0 {
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

// branchUses are the reads that give a program one number or one answer. It may count with it or go another way by it; the sizes of its tensors come from
// the others.
var branchUses = map[string]bool{"item": true, "bool": true, "allclose": true}

func (v *ValuesSide) branchesOnly() bool {
	for name := range v.Uses {
		if !branchUses[name] {
			return false
		}
	}
	return true
}

// useCopied is the read that brings whole numbers to the host, such as the classes that were found: most programs compare and count them, and one
// may take sizes from them.
const useCopied = "copy_to_host"

// useFetched is of floats that leave what is watched: arrays that come to the host, single ones that are put in arrays. Most are printed, and one may decide.
const useFetched = "fetched"

// countsOnHost says that nothing on the GPU got a size from the values: they went to the host, or decided a branch.
func (v *ValuesSide) countsOnHost() bool {
	for name := range v.Uses {
		if !branchUses[name] && name != useCopied && name != useFetched {
			return false
		}
	}
	return true
}

// fetchedOnly says that floats were fetched and nothing is known to have gone by one: the other side is worth a run, and without one there is no doubt.
func (v *ValuesSide) fetchedOnly() bool { return len(v.Uses) == 1 && v.Uses[useFetched] > 0 }

// readsMany says that the program fetches more than a plain loop does.
func (r *rankReport) readsMany() bool { return r.Coverage.ValuesPerStep > valuesPerStepExpected }

// asks says that what the program needs may depend on values.
func (r *rankReport) asks() bool {
	return len(r.Coverage.Values.Uses) > 0 || r.Coverage.Decisions > 0 || r.readsMany()
}

func (a *answer) judgeValues(r *rankReport) {
	if r.readsMany() {
		detail := fmt.Sprintf("%.0f values a step: the program may decide by what a kernel would have computed", r.Coverage.ValuesPerStep)
		limit := estimator.Low
		if r.sidesAgree() || r.sidesEqual() || r.sidesNear() {
			limit, detail = estimator.High, detail+"; with the answers of either side it needs the same"
		}
		a.lower(limit, estimator.CodeValuesReadBack, detail)
	}
	if r.Coverage.Decisions > 0 {
		detail := fmt.Sprintf("the program compared values that it had read back, %d times: on a real GPU it may go another way", r.Coverage.Decisions)
		limit := estimator.Low
		if r.sidesAgree() || r.sidesEqual() {
			limit, detail = estimator.High, detail+"; with the answers of either side it needs the same"
		} else if r.sidesNear() {
			limit, detail = estimator.High, detail+"; with the answers of all sides it needs about the same"
		}
		a.lower(limit, estimator.CodeValuesCompared, detail)
	}
	if len(r.Coverage.Values.Uses) == 0 {
		return
	}
	detail := "the program's sizes or branches depend on values that only the GPU computes: " + r.Coverage.Values.usesText()
	limit := estimator.Low
	if r.Coverage.Values.fetchedOnly() && !r.othersTell() && r.Pool == nil { // what JAX gives is plain: it may be compared unseen
		limit = estimator.High
	}
	switch {
	case r.Other == nil:
		detail += "; only one side of the answers was run"
	case r.Other.Outcome == string(trace.Timeout):
		detail += "; the run with the other side of the answers was ended by its budget before enough was seen: --budget gives it more time"
	case r.sidesNear() && !r.sidesAgree() && !r.sidesEqual():
		limit = estimator.High
		detail += fmt.Sprintf("; with %s the allocator reserves %s MiB: the interval has them and %d %% more", r.sideNames(), r.sideSizes(), valuesAllowancePercent)
	case !r.Other.ended():
		detail += "; with the other side of the answers the run ended as " + r.Other.Outcome
	default:
		detail += fmt.Sprintf("; with the answers of either side the allocator reserves %d and %d MiB", r.PeakReservedBytes>>20, r.Other.PeakReservedBytes>>20)
		switch {
		case r.sidesAgree():
			limit = estimator.High
		case r.sidesEqual():
			limit = estimator.High
			if r.Pool == nil {
				detail += ", and the same to the byte is allocated"
			}
			if !r.Coverage.Values.fetchedOnly() {
				detail += fmt.Sprintf("; the interval has %d %% more, for sizes that the host may take from them", valuesAllowancePercent)
			}
		case r.PeakReservedBytes == r.Other.PeakReservedBytes:
			detail += ": that is no proof for sizes between those answers, which may differ from step to step"
		default:
			detail += ": sizes between those answers may differ from step to step"
		}
	}
	a.lower(limit, estimator.CodeValuesBounded, detail)
}

// sidesAgree says that the values were seen not to matter: both runs went as far as they were meant to, gave no sizes but numbers and branches, and took
// the same to the byte. Equal ends prove nothing about sizes between them: those differ from step to step on a real card, and leave the allocator in pieces.
func (r *rankReport) sidesAgree() bool {
	return r.Other != nil && r.Other.ended() && r.Coverage.Values.branchesOnly() && r.noSide(func(o *OtherSide) bool {
		return !r.same(o, r.PeakReservedBytes, o.PeakReservedBytes) || !r.same(o, r.PeakDeviceBytes, o.PeakDeviceBytes)
	})
}

// same says that another run took as much: b bytes where this one took a. XLA gives memory back when its threads come to it, so no two runs of a program of
// JAX are the same to the byte. Of two that asked for the same the one may take as much more as the upper end has for that.
func (r *rankReport) same(o *OtherSide, a, b int64) bool {
	difference := max(a, b) - min(a, b)
	if r.Pool == nil {
		return difference == 0
	}
	if asked := r.Pool.AskedBytes; asked > 0 && max(asked, o.AskedBytes)-min(asked, o.AskedBytes) <= poolSameBytes {
		return difference <= max(poolSameBytes, max(a, b)/100*betweenBlocksPercent)
	}
	return difference <= poolSameBytes
}

// sameAllocated says that two runs allocated as much, but for what the steps left that only one of them was seen to make.
func (r *rankReport) sameAllocated(o *OtherSide) bool {
	steps := int64(max(r.Steps, o.Steps) - min(r.Steps, o.Steps))
	difference := max(r.PeakAllocatedBytes, o.PeakAllocatedBytes) - min(r.PeakAllocatedBytes, o.PeakAllocatedBytes)
	return r.same(o, r.PeakAllocatedBytes, o.PeakAllocatedBytes) || difference <= min(r.Coverage.StepLeavesBytes, leftSameBytes)*steps
}

// noSide says that of none of the other runs that ended this is so.
func (r *rankReport) noSide(is func(*OtherSide) bool) bool {
	return !slices.ContainsFunc(r.sides()[1:], func(o *OtherSide) bool { return o.ended() && is(o) })
}

// sidesEqual says that values which the host got may matter, and were seen not to: both runs took the same to the byte, allocated as well as reserved.
func (r *rankReport) sidesEqual() bool {
	return r.Other != nil && r.Other.ended() && r.Coverage.Values.countsOnHost() && r.noSide(func(o *OtherSide) bool {
		return !r.sameAllocated(o) || !r.same(o, r.PeakReservedBytes, o.PeakReservedBytes) || !r.same(o, r.PeakDeviceBytes, o.PeakDeviceBytes)
	})
}

// sides are the ends of all runs of the command, this one first.
func (r *rankReport) sides() []*OtherSide {
	all := []*OtherSide{sideOf(r, trace.Stopped)}
	for _, side := range []*OtherSide{r.Other, r.Third} {
		if side != nil {
			all = append(all, side)
		}
	}
	return all
}

// useUnbounded is a whole number of which nothing is known: each side has another, and what is as large as it shows in the bytes alone.
const useUnbounded = "unbounded"

// sidesNear says that the program was run with a third answer as well, finding every other one, and that all of the runs needed about the same. Ends alone are
// no proof: of pairs of what is found with what is not there are none at either. An end that the program fails at is none that a working program is at.
func (r *rankReport) sidesNear() bool {
	ended, half := 0, false
	for _, side := range r.sides() {
		half = half || side.Policy == PolicyHalf && side.ended()
		if side.Outcome == string(trace.Crashed) {
			continue
		}
		if (r.Coverage.Values.Uses[useUnbounded] > 0 || r.Coverage.Values.Uses[useFetched] > 0 && r.Coverage.Values.countsOnHost()) && !r.sameAllocated(side) {
			return false
		}
		if !side.ended() || !near(side.PeakAllocatedBytes, r.PeakAllocatedBytes) || !near(side.PeakReservedBytes, r.PeakReservedBytes) || !near(side.PeakDeviceBytes, r.PeakDeviceBytes) {
			return false
		}
		ended++
	}
	return half && ended > 1
}

func near(a, b int64) bool {
	return max(a, b)-min(a, b) <= max(max(a, b)/100*sidesNearPercent, sidesNearBytes)
}

var policyWords = map[string]string{PolicyLow: "nothing", PolicyHalf: "every other one", PolicyHigh: "everything"}

// sideNames and sideSizes say what was found in the runs that ended, and what the allocator reserved in each.
func (r *rankReport) sideNames() string {
	var words []string
	for _, side := range r.sides() {
		if side.ended() {
			words = append(words, policyWords[side.Policy])
		}
	}
	return strings.Join(words, ", ") + " found"
}

func (r *rankReport) sideSizes() string {
	var sizes []string
	for _, side := range r.sides() {
		if side.ended() {
			sizes = append(sizes, strconv.FormatInt(side.PeakReservedBytes>>20, 10))
		}
	}
	return strings.Join(sizes, ", ")
}

// OtherSide is what a second run of the same command needed, in which the questions that the first was answered low were answered high.
type OtherSide struct {
	Policy             string `json:"policy"`
	Outcome            string `json:"outcome"`
	Steps              int    `json:"steps"`
	PeakAllocatedBytes int64  `json:"peak_allocated_bytes"`
	PeakReservedBytes  int64  `json:"peak_reserved_bytes"`
	PeakDeviceBytes    int64  `json:"peak_device_bytes"`
	// AskedBytes is that of its Pool.
	AskedBytes int64 `json:"asked_bytes,omitempty"`
}

func (o *OtherSide) check() error {
	if o == nil {
		return nil
	}
	o.Policy, o.Outcome = clip(o.Policy), clip(o.Outcome)
	if o.Steps < 0 || o.Steps > maxSteps {
		return errors.New("other_side.steps: out of range")
	}
	return checkNumbers(nil, []int64{o.PeakAllocatedBytes, o.PeakReservedBytes, o.PeakDeviceBytes, o.AskedBytes})
}

// ended says that the run went as far as it was meant to, so that its peaks are an end of the interval.
func (o *OtherSide) ended() bool {
	return o.Outcome == string(trace.Stopped) || o.Outcome == string(trace.Completed)
}

// othersTell says that another run shows what other answers lead to: one that had no time, or fell over numbers that nobody would have read, does not.
func (r *rankReport) othersTell() bool {
	return slices.ContainsFunc(r.sides()[1:], func(o *OtherSide) bool {
		return o.Outcome != string(trace.Timeout) && o.Outcome != string(trace.Crashed)
	})
}

// widen puts what the other side needed into the interval of the answer.
func (r *rankReport) widen(k *estimator.Rank, capacity int64) {
	if len(r.Coverage.Values.Uses) > 0 && !r.sidesAgree() && !(r.Coverage.Values.fetchedOnly() && (r.sidesEqual() || !r.othersTell())) {
		k.ComfortableHighBytes += r.PeakReservedBytes / 100 * valuesAllowancePercent
	}
	var least, most int64
	full := false
	for _, side := range r.sides()[1:] {
		more := r.Pool.held(side.PeakReservedBytes, side.PeakDeviceBytes) - r.Pool.held(r.PeakReservedBytes, r.PeakDeviceBytes)
		if side.ended() || more > 0 {
			least, most = min(least, more), max(most, more)
			k.ComfortableLowBytes = max(k.ComfortableBytes+least, 0)
		}
		full = full || side.Outcome == string(trace.OutOfMemory)
	}
	k.ComfortableHighBytes += most
	if full {
		k.ComfortableHighBytes = max(k.ComfortableHighBytes, capacity)
	}
}

// DependsOnValues says whether some process of the run went by what a policy answered, so that the other answers are worth a run.
func DependsOnValues(b *trace.Bundle) bool {
	for i := range b.Ranks {
		if r, err := parseRank(b.Ranks[i].Report); err == nil && r.asks() {
			return true
		}
	}
	return false
}

// LowOnEverySide says of a run of JAX that it was not followed to the program's end, in time-lapse neither: the answer is low whatever other sides show, so they need come no
// further than to their first answer.
func LowOnEverySide(b *trace.Bundle) bool {
	if b.Manifest.Outcome != trace.Stopped {
		return false
	}
	for i := range b.Ranks {
		if r, err := parseRank(b.Ranks[i].Report); err != nil || r.Pool == nil || r.Reason != reasonStopped || r.Coverage.TimeLapse == lapseProgram {
			return false
		}
	}
	return true
}

// CompileTime is how long the process of a run of JAX that compiled longest did so: what it has compiled, other runs of the command need not.
func CompileTime(b *trace.Bundle) time.Duration {
	most := 0.0
	for i := range b.Ranks {
		if r, err := parseRank(b.Ranks[i].Report); err == nil && r.Pool != nil {
			most = max(most, r.Pool.CompileSeconds)
		}
	}
	return time.Duration(most * float64(time.Second))
}

// EndsAreNear says that two runs of a command needed about the same while values may have given its tensors sizes: a third run tells more.
func EndsAreNear(a, b *trace.Bundle) bool {
	if len(a.Ranks) != len(b.Ranks) {
		return false
	}
	sized := false
	for i := range a.Ranks {
		r, err := parseRank(a.Ranks[i].Report)
		if err != nil {
			return false
		}
		o, err := parseRank(b.Ranks[i].Report)
		if err != nil || !near(r.PeakReservedBytes, o.PeakReservedBytes) || !near(r.PeakAllocatedBytes, o.PeakAllocatedBytes) {
			return false
		}
		r.Other = sideOf(&o, b.Manifest.Outcome)
		sized = sized || r.asks() && !r.sidesAgree() && !r.sidesEqual()
	}
	return sized
}

func sideOf(r *rankReport, outcome trace.Outcome) *OtherSide {
	side := &OtherSide{
		Policy: r.Coverage.Values.Policy, Outcome: string(outcome), Steps: r.Steps,
		PeakAllocatedBytes: r.PeakAllocatedBytes, PeakReservedBytes: r.PeakReservedBytes, PeakDeviceBytes: r.PeakDeviceBytes,
	}
	if r.Pool != nil {
		side.AskedBytes = r.Pool.AskedBytes
	}
	return side
}

// AddOtherSide notes in each rank of a bundle what the same rank needed in another run of the command, and in a third.
func AddOtherSide(b, other *trace.Bundle) error {
	if len(b.Ranks) != len(other.Ranks) {
		return fmt.Errorf("vgpu: %d ranks in one run and %d in the other", len(b.Ranks), len(other.Ranks))
	}
	for i := range b.Ranks {
		r, err := parseRank(b.Ranks[i].Report)
		if err != nil {
			return fmt.Errorf("vgpu: ranks/%d/report.json: %w", i, err)
		}
		o, err := parseRank(other.Ranks[i].Report)
		if err != nil {
			return fmt.Errorf("vgpu: ranks/%d/report.json of the other run: %w", i, err)
		}
		if r.Other == nil {
			r.Other = sideOf(&o, other.Manifest.Outcome)
		} else {
			r.Third = sideOf(&o, other.Manifest.Outcome)
		}
		if b.Ranks[i].Report, err = json.Marshal(r); err != nil {
			return fmt.Errorf("vgpu: ranks/%d/report.json: %w", i, err)
		}
	}
	return nil
}
