package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/internal/regular"
	"github.com/gresize/gresize/offload"
	"github.com/spf13/cobra"
)

type planFlags struct {
	target, pcie, torchVersion, out string
	stepTime, timeLimit             time.Duration
	rank                            int
	nodes                           int64
	json, noOverhead                bool
	slowdown                        float64
}

func newPlanCommand() *cobra.Command {
	var flags planFlags
	cmd := &cobra.Command{
		Use:   "plan FILE [--target SIZE] [--pcie RATE] [--step-time TIME] [-o FILE.json]",
		Short: "Plan addresses and swaps that would hold a recorded job on a smaller card",
		Long: `Compares what a recorded job needs: the largest sum of live blocks, PyTorch's
allocator, its expandable segments, the published SmartPool, and the lowest
layout that was found, with the proven bound. With --target it also plans which
blocks go to host memory and when, so that the job fits, and what that costs in
time; --no-overhead and --slowdown look for the smallest target that costs no
more. FILE is a trace bundle, a PyTorch memory snapshot, a recorded allocator
trace, or a table of blocks (id,lower,upper,size) as MiniMalloc's problems are.

Sizes are those of the allocator; the CUDA context and libraries come on top.
A bundle of gresize estimate --utilization --bundle FILE says when blocks are read
and how long kernels take; otherwise both are assumed: see docs/plan.md. --step-time
gives the true length of one training step. The answer is the best plan that was
found within --time-limit.

EXIT STATUS
  0  done; with --target: a plan was found
  1  an error
  2  wrong usage
  3  no plan fits the target
  4  unknown: no plan was found within --time-limit`,
		Example: `  gresize plan job.gresize
  gresize plan job.gresize --target 24GiB --pcie 12GB/s --step-time 180ms -o schedule.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("plan: give one file, not %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return plan(cmd, flags, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.target, "target", "", "memory that the allocator may use, such as 24GiB")
	f.BoolVar(&flags.noOverhead, "no-overhead", false, "instead of --target: the smallest one that makes the job no slower")
	f.Float64Var(&flags.slowdown, "slowdown", 0, "instead of --target: the smallest one that makes the job at most so many times slower, such as 1.05")
	f.StringVar(&flags.pcie, "pcie", "", "rate of a transfer in each direction, such as 12GB/s (default: 13.2GB/s out, 12.2GB/s in)")
	f.DurationVar(&flags.stepTime, "step-time", 0, "measured length of one training step, such as 180ms")
	f.StringVarP(&flags.out, "output", "o", "", "write addresses and schedule as JSON to `FILE`")
	f.StringVar(&flags.torchVersion, "torch-version", "", "PyTorch release, where the file does not name it")
	f.IntVar(&flags.rank, "rank", 0, "rank of a bundle, or device of a snapshot")
	f.Int64Var(&flags.nodes, "effort", layout.DefaultMaxNodes, "nodes that the search for a lower layout may visit")
	f.DurationVar(&flags.timeLimit, "time-limit", defaultPlanTime, "take the best plan found by then")
	f.BoolVar(&flags.json, "json", false, "print the comparison as JSON")
	return cmd
}

// defaultPlanTime is the default of --time-limit: a plan that was searched for longer was seldom better.
const defaultPlanTime = time.Minute

// planned is what plan prints and writes. docs/plan.md describes it.
type planned struct {
	Schema         string              `json:"schema"`
	File           string              `json:"file"`
	Torch          string              `json:"torch_version,omitempty"`
	Requests       int                 `json:"requests"`
	Blocks         int                 `json:"blocks"`
	Iteration      *planning.Iteration `json:"iteration,omitempty"`
	LiveBoundBytes uint64              `json:"live_bound_bytes"`
	BoundBytes     uint64              `json:"bound_bytes"`
	DefaultBytes   *int64              `json:"default_allocator_bytes,omitempty"`
	Expandable     *int64              `json:"expandable_segments_bytes,omitempty"`
	Regions        []int64             `json:"regions,omitempty"`
	RegionsBytes   int64               `json:"with_regions_bytes,omitempty"`
	CnMemBytes     uint64              `json:"cnmem_bytes,omitempty"`
	SmartPoolBytes uint64              `json:"smartpool_bytes,omitempty"`
	PlanBytes      uint64              `json:"plan_bytes"`
	Optimal        bool                `json:"optimal"`
	Method         string              `json:"method"`
	Layout         []plannedBlock      `json:"layout,omitempty"`
	Outcomes       []swap.Outcome      `json:"policies,omitempty"`
	Swap           *swap.Plan          `json:"swap,omitempty"`
	NoPlan         string              `json:"no_plan,omitempty"`
	// Uses says where the accesses of blocks and the times of steps come from.
	Uses  string `json:"uses,omitempty"`
	timed bool
	// Cut: --time-limit ended the search; more time might find better.
	Cut bool `json:"cut,omitempty"`
	// SmallestTargetBytes is the smallest target for which a plan was found, where there is none for the one that was asked for; 0: none was found.
	SmallestTargetBytes uint64 `json:"smallest_target_bytes,omitempty"`
}

type plannedBlock struct {
	FromStep  int64  `json:"from_step"`
	ToStep    int64  `json:"to_step"`
	SizeBytes uint64 `json:"size_bytes"`
	Address   uint64 `json:"address"`
}

// planSchema names the form of the schedule. It changes when a key changes its meaning.
const planSchema = "gresize.plan/1"

func plan(cmd *cobra.Command, flags planFlags, path string) error {
	clock := planning.DefaultClock
	var target uint64
	var err error
	if flags.target != "" {
		if target, err = parseSize(flags.target); err != nil {
			return usageError(fmt.Errorf("--target: %w", err))
		}
	}
	link, err := linkOf(flags.pcie)
	if err != nil {
		return err
	}
	if flags.rank < 0 || flags.nodes < 1 || flags.stepTime < 0 || flags.stepTime > 24*time.Hour || flags.timeLimit <= 0 {
		return usageError(errors.New("plan: --rank must not be negative, --effort at least 1, --step-time at most 24h, --time-limit positive"))
	}
	swaps := target > 0
	slowdown, err := slowdownOf("plan", flags.noOverhead, flags.slowdown)
	if err != nil {
		return err
	}
	if slowdown > 0 && swaps {
		return usageError(errors.New("plan: give one of --target, --no-overhead and --slowdown"))
	}
	flags.slowdown, swaps = slowdown, swaps || slowdown > 0
	clock.StepNanos = flags.stepTime.Nanoseconds()
	p, lives, bundle, err := flags.open(path)
	if err != nil {
		return err
	}
	if p == nil && swaps {
		return usageError(fmt.Errorf("plan: %s is a table of blocks: it does not say when they are used, so that nothing can be swapped", path))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), flags.timeLimit)
	defer cancel()
	progress := newProgressLine(cmd.ErrOrStderr(), false)
	nodes, what := flags.nodes, "looking for the lowest layout"
	if swaps {
		nodes, what = -1, "laying out" // the time is for what was asked for
	}
	stop := progress.working(what)
	out, err := compare(ctx, p, lives, nodes)
	stop()
	switch {
	case cmd.Context().Err() != nil:
		return errPlanInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("plan: no layout of %s was found within %v; give more (--time-limit)", quantity.Count(len(lives.Blocks), "block"), flags.timeLimit)
	case err != nil:
		return err
	}
	out.File = path
	code := exitOK
	if swaps {
		job, err := lives.Job(clock, out.Iteration, out.see(bundle, p, lives, &flags))
		if err != nil {
			return usageError(err)
		}
		if target == 0 {
			stop := progress.working("looking for the smallest target")
			least, ok, err := swap.Least(ctx, job, flags.slowdown, link)
			stop()
			switch {
			case err != nil:
				return err
			case !ok && ctx.Err() != nil:
				out.NoPlan, code = fmt.Sprintf("none was found within %v (--time-limit); there may be one", flags.timeLimit), exitUnknown
			case !ok:
				out.NoPlan, code = "no addresses were found, even for all that lives at once", exitDoesNotFit
			}
			target = least
		}
		stop := progress.working("looking for what to swap")
		if code == exitOK {
			out.Swap, out.Outcomes, err = swap.Make(ctx, job, target, link, flags.nodes)
		}
		stop()
		switch {
		case code != exitOK:
		case errors.Is(err, context.DeadlineExceeded):
			code, out.NoPlan = exitUnknown, fmt.Sprintf("no plan found within %v (--time-limit); there may be one", flags.timeLimit)
		case err != nil:
			code, out.NoPlan = exitDoesNotFit, noPlan(err)
			stop := progress.working("no plan fits; looking for the smallest target that has one")
			out.SmallestTargetBytes, _ = swap.Smallest(ctx, job, target, link, flags.nodes)
			stop()
		}
		out.Cut = out.Cut || ctx.Err() != nil
	}
	if cmd.Context().Err() != nil {
		return errPlanInterrupted
	}
	if flags.out != "" {
		if err := writeSchedule(out, flags.out); err != nil {
			return err
		}
	}
	if flags.json {
		short := *out
		short.Layout = nil
		err = printJSON(cmd, short)
	} else {
		err = out.print(cmd.OutOrStdout(), target, &flags)
	}
	if err == nil && code != exitOK {
		err = &statusError{code: code}
	}
	return err
}

// see is what the operators of a bundle read and wrote, where it says so; nil where that is guessed.
func (out *planned) see(b *trace.Bundle, p *replay.Program, lives *planning.Lifetimes, flags *planFlags) *planning.Seen {
	const guessed = "guessed: near a block's request and near its end (gresize estimate --utilization --bundle FILE records them)"
	out.Uses = guessed
	if b == nil || flags.rank >= len(b.Ranks) {
		return nil // another kind of file
	}
	data := b.Ranks[flags.rank].Parts[trace.PartOperators]
	if len(data) == 0 {
		return nil
	}
	stream, err := utilization.Read(data)
	if err != nil || len(stream.Uses) == 0 {
		return nil
	}
	var seconds []float64
	timed := ", each request takes as long as is assumed"
	if card, err := gpu.Load(b.Manifest.GPU.ID); err == nil {
		if seconds = utilization.UseSeconds(stream, card); seconds != nil {
			timed = fmt.Sprintf(", times by the roofline of %s", card.ID)
		}
	}
	uses := make([]planning.Use, len(stream.Uses))
	for i, u := range stream.Uses {
		uses[i] = planning.Use{From: u.From, To: u.To, Addresses: u.Addresses}
		if seconds != nil {
			uses[i].Seconds = seconds[i]
		}
	}
	seen, err := lives.See(p, uses)
	if err != nil {
		out.Uses = guessed + ": those of the bundle are of no use, " + err.Error()
		return nil
	}
	out.timed = seen.Timed()
	out.Uses = fmt.Sprintf("as %s of a step read and wrote, found in %s%s", quantity.Count(seen.Operators, "operator"), quantity.Count(seen.Steps, "step"), timed)
	return seen
}

// slowdownOf is what --no-overhead and --slowdown ask for, 0 where neither is given.
func slowdownOf(command string, noOverhead bool, slowdown float64) (float64, error) {
	switch {
	case noOverhead && slowdown != 0:
		return 0, usageError(fmt.Errorf("%s: give one of --no-overhead and --slowdown", command))
	case noOverhead:
		return 1, nil
	case slowdown != 0 && !(slowdown >= 1 && slowdown <= 1000):
		return 0, usageError(fmt.Errorf("%s: --slowdown is a factor from 1 on, such as 1.05", command))
	}
	return slowdown, nil
}

var errPlanInterrupted = errors.New("plan: interrupted; nothing was written")

// open reads the file. A table of blocks holds no program, and what is no bundle no operators.
func (flags *planFlags) open(path string) (*replay.Program, *planning.Lifetimes, *trace.Bundle, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	head := make([]byte, len(layout.CSVMagic))
	if _, err := io.ReadFull(f, head); err == nil && string(head) == layout.CSVMagic {
		blocks, err := layout.ReadCSV(io.MultiReader(bytes.NewReader(head), f))
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		return nil, &planning.Lifetimes{Blocks: blocks}, nil, nil
	}
	o := replay.OpenOptions{Device: flags.rank}
	if flags.torchVersion != "" {
		if o.Version, err = torchVersion(flags.torchVersion); err != nil {
			return nil, nil, nil, err
		}
	}
	var p *replay.Program
	bundle, err := trace.ReadFile(path)
	switch {
	case errors.Is(err, trace.ErrNotBundle):
		p, err = replay.Open(path, o)
	case err == nil:
		p, err = replay.FromBundle(bundle, o, path)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	lives, err := planning.OfProgram(p)
	return p, lives, bundle, err
}

// noPlan says in sizes for people why there is none.
func noPlan(err error) string {
	var need *swap.NeedError
	if errors.As(err, &need) {
		return fmt.Sprintf("request %d needs %s on the card at once: what it uses and what cannot be moved is more than the target", need.Step, quantity.Size(need.NeedBytes))
	}
	return err.Error()
}

// compare works out what each way of laying blocks out needs. With a negative number of nodes nothing is searched for.
func compare(ctx context.Context, p *replay.Program, lives *planning.Lifetimes, nodes int64) (*planned, error) {
	best, err := layout.Plan(ctx, lives.Blocks, layout.Options{MaxNodes: nodes})
	if err != nil {
		return nil, err
	}
	if err := best.Verify(lives.Blocks); err != nil {
		return nil, fmt.Errorf("the planned layout is wrong, which is a fault of gresize: %w", err)
	}
	out := &planned{
		Schema: planSchema, Requests: lives.Requests, Blocks: len(lives.Blocks), Iteration: lives.FindIteration(),
		LiveBoundBytes: best.LiveBoundBytes, BoundBytes: best.BoundBytes, SmartPoolBytes: best.SmartPoolBytes,
		PlanBytes: best.HeightBytes, Optimal: best.Optimal(), Method: best.Method, Cut: best.Cut,
	}
	if pool := layout.CnMem(ctx, lives.Blocks); pool != nil {
		out.CnMemBytes = pool.HeightBytes
	}
	for i, b := range lives.Blocks {
		out.Layout = append(out.Layout, plannedBlock{b.Start, b.End, b.SizeBytes, best.Offsets[i]})
	}
	if p == nil {
		return out, nil
	}
	out.Torch = p.Version.String()
	for _, expandable := range []bool{false, true} {
		config := p.Config
		config.ExpandableSegments = expandable
		// A release without expandable segments cannot answer: then the line is left out.
		res, err := p.Run(replay.RunOptions{Config: &config, CapacityBytes: replay.Unlimited})
		if err != nil {
			continue
		}
		peak := res.Stats.ReservedBytes.All.Peak
		if expandable {
			out.Expandable = &peak
		} else {
			out.DefaultBytes = &peak
		}
	}
	if len(p.Start) == 0 && ctx.Err() == nil {
		if regions, peak, err := offload.LeastWithRegions(p, allocator.Config{}); err == nil && len(regions) > 0 {
			out.Regions, out.RegionsBytes = regions, peak
		}
	}
	return out, nil
}

func writeSchedule(out *planned, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(f)
	if err := errors.Join(encoder.Encode(out), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (out *planned) print(to io.Writer, target uint64, flags *planFlags) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	size := func(name string, bytes uint64, note string) {
		over := float64(bytes)/float64(max(out.LiveBoundBytes, 1))*100 - 100
		fmt.Fprintf(w, "%s\t%s\t%+.1f %%\t%s\n", name, quantity.Size(bytes), over, note)
	}
	row("file", "%s", printable.Text(out.File))
	if out.Torch == "" {
		row("read", "%s", quantity.Count(out.Blocks, "block"))
	} else {
		row("read", "%s, %s, as PyTorch %s", quantity.Count(out.Requests, "request"), quantity.Count(out.Blocks, "block"), out.Torch)
	}
	if it := out.Iteration; it != nil {
		row("repeats", "%s, from request %d, %.1f times", quantity.Count(it.Requests, "request"), it.First, it.Times)
	} else if out.Torch != "" {
		row("repeats", "nothing that was found")
	}
	size("live bound", out.LiveBoundBytes, "largest sum of live blocks; nothing is lower")
	if out.DefaultBytes != nil {
		size("PyTorch", uint64(*out.DefaultBytes), "its allocator on a card without a limit")
	}
	if out.Expandable != nil {
		size("expandable", uint64(*out.Expandable), "with expandable segments")
	}
	if n := len(out.Regions); n > 0 {
		size("regions", uint64(out.RegionsBytes), fmt.Sprintf("its allocator over %s, as gresize run does", quantity.Count(n, "region")))
	}
	if out.CnMemBytes > 0 {
		size("CnMem", out.CnMemBytes, fmt.Sprintf("NVIDIA's pool, which SmartPool was compared with; the plan is %.1f %% less", less(out.PlanBytes, out.CnMemBytes)))
	}
	if out.SmartPoolBytes > 0 {
		note := "as published"
		if out.CnMemBytes > 0 {
			note += fmt.Sprintf("; %.1f %% less than CnMem", less(out.SmartPoolBytes, out.CnMemBytes))
		}
		size("SmartPool", out.SmartPoolBytes, note)
	}
	note := "optimal: no layout is lower"
	if !out.Optimal {
		note = fmt.Sprintf("by %s; proven: nothing below %s", out.Method, quantity.Size(out.BoundBytes))
	}
	if !out.Optimal && (target > 0 || flags.slowdown > 0) {
		note += "; without --target a lower one is searched for"
	}
	size("plan", out.PlanBytes, note)
	if out.Uses != "" {
		row("uses", "%s", printable.Text(out.Uses))
	}
	if target > 0 || flags.slowdown > 0 {
		out.printSwap(row, target, flags)
	}
	if out.Cut {
		row("cut short", "the time ended the search: more of it (--time-limit) might find better")
	}
	return w.Flush()
}

// less is how much less one size is than another, in percent.
func less(size, than uint64) float64 { return 100 - 100*float64(size)/float64(max(than, 1)) }

func (out *planned) printSwap(row func(name, format string, args ...any), target uint64, flags *planFlags) {
	switch {
	case target > 0 && flags.slowdown > 0:
		note := fmt.Sprintf("%.1f %% less than the live bound", less(target, out.LiveBoundBytes))
		if out.DefaultBytes != nil {
			note += fmt.Sprintf(", %.1f %% less than PyTorch takes", less(target, uint64(*out.DefaultBytes)))
		}
		row("target", "%s, the smallest that was found within %g times the time; %s", quantity.Size(target), flags.slowdown, note)
	case target > 0:
		row("target", "%s", quantity.Size(target))
	}
	if s := out.Swap; s == nil {
		row("swap", "no plan: %s", out.NoPlan)
		if out.SmallestTargetBytes > 0 {
			row("smallest", "%s is about the smallest target that there is a plan for", quantity.Size(out.SmallestTargetBytes))
		}
		return // every score met the same end
	} else if len(s.Moves) == 0 {
		row("swap", "nothing: it fits as it is, in %s", quantity.Size(s.PoolBytes))
	} else {
		row("swap", "%s of %s, %s to and from the host, at most %s there at once", quantity.Count(len(s.Moves), "trip"), quantity.Count(distinct(s.Moves), "block"), quantity.Size(s.MovedBytes()), quantity.Size(s.HostBytes))
		row("on the card", "%s at most, in a pool of %s", quantity.Size(s.PeakBytes), quantity.Size(s.PoolBytes))
		clock := "with an assumed clock (give --step-time)"
		if out.timed {
			clock = "with times by roofline"
		}
		if flags.stepTime > 0 {
			clock = "with the given step time"
		}
		row("time", "%v instead of %v, %+.1f %%, %s", lasting(s.TotalNanos), lasting(s.BaseNanos), 100*float64(s.StallNanos())/float64(max(s.BaseNanos, 1)), clock)
		row("chosen by", "%s", s.Policy)
		for i, m := range s.Moves[:min(5, len(s.Moves))] {
			name := ""
			if i == 0 {
				name = "first trips"
			}
			row(name, "block %d, %s: out after request %d at %v, back for request %d at %v, the job waits %v", m.Block, quantity.Size(m.SizeBytes), m.AfterStep-1,
				lasting(m.OutStart), m.ForStep-1, lasting(m.InStart), lasting(m.StallNanos))
		}
	}
	for i, o := range out.Outcomes {
		name := ""
		if i == 0 {
			name = "scores"
		}
		if o.Err != "" {
			row(name, "%s: %s", o.Policy, o.Err)
		} else {
			row(name, "%s: waits %v, moves %s", o.Policy, lasting(o.StallNanos), quantity.Size(o.MovedBytes))
		}
	}
}

func lasting(nanos int64) time.Duration { return time.Duration(nanos).Round(10 * time.Microsecond) }

func distinct(moves []swap.Move) int {
	seen := map[int32]bool{}
	for _, m := range moves {
		seen[m.Block] = true
	}
	return len(seen)
}

// linkOf is the transfer model for a --pcie: the published one, at the rate that was given.
func linkOf(pcie string) (swap.Link, error) {
	link := swap.PublishedLink
	if pcie == "" {
		return link, nil
	}
	rate, err := parseRate(pcie)
	if err != nil {
		return link, usageError(fmt.Errorf("--pcie: %w", err))
	}
	link.OutBytesPerSecond, link.InBytesPerSecond = rate, rate
	return link, nil
}

// parseRate reads a rate such as 12GB/s, in powers of ten as links are sold, or 11GiB/s.
func parseRate(text string) (bytesPerSecond float64, err error) {
	number, ok := strings.CutSuffix(text, "/s")
	for _, unit := range []struct {
		name  string
		bytes float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"GB", 1e9}, {"MB", 1e6}} {
		digits, found := strings.CutSuffix(number, unit.name)
		if !ok || !found {
			continue
		}
		if n, err := strconv.ParseFloat(digits, 64); err == nil && n > 0 && n*unit.bytes >= 1e3 && n*unit.bytes < 1e14 {
			return n * unit.bytes, nil
		}
	}
	return 0, fmt.Errorf("rate %q: write a number with MB/s, GB/s, MiB/s or GiB/s, such as 12GB/s", text)
}
