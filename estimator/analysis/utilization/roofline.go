package utilization

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/quantity"
)

// Schema names the JSON form of Advice. It changes when a key changes its meaning.
const Schema = "gresize.utilization/1"

// Interval is a figure with the ends between which it is expected to lie.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Share is the part of an operator in the device's time.
type Share struct {
	Operator string  `json:"operator"`
	Type     string  `json:"dtype"`
	Share    float64 `json:"share"`
	// Bound is compute or memory: which roof the larger part of its time lies under; launch: neither fills a kernel.
	Bound string `json:"bound"`
}

// Advice is how busy a GPU will be. Shares are between 0 and 1.
type Advice struct {
	Schema     string               `json:"schema"`
	Confidence estimator.Confidence `json:"confidence"`
	Reasons    []estimator.Reason   `json:"reasons"`
	// StepSeconds is the time of one training step. HostSeconds is the host's part in it, DeviceSeconds the sum of all kernels.
	StepSeconds   Interval `json:"step_seconds"`
	HostSeconds   Interval `json:"host_seconds"`
	DeviceSeconds Interval `json:"device_seconds"`
	// SMActivity is the share of time in which a multiprocessor has work, mean over all (DCGM's SMACT).
	SMActivity Interval `json:"sm_activity"`
	// MemoryActivity is the share of time in which device memory is read or written (DCGM's DRAMA).
	MemoryActivity Interval `json:"memory_activity"`
	// Bound is what a step waits for: host, compute, memory or launch.
	Bound string `json:"bound"`
	// Operators are those that take most of the device's time.
	Operators []Share `json:"operators"`
}

// What bounds a kernel, or a step.
const (
	BoundHost    = "host"
	BoundCompute = "compute"
	BoundMemory  = "memory"
	BoundLaunch  = "launch"
)

// side is one end of an interval, or its middle: how well kernels do, and what a launch costs at least.
type side struct {
	product, memory, kernelSeconds, cached, copyBytesPerSecond float64
}

// What kernels reach of a roof: large products 45 to 90 % of the peak of their type, streams of memory 65 to 92 % of the bandwidth, a kernel that does
// nothing 1.5 to 4 microseconds from its start to its end; of what fits into the cache at once, a part is not fetched again. These are ranges
// that published measurements of such kernels keep within, docs/utilization.md; none was fitted to a program.
var (
	typical = side{product: 0.65, memory: 0.80, kernelSeconds: 2.5e-6, cached: 0.5, copyBytesPerSecond: 12e9}
	fast    = side{product: 0.90, memory: 0.92, kernelSeconds: 1.5e-6, cached: 0.1, copyBytesPerSecond: 25e9}
	slow    = side{product: 0.45, memory: 0.65, kernelSeconds: 4e-6, cached: 1, copyBytesPerSecond: 6e9}
)

const (
	attributeL2Bytes = 38
	// otherShare is what arithmetic that is no product reaches of its peak: it is instructions of all kinds.
	otherShare = 0.5
	// halfFills is how many times over a part of the multiprocessors uses up the bandwidth: about half of them do.
	halfFills = 2
	// smallerPieces is how many times more blocks a library may make of a product than one for each 128 x 128 outputs: small products are
	// divided further, so that they fill more of a card.
	smallerPieces = 4
	// cacheSpeed is how much faster the cache is than memory.
	cacheSpeed = 2.5
	// The host of a job is as fast as that of the probe, or up to so much faster or slower.
	hostFaster, hostSlower = 0.5, 1.5
	shownOperators         = 5
)

// totals is what the kernels of a step come to on one side.
type totals struct {
	seconds, active, transferred float64 // active: seconds times the share of busy multiprocessors; transferred: seconds of the memory at full speed
	// activeMost is active where libraries divide products into smaller pieces than those that were counted.
	activeMost float64
	byBound    map[string]float64
}

// Estimate says how busy the card will be. Without a step to look at, the confidence is unknown and there are no figures.
func Estimate(s *Stream, card *gpu.Profile) Advice {
	a := Advice{Schema: Schema, Confidence: estimator.Low, Reasons: []estimator.Reason{}, Operators: []Share{}}
	if reason := unusable(s, card); reason.Code != "" {
		a.Confidence, a.Reasons = estimator.Unknown, append(a.Reasons, reason)
		return a
	}
	a.Reasons = append(a.Reasons, estimator.Reason{Code: "roofline", Detail: "computed from the profile's peak figures: no kernel was timed"})
	if s.LeftOut > 0 {
		a.Reasons = append(a.Reasons, estimator.Reason{Code: "operators_left_out", Detail: fmt.Sprintf("%s of the step %s not in the figures", quantity.Count(s.LeftOut, "operator"), quantity.Word(s.LeftOut, "is", "are"))})
	}
	host := hostSeconds(s)
	mid, quick, long := sum(s, card, typical), sum(s, card, fast), sum(s, card, slow)
	a.HostSeconds = host
	a.DeviceSeconds = Interval{mid.seconds, quick.seconds, long.seconds}
	wait := 0.0 // where the host waits for values, neither runs ahead of the other all the time
	if s.Syncs > 0 {
		wait = 0.1 * min(host.Value, mid.seconds)
	}
	step := max(host.Value, mid.seconds) + wait
	a.StepSeconds = Interval{step, max(host.Low, quick.seconds), host.High + long.seconds}
	a.SMActivity = share(mid.active, step, quick.active/(host.High+quick.seconds), long.activeMost/max(host.Low, long.seconds))
	a.MemoryActivity = share(mid.transferred, step, quick.transferred/(host.High+long.seconds), long.transferred/max(host.Low, quick.seconds))
	a.Bound = BoundHost
	if mid.seconds > host.Value {
		a.Bound = largest(mid.byBound)
	}
	a.Operators = operators(s, card, mid.seconds)
	return a
}

// CallSeconds is how long each operator of the step takes on the card, in the order of s.Calls; nil where there is nothing to reckon from.
func CallSeconds(s *Stream, card *gpu.Profile) []float64 {
	if unusable(s, card).Code != "" {
		return nil
	}
	kinds := make([]float64, len(s.Operators))
	for i, o := range s.Operators {
		kinds[i] = newKernel(o, card, typical).seconds * o.Launches
	}
	calls := make([]float64, len(s.Calls))
	for i, c := range s.Calls {
		calls[i] = kinds[c]
	}
	return calls
}

// UseSeconds is how long each operator of s.Uses takes: on the card, or its share of the host's time where the host is slower; nil where that is not known.
func UseSeconds(s *Stream, card *gpu.Profile) []float64 {
	if unusable(s, card).Code != "" {
		return nil
	}
	seconds, sum := make([]float64, len(s.Uses)), 0.0
	for i, u := range s.Uses {
		if u.Operator >= 0 {
			o := s.Operators[u.Operator]
			seconds[i] = newKernel(o, card, typical).seconds * o.Launches
			sum += seconds[i]
		}
	}
	if sum <= 0 {
		return nil
	}
	scale := Estimate(s, card).StepSeconds.Value / sum
	for i := range seconds {
		seconds[i] *= scale
	}
	return seconds
}

func unusable(s *Stream, card *gpu.Profile) estimator.Reason {
	switch {
	case s.Compiled:
		return estimator.Reason{Code: "compiled", Detail: "a compiler's kernels are not seen as operators"}
	case s.Step == 0 || len(s.Operators) == 0:
		return estimator.Reason{Code: estimator.CodeNoStepSeen, Detail: "no whole training step was recorded operator by operator"}
	case len(s.ProcessorSeconds) == 0 || slices.Min(s.ProcessorSeconds) <= 0:
		return estimator.Reason{Code: estimator.CodeNoStepSeen, Detail: "no step gave the host's time"}
	case card.PeakFLOPS["fp32"] == 0 || card.MemoryBandwidthBytesPerSecond == 0 || card.Multiprocessors() == 0:
		return estimator.Reason{Code: "profile_incomplete", Detail: "the profile of " + card.ID + " has no peak figures"}
	}
	return estimator.Reason{}
}

// share is an activity within its bounds, whatever the order in which the sides turn out.
func share(busy, step, low, high float64) Interval {
	value := min(1, busy/step)
	return Interval{value, min(value, low), max(value, min(1, high))}
}

// hostSeconds is the processor's time of the quickest step: other steps also load data, or shared the machine with others.
func hostSeconds(s *Stream) Interval {
	least := slices.Min(s.ProcessorSeconds)
	return Interval{least, hostFaster * least, hostSlower * least}
}

func sum(s *Stream, card *gpu.Profile, at side) totals {
	t := totals{byBound: map[string]float64{}}
	for _, o := range s.Operators {
		k := newKernel(o, card, at)
		seconds := k.seconds * o.Launches * o.Count
		t.seconds += seconds
		t.active += seconds * k.fill
		most := k.fill
		if o.Kind == "product" {
			most = min(1, smallerPieces*k.fill)
		}
		t.activeMost += seconds * most
		t.transferred += k.transferred / card.MemoryBandwidthBytesPerSecond * o.Launches * o.Count
		t.byBound[k.bound] += seconds
	}
	t.seconds += s.CopiedBytes / at.copyBytesPerSecond
	return t
}

// kernel is one launch of an operator.
type kernel struct {
	seconds, fill, transferred float64
	bound                      string
}

// newKernel is the roofline of one launch: it takes as long as its arithmetic or its memory, whichever is slower, with the part of the card that its
// blocks fill, and never less than an empty kernel.
func newKernel(o Operator, card *gpu.Profile, at side) kernel {
	launches := max(1, o.Launches)
	blocks, bytes := max(1, o.Blocks/launches), o.Bytes/launches
	k := kernel{fill: min(1, blocks/float64(card.Multiprocessors()))}
	efficiency := otherShare
	if o.Kind == "product" {
		efficiency = at.product
	}
	compute := o.FLOPs / launches / (peak(o.Type, card) * efficiency * k.fill)
	rate := card.MemoryBandwidthBytesPerSecond * at.memory * min(1, halfFills*k.fill)
	k.transferred = bytes
	if bytes < float64(card.Attributes[attributeL2Bytes])/2 {
		rate *= cacheSpeed
		k.transferred *= at.cached
	}
	memory := bytes / rate
	k.seconds = at.kernelSeconds + max(compute, memory)
	switch {
	case max(compute, memory) < at.kernelSeconds:
		k.bound = BoundLaunch
	case compute >= memory:
		k.bound = BoundCompute
	default:
		k.bound = BoundMemory
	}
	return k
}

// fallbacks are the types in whose place another is used by a card that lacks them.
var fallbacks = map[string]string{"tf32": "fp32", "bf16": "fp32", "fp16": "fp32", "fp8": "fp16", "int8": "fp16"}

func peak(dtype string, card *gpu.Profile) float64 {
	for range len(fallbacks) {
		if p := card.PeakFLOPS[dtype]; p > 0 {
			return p
		}
		next, ok := fallbacks[dtype]
		if !ok {
			break
		}
		dtype = next
	}
	if dtype == "fp64" {
		return card.PeakFLOPS["fp32"] / 32 // as on cards that have no more than a few such units
	}
	return card.PeakFLOPS["fp32"]
}

func largest(parts map[string]float64) string {
	best := BoundLaunch
	for _, name := range []string{BoundCompute, BoundMemory} {
		if parts[name] > parts[best] {
			best = name
		}
	}
	return best
}

// operators are those with the largest shares, all kinds of one name and type together.
func operators(s *Stream, card *gpu.Profile, all float64) []Share {
	type key struct{ name, dtype string }
	seconds, bounds := map[key]float64{}, map[key]map[string]float64{}
	for _, o := range s.Operators {
		k := newKernel(o, card, typical)
		at := key{o.Name, o.Type}
		if bounds[at] == nil {
			bounds[at] = map[string]float64{}
		}
		t := k.seconds * o.Launches * o.Count
		seconds[at] += t
		bounds[at][k.bound] += t
	}
	list := make([]Share, 0, len(seconds))
	for at, t := range seconds {
		list = append(list, Share{Operator: at.name, Type: at.dtype, Share: t / math.Max(all, math.SmallestNonzeroFloat64), Bound: largest(bounds[at])})
	}
	slices.SortFunc(list, func(x, y Share) int {
		return cmp.Or(cmp.Compare(y.Share, x.Share), cmp.Compare(x.Operator, y.Operator), cmp.Compare(x.Type, y.Type))
	})
	return list[:min(len(list), shownOperators)]
}
