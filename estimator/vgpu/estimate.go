package vgpu

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/quantity"
)

const (
	// namedSymbols bounds the list of unanswered symbols that become reasons of their own.
	namedSymbols = 16
	// convAllowancePercent is the least by which the interval is widened where the workspaces of convolutions are modelled: the mean
	// error of the model on published CNN runs that it was not fitted to, docs/accuracy/cudnn.md. The model's own upper ends come on top
	// of that; together they cover every published row.
	convAllowancePercent = 4
	// graphAllowancePercent does so where cuDNN ran a graph that is no convolution, such as attention.
	graphAllowancePercent = 5
)

// allowance is how much more than the model the rank might take, because sizes in it are bounds.
func (r *rankReport) allowance() int64 {
	var bytes int64
	percent := int64(0)
	for name, b := range r.Coverage.Bounded {
		switch name {
		case "conv":
			percent = max(percent, convAllowancePercent)
			bytes += b.LargestBytes
		case "dnn_graph":
			percent = max(percent, graphAllowancePercent)
		default: // the model may be wrong by as much again
			bytes += b.LargestBytes
		}
	}
	percent = max(percent, int64(math.Ceil(100*spreadFactor*r.Coverage.BatchSpread)))
	if r.Coverage.Ahead.LargestBatch {
		percent = max(percent, valuesAllowancePercent)
	}
	bytes += r.Coverage.Tuning.WorkspaceBytes
	if r.Reason == reasonStopped {
		left, _ := r.Coverage.Ahead.leftInAll(r.PeakReservedBytes)
		bytes += left
	}
	return min(bytes, maxMemoryBytes) + r.PeakReservedBytes/100*percent
}

// Estimate makes the answer from a bundle that ReadReports' ranks went into, for the card it was recorded on.
func Estimate(b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	ranks := make([]rankReport, 0, len(b.Ranks))
	for i := range b.Ranks {
		r, err := parseRank(b.Ranks[i].Report)
		if err != nil {
			return estimator.NewUnknown(Name, p.ID, estimator.Reason{Code: estimator.CodeBundleInvalid, Detail: clip(fmt.Sprintf("ranks/%d/report.json: %v", i, err))})
		}
		ranks = append(ranks, r)
	}
	if len(ranks) == 0 {
		return estimator.NewUnknown(Name, p.ID, append(slices.Clone(b.Manifest.Reasons), estimator.Reason{Code: estimator.CodeNoGPUUsed, Detail: "no process put anything on a GPU"})...)
	}
	a := answer{Estimate: estimator.Estimate{
		Schema: estimator.SchemaEstimate, Estimator: Name, GPU: p.ID, Confidence: estimator.Exact, Fits: true,
		Reasons: slices.Clone(b.Manifest.Reasons), Versions: b.Manifest.Versions, Steps: b.Manifest.Steps,
		HostPeakBytes: b.Manifest.HostPeakBytes, WallSeconds: b.Manifest.Timings.RunMillis / 1000,
	}}
	for i := range ranks {
		point, high := ranks[i].outside(p)
		k := ranks[i].estimate(ranks[i].Rank, point, high)
		ranks[i].widen(&k, p.Total.Bytes)
		ranks[i].widenByPool(&k, p)
		a.Ranks = append(a.Ranks, k)
	}
	a.judgeReasons()
	if detail, some := notRun(ranks); some {
		level := estimator.High
		if slices.ContainsFunc(ranks, func(r rankReport) bool { return r.Pool != nil }) {
			level = estimator.Low // a process of JAX that is alone has not met the others
		}
		a.lower(level, estimator.CodeRanksNotRun, detail)
	}
	a.judgeOutcome(b)
	for i := range ranks {
		a.judgeRank(&ranks[i])
		a.judgePool(&ranks[i], p)
	}
	if len(a.Reasons) > estimator.MaxReasons {
		a.Reasons = a.Reasons[:estimator.MaxReasons]
	}
	return a.Estimate
}

// answer is an Estimate on its way down from exact.
type answer struct{ estimator.Estimate }

// lower takes the confidence down to limit for a reason, which is kept once.
func (a *answer) lower(limit estimator.Confidence, code, detail string) {
	a.Confidence = a.Confidence.AtMost(limit)
	reason := estimator.Reason{Code: code, Detail: clip(detail)}
	if !slices.Contains(a.Reasons, reason) {
		a.Reasons = append(a.Reasons, reason)
	}
}

// limits is how far a reason that is already in the bundle takes the confidence down.
var limits = map[string]estimator.Confidence{
	estimator.CodeStaticRuntime: estimator.Unknown, estimator.CodeSeveralGPUs: estimator.Low, estimator.CodeNoStepSeen: estimator.Unknown, estimator.CodeBudgetSpent: estimator.Low,
	estimator.CodeScriptFailed: estimator.Low, estimator.CodeOutOfMemory: estimator.Unknown, estimator.CodeForgedEnvironment: estimator.Unknown, estimator.CodeBundleInvalid: estimator.Unknown,
	estimator.CodePhaseNotReached: estimator.Low, estimator.CodeCPUOnlyTorch: estimator.Unknown, estimator.CodeNoTorch: estimator.Unknown, estimator.CodeNoSandbox: estimator.High,
	estimator.CodeStubMissing: estimator.Unknown, estimator.CodeOtherArchitecture: estimator.Unknown, estimator.CodeEnvironmentReplaced: estimator.Unknown, estimator.CodePythonLayerMissing: estimator.Unknown,
	estimator.CodeAddressSpace: estimator.Unknown, estimator.CodeNoCUDACompiler: estimator.Unknown, estimator.CodeSymbolMissing: estimator.Low, estimator.CodeOutOfDisk: estimator.Low, estimator.CodeOutOfHostMemory: estimator.Low,
	estimator.CodeCPUOnlyJAX: estimator.Unknown, estimator.CodeJAXWithoutGPU: estimator.Unknown, estimator.CodeNoPtxas: estimator.Unknown, estimator.CodeTensorflow: estimator.Unknown,
	estimator.CodeTooManyProcesses: estimator.Low, estimator.CodeSandboxEnded: estimator.Low, estimator.CodeReportLost: estimator.Low, estimator.CodeResourceLimit: estimator.Low, estimator.CodeCrashedOnVirtual: estimator.Low,
}

// judgeReasons looks at what the runner and the reports found; what is found from here on brings its own limit.
func (a *answer) judgeReasons() {
	for _, r := range a.Reasons {
		if limit, ok := limits[r.Code]; ok {
			a.Confidence = a.Confidence.AtMost(limit)
		}
	}
}

func (a *answer) judgeOutcome(b *trace.Bundle) {
	switch b.Manifest.Outcome {
	case trace.Stopped, trace.Completed:
	case trace.OutOfMemory:
		a.Fits = false
		a.lower(estimator.Unknown, estimator.CodeOutOfMemory, "the job needs more than the modelled card: the figures are where it ended")
	case trace.Timeout:
		a.Confidence = a.Confidence.AtMost(estimator.Low)
	default:
		a.Confidence = estimator.Unknown
	}
	if b.Manifest.Steps == 0 && !a.HasReason(estimator.CodeNoStepSeen) && b.Manifest.Outcome != trace.OutOfMemory {
		a.lower(estimator.Unknown, estimator.CodeNoStepSeen, "no training step was seen")
	} else if b.Manifest.Steps == 1 && b.Manifest.Outcome == trace.Timeout {
		a.lower(estimator.Unknown, estimator.CodeBudgetSpent, "one step only: the state of the optimizer may not be in it")
	}
}

func (a *answer) judgeRank(r *rankReport) {
	var names []string
	for name := range r.Coverage.Unanswered {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i == namedSymbols {
			a.lower(estimator.Low, estimator.CodeSymbolUnanswered, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		a.lower(estimator.Low, estimator.CodeSymbolUnanswered, name)
	}
	if len(r.Coverage.Bounded) > 0 {
		kinds := make([]string, 0, len(r.Coverage.Bounded))
		for kind := range r.Coverage.Bounded {
			kinds = append(kinds, kind)
		}
		slices.Sort(kinds)
		a.lower(estimator.High, estimator.CodeWorkspaceBounded, strings.Join(kinds, ", "))
	}
	a.judgeValues(r)
	if t := r.Coverage.Tuning; t.Lists > 0 {
		a.lower(estimator.High, estimator.CodeKernelsChosen, fmt.Sprintf("%d times a kernel was chosen among several, %d in all, by times that a real GPU would measure", t.Lists, t.Candidates))
	}
	if r.Coverage.LargerLoaderUnread {
		a.lower(estimator.Low, estimator.CodePhaseNotReached, "a data loader with a larger batch than those that were read was not reached, such as that of a validation")
	}
	if r.Reason == reasonStopped {
		later := "memory that is taken later is not in the figure"
		if r.Coverage.TimeLapse == lapseProgram {
			later = "batches and turns that were left out are taken to need no more"
		}
		a.lower(estimator.High, estimator.CodeRunCutShort, fmt.Sprintf("%s%s: %s", r.seen(), notRead(r.Coverage.LoadersUnread), later))
	}
	if r.Reason == reasonStopped {
		a.judgeAhead(&r.Coverage.Ahead, r.PeakReservedBytes)
		if r.Pool != nil && r.Coverage.TimeLapse != lapseProgram {
			a.lower(estimator.Low, estimator.CodePhaseNotReached, "the program was not followed to its end, and what JAX compiles later is not in the figure: --budget sees more")
		}
	}
	if r.Reason == reasonRunning {
		a.lower(estimator.Low, estimator.CodeRunCutShort, fmt.Sprintf("a process was ended without a word after step %d or later: what it took since is not in the figure", r.Steps))
	}
	if r.Coverage.IdleOptimizer && r.Reason == reasonStopped {
		a.lower(estimator.Low, estimator.CodePhaseNotReached, "an optimizer was made and hardly used: the phase that it is for was not reached")
	}
	if r.Coverage.MemoryFraction {
		a.lower(estimator.Low, estimator.CodeMemoryFraction, "the program allows itself a part of the card: on a smaller card that part is smaller")
	}
	if !r.Coverage.KnownRelease {
		a.lower(estimator.High, estimator.CodeUnknownRelease, "PyTorch "+r.Coverage.Torch+" is not among the releases that were tried")
	}
	switch {
	case r.Reason != reasonStopped || r.Flat:
	case r.PeakReservedBytes == 0 && r.Pool == nil: // PYTORCH_NO_CUDA_MEMORY_CACHING, or an allocator of the program's own
		a.lower(estimator.Low, estimator.CodeMemoryUncounted, fmt.Sprintf("PyTorch's allocator counted nothing: the figure is what the card gave in %d steps, and whether it still rose was not seen", r.Steps))
	default:
		a.lower(estimator.Low, estimator.CodePeakStillRising, fmt.Sprintf("the peak still rose after %d steps", r.Steps))
	}
	switch {
	case r.OOMs > r.PassedOver || r.Refused > 0 && r.Retries == 0:
		a.Fits = false
		a.lower(estimator.Low, estimator.CodeOutOfMemory, "a request for memory failed at the end of the modelled card, and the program continued with less")
	case r.Retries > 0:
		a.Fits = false
		detail := fmt.Sprintf("the allocator met the end of the modelled card %s and continued without its cache", quantity.Count(r.Retries, "time"))
		if r.OOMs > 0 {
			detail += ", and convolutions were computed with smaller workspaces"
		}
		a.lower(estimator.Low, estimator.CodeNearCapacity, detail)
	}
}

// seen says how far the program was followed.
func (r *rankReport) seen() string {
	steps := quantity.Count(r.Steps, "step")
	switch r.Coverage.TimeLapse {
	case "":
	case lapseProgram:
		return fmt.Sprintf("%s were seen, and the rest of the program in time-lapse to its end", steps)
	case lapseNothingNew:
		return fmt.Sprintf("%s were seen, and what followed in time-lapse until nothing new came", steps)
	case lapseBudget, lapseOn:
		return fmt.Sprintf("%s were seen, and what followed in time-lapse as far as there was time", steps)
	default:
		return fmt.Sprintf("%s were seen, and what followed in time-lapse, up to an error that real batches may not lead to (%s)", steps, r.Coverage.TimeLapse)
	}
	if r.Coverage.EpochsCutShort {
		return fmt.Sprintf("%d steps were seen, and what follows an epoch that is cut short", r.Steps)
	}
	return fmt.Sprintf("the first %d steps were seen", r.Steps)
}

func notRead(loaders int) string {
	switch loaders {
	case 0:
		return ""
	case 1:
		return ", and one data loader was not reached"
	}
	return fmt.Sprintf(", and %d data loaders were not reached", loaders)
}
