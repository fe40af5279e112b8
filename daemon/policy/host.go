package policy

import (
	"fmt"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/request"
)

// Host are the rules for the host memory of --mem. The zero value leaves it alone.
type Host struct {
	Lower bool
	// MarginPercent and MarginMinBytes, of which each GPU has one, make the margin: the larger of the two, and never less than NVIDIA's libraries may take, which a
	// probe does not load.
	MarginPercent  int
	MarginMinBytes int64
	// FloorBytes is the least that is asked for.
	FloorBytes int64
}

// lower is the host memory to ask for, with the reason, or 0. It never asks for more than the owner did, nor for less than was seen plus the margin.
func (h Host) lower(in Input, gpus int) (mib uint64, reason string) {
	asked, peak := in.Asked.MemPerNodeMiB, in.Estimate.HostPeakBytes
	if !h.Lower || asked == 0 || peak <= 0 || peak > maxBytes || in.Asked.MemPerTres != "" || len(in.Estimate.Ranks) != gpus {
		return 0, ""
	}
	if in.Estimate.HasReason(estimator.CodeRanksNotRun) {
		return 0, ""
	}
	margin := max(peak/100*int64(h.MarginPercent), h.MarginMinBytes*int64(gpus), estimator.DriverHostHighBytes*int64(gpus))
	need := uint64(max(peak+margin, h.FloorBytes)+1<<20-1) >> 20
	// What saves less than a sixteenth is not worth a change.
	if need >= asked-asked/16 {
		return 0, ""
	}
	return need, fmt.Sprintf("host memory: %s were seen and %s are margin, so %d MiB in place of %d MiB", quantity.GiB(peak), quantity.GiB(int64(need)<<20-peak), need, asked)
}

// keeping is the decision for a job whose GPU stays: nothing, or less host memory.
func (d Decision) keeping(in Input, row Row, hostReason string) Decision {
	d.Verdict, d.Code, d.Target = decision.Keep, decision.CodeAlready, row.Target
	d.Change, d.Profile, d.FitsBytes = request.Change{}, "", 0
	if row.Target.MemPerNodeMiB == 0 {
		return d
	}
	result := in.Asked
	result.MemPerNodeMiB = row.Target.MemPerNodeMiB
	// No other card: the one on which the job was tried speaks for it.
	d.Verdict, d.Code, d.Profile, d.FitsBytes = decision.Rewrite, decision.CodeHostMemory, in.Estimate.GPU, row.FitsBytes
	d.Change = request.Change{Set: request.Difference(in.Asked, result), Result: result}
	d.Reason += "; " + hostReason
	return d
}
