package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/spf13/cobra"
)

// The status words and what they mean for the exit code.
const (
	statusFits       = "fits"
	statusDoesNotFit = "does not fit"
	statusUnknown    = "unknown"
)

const (
	shownOutputLines = 20
	shownSmallest    = 4
)

type estimateFlags struct {
	gpu       string
	gpus      int
	steps     int
	budget    time.Duration
	json      bool
	bundle    string
	noSandbox bool
}

func newEstimateCommand() *cobra.Command {
	var flags estimateFlags
	cmd := &cobra.Command{
		Use:   "estimate [flags] -- COMMAND [ARGUMENT...]",
		Short: "Say how much GPU memory a command needs, without a GPU",
		Long: `Runs the command for some training steps on a virtual GPU and says how much
memory a real one would need. The command is run as it is, in a sandbox: it can
read everything that you can, and changes nothing.

"Needed" is what PyTorch reserves at its peak and what lies outside of it (context,
libraries); "at most" is the upper end of the interval. The confidence says how far
both may be trusted: exact, high, low, unknown; each step down names its reasons.
Only the first steps are run: memory that the command takes later, in a validation
with larger batches for example, is not in the figure.

EXIT STATUS
  0  it fits on the GPU
  1  an error
  2  wrong usage
  3  it does not fit
  4  unknown; the reasons are named`,
		Example: `  gresize estimate -- python train.py --batch-size 64
  gresize estimate --gpu rtx4060 --json -- python train.py`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return estimate(cmd, flags, args) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.gpu, "gpu", "h100", "GPU `model`, see gresize gpu list")
	f.IntVar(&flags.gpus, "gpus", 1, "number of GPUs that the command sees")
	f.IntVar(&flags.steps, "steps", probe.DefaultSteps, "optimizer steps to see at least")
	f.DurationVar(&flags.budget, "budget", probe.DefaultBudget, "time that the command may take")
	f.BoolVar(&flags.json, "json", false, "print the estimate as JSON")
	f.StringVar(&flags.bundle, "bundle", "", "keep the trace bundle in `FILE`")
	f.BoolVar(&flags.noSandbox, "no-sandbox", false, "run the command as it is: it may change files, send mail, submit jobs")
	f.SetInterspersed(false)
	return cmd
}

func estimate(cmd *cobra.Command, flags estimateFlags, args []string) error {
	if len(args) == 0 {
		return usageError(errors.New("estimate: no command given; write it after --"))
	}
	if flags.gpus < 1 || flags.steps < 1 || flags.budget <= 0 {
		return usageError(errors.New("estimate: --gpus, --steps and --budget must be positive"))
	}
	profile, err := gpu.Load(flags.gpu)
	if err != nil {
		return usageError(err)
	}
	result, err := probe.Run(cmd.Context(), probe.Options{
		Command: args, GPU: profile, Devices: flags.gpus, Steps: flags.steps, Budget: flags.budget,
		NoSandbox: flags.noSandbox, Version: probe.BuildVersion(),
	})
	if err != nil {
		return err
	}
	if flags.bundle != "" {
		if err := trace.WriteFile(flags.bundle, result.Bundle); err != nil {
			return err
		}
	}
	status := statusOf(&result.Estimate, profile)
	if flags.json {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		err = enc.Encode(struct {
			estimator.Estimate
			Status string `json:"status"`
		}{result.Estimate, status})
	} else {
		err = printEstimate(cmd.OutOrStdout(), result, profile, status)
	}
	if err != nil {
		return fmt.Errorf("print the estimate: %w", err)
	}
	switch status {
	case statusFits:
		return nil
	case statusDoesNotFit:
		return &statusError{code: exitDoesNotFit}
	}
	return &statusError{code: exitUnknown}
}

// statusOf is careful: what might not fit is not called fitting.
func statusOf(e *estimator.Estimate, p *gpu.Profile) string {
	largest, ok := e.Largest()
	full := slices.ContainsFunc(e.Reasons, func(r estimator.Reason) bool { return r.Code == "out_of_memory" })
	switch {
	case !e.Fits && ok && full:
		return statusDoesNotFit // how much is needed is not known, but that it is more is
	case e.Confidence == estimator.Unknown || e.Confidence == estimator.Low || !e.Fits:
		return statusUnknown
	case !ok || largest.ComfortableHighBytes > p.Total.Bytes:
		return statusUnknown
	}
	return statusFits
}

func printEstimate(w io.Writer, result probe.Result, p *gpu.Profile, status string) error {
	var b strings.Builder
	e, m := &result.Estimate, &result.Bundle.Manifest
	fmt.Fprintf(&b, "%s: %s (%s)\n", status, p.Name, gib(p.Total.Bytes))
	for _, r := range e.Ranks {
		need := fmt.Sprintf("%s needed, at most %s", gib(r.ComfortableBytes), gib(r.ComfortableHighBytes))
		if !e.Fits {
			need = fmt.Sprintf("more than %s needed: that much was in use when the card was full", gib(r.ComfortableBytes))
		}
		fmt.Fprintf(&b, "  GPU %-8d %s\n", r.Rank, need)
		if r.MinimumBytes > 0 {
			fmt.Fprintf(&b, "               %s on a card with nothing to spare: the allocator gives back what it keeps\n", gib(r.MinimumBytes))
		}
		fmt.Fprintf(&b, "               %s allocated and %s reserved by PyTorch at the peak, %s outside it\n",
			gib(r.PeakAllocatedBytes), gib(r.PeakReservedBytes), gib(r.OutsideBytes))
	}
	if e.HostPeakBytes > 0 {
		fmt.Fprintf(&b, "  host memory  %s\n", gib(e.HostPeakBytes))
	}
	fmt.Fprintf(&b, "  confidence   %s, from %s in %.1f s\n", e.Confidence, stepsOf(e.Steps), e.WallSeconds)
	if largest, ok := e.Largest(); ok && e.Confidence != estimator.Unknown && e.Fits {
		var names []string
		for _, c := range gpu.SmallestFor(largest.ComfortableHighBytes) {
			if names = append(names, fmt.Sprintf("%s (%s)", c.ID, gib(c.Total.Bytes))); len(names) == shownSmallest {
				break
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "  would fit    %s (not tried there)\n", strings.Join(names, ", "))
		}
	}
	for _, r := range e.Reasons {
		fmt.Fprintf(&b, "  because      %s: %s\n", r.Code, clean(r.Detail))
	}
	for _, n := range m.Notes {
		fmt.Fprintf(&b, "  note         %s\n", clean(n))
	}
	for _, c := range m.Calls {
		if c.Action == "refused" {
			fmt.Fprintf(&b, "  note         %s was not run\n", clean(c.Name))
		}
	}
	if m.OutputTail != "" {
		lines := strings.Split(strings.TrimRight(m.OutputTail, "\n"), "\n")
		lines = lines[max(0, len(lines)-shownOutputLines):]
		fmt.Fprintf(&b, "  the command's last words:\n")
		for _, l := range lines {
			fmt.Fprintf(&b, "    | %s\n", clean(l))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func stepsOf(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

func gib(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

// clean keeps a command's output from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}
