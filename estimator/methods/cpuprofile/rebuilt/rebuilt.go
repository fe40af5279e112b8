// Package rebuilt is the half that the estimators of a CPU profile share: it opens the profile of a bundle, says what no such method covers, and
// replays the blocks that a method would have on a GPU in the simulator of PyTorch's allocator.
package rebuilt

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/capacity"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/quantity"
)

const (
	// leastIterations is how many a method needs: the first one has no gradients of an iteration before it.
	leastIterations = 2
	// allowancePercent is how much more than the replay says the upper end of the interval is, workspaceBytes what comes on top for the workspaces
	// of matrix products, which PyTorch takes from its allocator and no CPU has. docs/accuracy/xmem-estimator.md has the rows.
	allowancePercent = 15
	workspaceBytes   = int64(2) * 32 << 20
	// minimumOps bounds the search for the smallest card.
	minimumOps = 10_000_000
)

// Profile is a run as the methods read it.
type Profile struct {
	Report *cpuprofile.Report
	Trace  *cpuprofile.Trace
	Layout *cpuprofile.Layout
	Blocks []cpuprofile.Block
	Places []cpuprofile.Place
}

// notCovered is a run that no method of this kind speaks about.
func notCovered(detail string) *estimator.Reason {
	return &estimator.Reason{Code: estimator.CodeNotCovered, Detail: trace.Clip([]byte(detail), estimator.MaxDetailBytes)}
}

// Open reads the profile of a bundle. With a reason there is none: the answer is unknown. An error says that the bundle is damaged.
func Open(b *trace.Bundle, recording string) (*Profile, *estimator.Reason, error) {
	if len(b.Ranks) != 1 {
		return nil, notCovered(fmt.Sprintf("%d processes trained, the method knows one", len(b.Ranks))), nil
	}
	r, err := cpuprofile.ParseReport(b.Ranks[0].Report)
	if err != nil {
		return nil, nil, fmt.Errorf("ranks/0/report.json: %w", err)
	}
	if why := judge(r, recording); why != nil {
		return nil, why, nil
	}
	if len(b.Ranks[0].Profile) == 0 {
		return nil, &estimator.Reason{Code: estimator.CodeProfileMissing, Detail: "the trace of the profiler: " + r.Trace}, nil
	}
	packed, err := gzip.NewReader(bytes.NewReader(b.Ranks[0].Profile))
	if err != nil {
		return nil, unusable(err), nil
	}
	t, err := cpuprofile.ReadTrace(packed)
	if err != nil {
		return nil, unusable(err), nil
	}
	p, err := Lay(r, t)
	if err != nil {
		return nil, unusable(err), nil
	}
	switch {
	case len(p.Layout.Iterations) < leastIterations:
		return nil, &estimator.Reason{Code: estimator.CodeNoStepSeen, Detail: fmt.Sprintf("%d whole iterations in the trace, at least %d are needed; --budget gives more time", len(p.Layout.Iterations), leastIterations)}, nil
	case len(p.Layout.Backwards) == 0:
		return nil, notCovered("no backward pass was seen"), nil
	case t.OtherDevices > 0:
		return nil, notCovered(fmt.Sprintf("%s on another device than the CPU", quantity.Count(t.OtherDevices, "allocation was", "allocations were"))), nil
	}
	return p, nil, nil
}

// Lay pairs the memory events of a trace and places the blocks.
func Lay(r *cpuprofile.Report, t *cpuprofile.Trace) (*Profile, error) {
	p := &Profile{Report: r, Trace: t, Layout: t.Layout()}
	var err error
	if p.Blocks, _, err = t.Blocks(); err != nil {
		return nil, err
	}
	p.Places = t.Places(p.Layout, p.Blocks)
	return p, nil
}

func unusable(err error) *estimator.Reason {
	return &estimator.Reason{Code: estimator.CodeProfileUnusable, Detail: trace.Clip([]byte(err.Error()), estimator.MaxDetailBytes)}
}

// judge says what of the run keeps a method from an answer, before its trace is read.
func judge(r *cpuprofile.Report, recording string) *estimator.Reason {
	switch {
	case r.WorldSize != nil && *r.WorldSize > 1:
		return notCovered(fmt.Sprintf("a job of %d ranks", *r.WorldSize))
	case r.LeftOnGPUBytes > 0:
		return notCovered(fmt.Sprintf("%d bytes could not be led to the CPU", r.LeftOnGPUBytes))
	case r.Recording != recording:
		return &estimator.Reason{Code: estimator.CodeRecordedOtherwise, Detail: fmt.Sprintf("the profile was recorded as %q, this method needs %q", r.Recording, recording)}
	case r.Steps > 0 && len(r.Optimizers) == 0:
		return notCovered("no optimizer of PyTorch's was used")
	case slices.Contains(r.Replaced, "compile"):
		return notCovered("torch.compile makes kernels that a CPU does not run")
	}
	return nil
}

// Request is a block as it would be on the GPU. Born and Died order requests; at the same time allocations come first. Never is no death.
type Request struct {
	Bytes      int64
	Born, Died int64
}

// Answer replays the requests and makes the estimate of the one rank.
func Answer(p *Profile, requests []Request, b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	program, err := NewProgram(requests, p.Report.Torch)
	if err != nil {
		return estimator.Estimate{}, err
	}
	res, err := program.Run(replay.RunOptions{CapacityBytes: replay.Unlimited})
	if err != nil {
		return estimator.Estimate{}, err
	}
	libraries := []string{"cublas"}
	if p.Layout.Convolutions {
		libraries = append(libraries, "cudnn")
	}
	outside, outsideHigh := card.OutsideBytes(libraries)
	allocated, reserved := res.Stats.AllocatedBytes.All.Peak, res.Stats.ReservedBytes.All.Peak
	rank := estimator.Rank{
		PeakAllocatedBytes: allocated, PeakReservedBytes: reserved, OutsideBytes: outside, ComfortableBytes: reserved + outside,
		ComfortableHighBytes: reserved + max(outsideHigh, outside) + reserved/100*allowancePercent + workspaceBytes,
	}
	e := estimator.Estimate{Confidence: estimator.High, Fits: true, Reasons: slices.Clone(b.Manifest.Reasons)}
	if found, err := capacity.Search(program, capacity.Options{MaxOps: minimumOps}); err == nil {
		rank.MinimumBytes = min(int64(found.MinimumBytes)+outside, rank.ComfortableBytes)
	}
	e.Ranks = []estimator.Rank{rank}
	lower(&e, estimator.High, estimator.CodeKernelsOfCPU, "the sizes are those of kernels of a CPU, without the workspaces of a GPU's")
	for _, what := range p.Report.Replaced {
		if what == "autocast" {
			lower(&e, estimator.Low, estimator.CodeKernelsOfCPU, "a CPU computes other operators in half precision than a GPU does")
		}
	}
	if v, err := allocator.ParseVersion(p.Report.Torch); err == nil && !v.Known() {
		lower(&e, estimator.Low, estimator.CodeUnknownRelease, "the allocator of PyTorch "+p.Report.Torch+" is not known")
	}
	for _, r := range b.Manifest.Reasons {
		if r.Code != estimator.CodeNoSandbox && r.Code != estimator.CodeNoEstimator {
			e.Confidence = e.Confidence.AtMost(estimator.Low)
		}
	}
	if b.Manifest.Outcome == trace.Stopped {
		lower(&e, estimator.Low, estimator.CodeRunCutShort, fmt.Sprintf("the first %d iterations are in the trace, and what follows them was not examined: a validation or a larger batch is not in the figure", len(p.Layout.Iterations)))
	}
	switch {
	case rank.MinimumBytes > card.Total.Bytes:
		e.Fits = false
		lower(&e, estimator.Low, estimator.CodeOutOfMemory, "the job needs more than the card")
	case rank.ComfortableBytes > card.Total.Bytes:
		e.Fits = false
		lower(&e, estimator.Low, estimator.CodeNearCapacity, "the allocator would meet the end of the card and go on without its cache")
	}
	return e, nil
}

// lower takes the confidence down to limit for a reason.
func lower(e *estimator.Estimate, limit estimator.Confidence, code, detail string) {
	e.Confidence = e.Confidence.AtMost(limit)
	e.Reasons = append(e.Reasons, estimator.Reason{Code: code, Detail: detail})
}

// NewProgram makes a program for the allocator of a release.
func NewProgram(requests []Request, torch string) (*replay.Program, error) {
	version, err := allocator.ParseVersion(torch)
	if err != nil {
		return nil, err
	}
	type step struct {
		at    int64
		free  bool
		block int32
	}
	steps := make([]step, 0, 2*len(requests))
	for i, r := range requests {
		if r.Bytes <= 0 || r.Died < r.Born {
			return nil, errors.New("a block without a size, or freed before it was made")
		}
		steps = append(steps, step{r.Born, false, int32(i)})
		if r.Died != cpuprofile.Never {
			steps = append(steps, step{r.Died, true, int32(i)})
		}
	}
	slices.SortStableFunc(steps, func(x, y step) int {
		switch {
		case x.at != y.at:
			return cmp.Compare(x.at, y.at)
		case x.free != y.free && y.free:
			return -1
		case x.free != y.free:
			return 1
		}
		return 0
	})
	p := &replay.Program{Name: "rebuilt", Version: version, Blocks: len(requests)}
	for _, s := range steps {
		op := replay.Op{Kind: replay.OpAlloc, Block: s.block, Bytes: uint64(requests[s.block].Bytes)}
		if s.free {
			op = replay.Op{Kind: replay.OpFree, Block: s.block}
		}
		p.Ops = append(p.Ops, op)
	}
	return p, nil
}
