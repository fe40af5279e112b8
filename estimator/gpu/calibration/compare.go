package calibration

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/quantity"
)

// Pair is one workload on both cards.
type Pair struct {
	Real, Virtual Row
}

// Compared says that both have figures.
func (p *Pair) Compared() bool { return p.Real.ok() && p.Virtual.ok() }

// errorPercent is how far the virtual figure is off; positive where it is too large.
func errorPercent(virtual, real int64) float64 { return float64(virtual-real) * 100 / float64(real) }

// Summary is the error over all workloads that ran on both, in percent, without its sign.
type Summary struct {
	Rows, Compared                      int
	MedianReserved, P95Reserved, Worst  float64
	MedianAllocated                     float64
	OutsideLowBytes, OutsideMedianBytes int64
	OutsideHighBytes                    int64
	// Proposal is what the context of the profile should be, when the rows say otherwise.
	Proposal *gpu.Figure
}

// Summarize sums pairs up for the profile that the virtual card had.
func Summarize(pairs []Pair, p *gpu.Profile) Summary {
	s := Summary{Rows: len(pairs)}
	var reserved, allocated []float64
	var beyond []int64 // real outside bytes less those of the libraries: what is left for the context
	for i := range pairs {
		x := &pairs[i]
		if !x.Compared() {
			continue
		}
		s.Compared++
		reserved = append(reserved, math.Abs(errorPercent(x.Virtual.MaxReservedBytes, x.Real.MaxReservedBytes)))
		if x.Real.MaxAllocatedBytes > 0 {
			allocated = append(allocated, math.Abs(errorPercent(x.Virtual.MaxAllocatedBytes, x.Real.MaxAllocatedBytes)))
		}
		if x.Real.OutsideBytes > 0 {
			beyond = append(beyond, x.Real.OutsideBytes-x.Virtual.OutsideBytes)
		}
	}
	slices.Sort(reserved)
	slices.Sort(allocated)
	slices.Sort(beyond)
	s.MedianReserved, s.P95Reserved, s.Worst = quantile(reserved, 0.5), quantile(reserved, 0.95), quantile(reserved, 1)
	s.MedianAllocated = quantile(allocated, 0.5)
	if len(beyond) == 0 {
		return s
	}
	s.OutsideLowBytes, s.OutsideMedianBytes, s.OutsideHighBytes = beyond[0], quantile(beyond, 0.5), beyond[len(beyond)-1]
	if s.OutsideMedianBytes != 0 || p.Context.Bytes+s.OutsideHighBytes > p.Context.High() {
		f := gpu.Figure{Bytes: max(p.Context.Bytes+s.OutsideMedianBytes, 0), Measured: true,
			Source: fmt.Sprintf("calibrated: in use beyond PyTorch's memory and the libraries' first use, median of %s", quantity.Count(len(beyond), "workload"))}
		f.HighBytes = max(p.Context.Bytes+s.OutsideHighBytes, f.Bytes)
		s.Proposal = &f
	}
	return s
}

func quantile[T cmp.Ordered](sorted []T, q float64) T {
	var zero T
	if len(sorted) == 0 {
		return zero
	}
	return sorted[int(math.Ceil(q*float64(len(sorted)-1)))]
}

// Print prints the pairs side by side, and the summary.
func Print(out io.Writer, pairs []Pair, p *gpu.Profile) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "RESERVED, MiB: REAL\tVIRTUAL\tERROR\tALLOCATED: REAL\tVIRTUAL\tERROR\tOUTSIDE: REAL\tVIRTUAL\t  WORKLOAD")
	for i := range pairs {
		x := &pairs[i]
		if !x.Compared() {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", mib(x.Real.MaxReservedBytes), mib(x.Virtual.MaxReservedBytes), percent(x.Virtual.MaxReservedBytes, x.Real.MaxReservedBytes),
			mib(x.Real.MaxAllocatedBytes), mib(x.Virtual.MaxAllocatedBytes), percent(x.Virtual.MaxAllocatedBytes, x.Real.MaxAllocatedBytes),
			mib(x.Real.OutsideBytes), mib(x.Virtual.OutsideBytes), x.Real.Title())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range pairs {
		x := &pairs[i]
		switch {
		case x.Real.Skipped != "":
			fmt.Fprintf(out, "not compared: %s: skipped: %.200q\n", x.Real.Title(), x.Real.Skipped)
		case !x.Real.ok():
			fmt.Fprintf(out, "not compared: %s: on the real GPU: %.200q\n", x.Real.Title(), x.Real.Error)
		case !x.Virtual.ok():
			fmt.Fprintf(out, "not compared: %s: on the virtual GPU: %.200q\n", x.Real.Title(), x.Virtual.Error)
		}
	}
	s := Summarize(pairs, p)
	fmt.Fprintf(out, "\n%d of %s compared\n", s.Compared, quantity.Count(s.Rows, "workload"))
	if s.Compared == 0 {
		return nil
	}
	fmt.Fprintf(out, "error of peak reserved: median %.2f %%, 95 of 100 within %.2f %%, largest %.2f %%; of peak allocated: median %.2f %%\n", s.MedianReserved, s.P95Reserved, s.Worst, s.MedianAllocated)
	fmt.Fprintf(out, "outside PyTorch's memory: the real GPU had %s to %s MiB more in use than the profile says, median %s\n", mib(s.OutsideLowBytes), mib(s.OutsideHighBytes), mib(s.OutsideMedianBytes))
	if s.Proposal == nil {
		_, err := fmt.Fprintf(out, "proposed for the profile %s: nothing, its figures hold\n", p.ID)
		return err
	}
	_, err := fmt.Fprintf(out, "proposed for the profile %s: \"context\": {\"bytes\": %d, \"high_bytes\": %d, \"measured\": true, \"source\": %q}\n",
		p.ID, s.Proposal.Bytes, s.Proposal.HighBytes, s.Proposal.Source)
	return err
}

func mib(bytes int64) string { return fmt.Sprintf("%.0f", float64(bytes)/(1<<20)) }

func percent(virtual, real int64) string {
	if real == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.2f %%", errorPercent(virtual, real))
}
