package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/capacity"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/spf13/cobra"
)

type simulateFlags struct {
	capacity, allocConf, torchVersion string
	allocConfSet                      bool
	device                            int
	check, json, noMinimum            bool
	export                            string
}

func newSimulateCommand() *cobra.Command {
	var flags simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate FILE [--capacity SIZE] [--alloc-conf SETTINGS] [--torch-version VERSION] [--check]",
		Short: "Run the memory requests of a recorded job again, on another card or with other settings",
		Long: `Runs recorded memory requests again through an exact model of PyTorch's caching
allocator. FILE is a trace bundle, a PyTorch memory snapshot (a pickle of
torch.cuda.memory._dump_snapshot), or a recorded allocator trace.

Sizes are those of the allocator; the CUDA context and libraries come on top.
"minimum" is the smallest card on which these requests still succeed.

With --check the file is replayed as it was recorded, and every answer of the
model is compared with the recorded one; the last line says
"checked N events: 0 differences".

EXIT STATUS
  0  it fits; with --check: no difference
  1  an error; with --check: a difference
  2  wrong usage
  3  it does not fit`,
		Example: `  gresize simulate job.gresize --capacity 20GiB
  gresize simulate snapshot.pickle --alloc-conf expandable_segments:True --torch-version 2.6
  gresize simulate snapshot.pickle --check`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("simulate: give one file, not %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.allocConfSet = cmd.Flags().Changed("alloc-conf")
			return simulate(cmd, flags, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.capacity, "capacity", "", "memory for the allocator, such as 20GiB: that of the card less the CUDA context and libraries (default: as recorded)")
	f.StringVar(&flags.allocConf, "alloc-conf", "", "allocator settings, as in PYTORCH_CUDA_ALLOC_CONF (default: as recorded)")
	f.StringVar(&flags.torchVersion, "torch-version", "", "PyTorch release, such as 2.6 (default: as recorded, or the newest known)")
	f.IntVar(&flags.device, "rank", 0, "rank of a bundle, or device of a snapshot")
	f.BoolVar(&flags.check, "check", false, "compare every answer with the recorded one")
	f.BoolVar(&flags.noMinimum, "no-minimum", false, "do not search for the smallest card")
	f.BoolVar(&flags.json, "json", false, "print the result as JSON")
	f.StringVar(&flags.export, "export", "", "write the replay as a PyTorch memory snapshot to `FILE`, for pytorch.org/memory_viz")
	return cmd
}

func simulate(cmd *cobra.Command, flags simulateFlags, path string) error {
	if flags.check && (flags.capacity != "" || flags.allocConfSet || flags.export != "") {
		return usageError(errors.New("simulate: --check replays as recorded, so --capacity, --alloc-conf and --export do not go with it"))
	}
	if flags.device < 0 {
		return usageError(errors.New("simulate: --rank must not be negative"))
	}
	o := replay.OpenOptions{Device: flags.device}
	var run replay.RunOptions
	if flags.torchVersion != "" {
		v, err := torchVersion(flags.torchVersion)
		if err != nil {
			return err
		}
		o.Version, run.Version = v, v
	}
	if flags.capacity != "" {
		bytes, err := parseSize(flags.capacity)
		if err != nil {
			return usageError(fmt.Errorf("--capacity: %w", err))
		}
		run.CapacityBytes = bytes
	}
	p, err := replay.Open(path, o)
	if err != nil {
		return err
	}
	if flags.check {
		return simulateCheck(cmd, p, flags)
	}
	if flags.allocConfSet {
		version := p.Version
		if run.Version != (allocator.Version{}) {
			version = run.Version
		}
		config, warnings, err := allocator.ParseConfig(flags.allocConf, version)
		if err != nil {
			return usageError(fmt.Errorf("--alloc-conf: PyTorch %v says: %w", version, err))
		}
		for _, w := range warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "gresize: PyTorch warns:", w)
		}
		run.Config = &config
	}
	if run.CapacityBytes == 0 && !p.TotalKnown {
		run.CapacityBytes = replay.Unlimited
	}
	return simulateRun(cmd, p, run, flags)
}

// torchVersion reads a release that somebody names. One that is not known is refused: its answer would be that of another release.
func torchVersion(text string) (allocator.Version, error) {
	v, err := allocator.ParseVersion(text)
	if err == nil && !v.Known() {
		err = fmt.Errorf("--torch-version: PyTorch %v is not known: the newest that is simulated is %v; without the flag, a file of a newer release is simulated as that", v, allocator.Newest)
	}
	if err != nil {
		return v, usageError(err)
	}
	return v, nil
}

func simulateCheck(cmd *cobra.Command, p *replay.Program, flags simulateFlags) error {
	res, err := p.Check()
	if err != nil {
		return err
	}
	if flags.json {
		if err := printJSON(cmd, map[string]any{"schema": schemaSimulateCheck, "events": res.Events, "answers": res.Answers, "differences": res.Differences, "first": res.First}); err != nil {
			return err
		}
	} else {
		if res.First != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "the first difference is at %v\n", res.First)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "checked %s: %s\n", quantity.Count(res.Events, "event"), quantity.Count(res.Differences, "difference"))
	}
	if res.Differences > 0 {
		return &statusError{code: exitError}
	}
	return nil
}

// These name the JSON forms of `gresize simulate --json`, without and with --check.
const (
	schemaSimulate      = "gresize.simulate/1"
	schemaSimulateCheck = "gresize.simulate-check/1"
)

// simulation is what simulate prints; sizes are bytes.
type simulation struct {
	Schema             string           `json:"schema"`
	File               string           `json:"file"`
	Torch              string           `json:"torch_version"`
	Requests           int              `json:"requests"`
	CapacityBytes      uint64           `json:"capacity_bytes,omitempty"`
	StartReservedBytes uint64           `json:"start_reserved_bytes,omitempty"`
	Fits               bool             `json:"fits"`
	FailsAtRequest     *int             `json:"fails_at_request,omitempty"`
	Failure            string           `json:"failure,omitempty"`
	PeakAllocatedBytes int64            `json:"peak_allocated_bytes"`
	PeakReservedBytes  int64            `json:"peak_reserved_bytes"`
	Retries            int64            `json:"retries"`
	Minimum            *capacity.Result `json:"minimum,omitempty"`
	oom                *allocator.OOMError
}

func simulateRun(cmd *cobra.Command, p *replay.Program, run replay.RunOptions, flags simulateFlags) error {
	var res *replay.RunResult
	var err error
	if flags.export != "" {
		res, err = exportSnapshot(p, run, flags.export)
	} else {
		res, err = p.Run(run)
	}
	if err != nil {
		return err
	}
	out := simulation{
		Schema: schemaSimulate, File: p.Name, Torch: p.Version.String(), Requests: len(p.Ops), Fits: res.FirstOOM == nil,
		PeakAllocatedBytes: res.Stats.AllocatedBytes.All.Peak, PeakReservedBytes: res.Stats.ReservedBytes.All.Peak, Retries: res.Stats.Retries,
		StartReservedBytes: p.StartBytes(),
	}
	if run.Version != (allocator.Version{}) {
		out.Torch = run.Version.String()
	}
	if total := res.Card.TotalBytes(); total < replay.Unlimited {
		out.CapacityBytes = total
	}
	if res.FirstOOM != nil {
		out.FailsAtRequest, out.Failure = &res.FirstOOMOp, res.FirstOOM.Error()
		out.oom = res.FirstOOM
	}
	if !flags.noMinimum {
		out.Minimum, err = capacity.Search(p, capacity.Options{Version: run.Version, Config: run.Config})
		if err != nil {
			return err
		}
	}
	if flags.json {
		err = printJSON(cmd, out)
	} else {
		err = out.print(cmd.OutOrStdout())
	}
	if err == nil && !out.Fits {
		err = &statusError{code: exitDoesNotFit}
	}
	return err
}

func exportSnapshot(p *replay.Program, run replay.RunOptions, path string) (*replay.RunResult, error) {
	s, res, err := p.Snapshot(run)
	if err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(snapshot.Write(f, s), f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}

func (s *simulation) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("file", "%s", printable.Text(s.File))
	row("replayed", "%s, as PyTorch %s", quantity.Count(s.Requests, "request"), s.Torch)
	if s.StartReservedBytes > 0 {
		row("start", "in mid-run, with %s of segments as recorded", quantity.Size(s.StartReservedBytes))
	}
	if s.CapacityBytes > 0 {
		row("card", "%s for the allocator", quantity.Size(s.CapacityBytes))
	} else {
		row("card", "without a limit")
	}
	if s.Fits {
		row("result", "fits")
	} else {
		row("result", "does not fit: %s", s.whyNot())
	}
	row("peak allocated", "%s", quantity.Size(uint64(s.PeakAllocatedBytes)))
	row("peak reserved", "%s", quantity.Size(uint64(s.PeakReservedBytes)))
	row("retries", "%d", s.Retries)
	if m := s.Minimum; m != nil {
		printMinimum(row, m)
	}
	return w.Flush()
}

// whyNot is the failure in the units of the other rows; JSON has the allocator's own words.
func (s *simulation) whyNot() string {
	if s.oom == nil {
		return fmt.Sprintf("request %d: %s", *s.FailsAtRequest, s.Failure)
	}
	return fmt.Sprintf("request %d asks for %s, and %s of the %s are free", *s.FailsAtRequest, quantity.Size(s.oom.RequestedBytes), quantity.Size(s.oom.DeviceFreeBytes), quantity.Size(s.oom.DeviceTotalBytes))
}

func printMinimum(row func(name, format string, args ...any), m *capacity.Result) {
	row("comfortable", "%s", quantity.Size(m.ComfortableBytes))
	proof := "no larger card fails"
	if !m.ProvenAbove {
		proof = "some larger cards were not tried"
	}
	retries := quantity.Count(m.Retries, "retry", "retries")
	row("minimum", "%s, with %s; %s", quantity.Size(m.MinimumBytes), retries, proof)
	if m.LowestBytes < m.MinimumBytes {
		row("", "from %s on some cards happen to succeed, and others below the minimum fail: how cached memory is cut differs with the card", quantity.Size(m.LowestBytes))
	}
	f := m.Limit
	if f == nil {
		return
	}
	row("below that", "request %d asks for %s: %s live, %s free between live blocks, %s cached", f.Op, quantity.Size(f.OOM.RequestedBytes),
		quantity.Size(f.LiveBytes), quantity.Size(f.FragmentedBytes), quantity.Size(f.CachedBytes))
	for i, b := range f.Largest[:min(3, len(f.Largest))] {
		name := ""
		if i == 0 {
			name = "largest live"
		}
		row(name, "%s, from request %d", quantity.Size(b.SizeBytes), b.Op)
	}
}

// parseSize reads a size of a card.
func parseSize(text string) (uint64, error) {
	n, err := quantity.ParseBytes(text)
	if err == nil && n == 0 {
		err = fmt.Errorf("size %q: must be more than 0", text)
	}
	return uint64(n), err
}
