package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/gpu/capture"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/offload"
	"github.com/spf13/cobra"
)

type runFlags struct {
	estimateFlags
	target, plan, out, pcie string
	onlyPlan, expandable    bool
	noOverhead              bool
	slowdown                float64
}

func newRunCommand() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run --target SIZE [--only-plan] [-o FILE] -- COMMAND [ARGUMENT...]\n  gresize run --plan FILE -- COMMAND [ARGUMENT...]",
		Short: "Run a command on a card that is too small for it",
		Long: `Runs an unmodified PyTorch command within SIZE of a card's memory, or in as little
as a slowdown allows (--no-overhead, --slowdown): what autograd keeps for the
backward pass goes to host memory and comes back in time. First the command is run
for some steps on a virtual GPU, a plan is made from what was seen, and it is run
there again with the plan, on a card of SIZE. Only where that works is the command
itself started, with the plan. --only-plan stops before that; -o keeps the plan, and
--plan runs with one that was kept, without measuring again.

A kept plan of another program, batch size, PyTorch or card is refused before the first
step. A later iteration that is not one of the plan's stays on the card as if there
were no plan. Values never change: docs/run.md says what is moved
and what is not.

EXIT STATUS
  that of the command, once it was started; before that:
  1  an error
  2  wrong usage
  3  no plan fits the target
  4  unknown: the command could not be followed
  5  the command failed on the virtual GPU`,
		Example: `  gresize run --target 12GiB -- python train.py
  gresize run --target 12GiB --gpu rtx3060 --only-plan -o job.plan -- python train.py
  gresize run --plan job.plan -- python train.py`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return runWithPlan(cmd, flags, args) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.target, "target", "", "memory of the card that the command may take, such as 12GiB, or such as 60% of what it needs as it is")
	f.BoolVar(&flags.noOverhead, "no-overhead", false, "instead of --target: the smallest one that makes a step no slower")
	f.Float64Var(&flags.slowdown, "slowdown", 0, "instead of --target: the smallest one that makes a step at most so many times slower, such as 1.05")
	f.StringVar(&flags.plan, "plan", "", "carry out the plan in `FILE`")
	f.StringVarP(&flags.out, "output", "o", "", "write the plan to `FILE`")
	f.BoolVar(&flags.onlyPlan, "only-plan", false, "make the plan and try it, and do not start the command")
	f.BoolVar(&flags.expandable, "expandable", false, "let PyTorch's allocator use expandable segments, and move nothing where they suffice")
	f.StringVar(&flags.pcie, "pcie", "", "rate of a transfer in each direction, such as 12GB/s (default: 13.2GB/s out, 12.2GB/s in)")
	f.StringVar(&flags.gpu, "gpu", gpu.DefaultID, "GPU `model` that the command will run on, see gresize gpu list")
	f.DurationVar(&flags.budget, "budget", probe.DefaultBudget, "time that each run on the virtual GPU may take")
	f.IntVar(&flags.steps, "steps", probe.DefaultSteps, "optimizer steps to see at least")
	f.BoolVar(&flags.noSandbox, "no-sandbox", false, "run the command on the virtual GPU as it is: it may change files, send mail, submit jobs")
	f.BoolVar(&flags.progress, "progress", false, "show progress also where standard error is no terminal")
	f.SetInterspersed(false)
	return cmd
}

func runWithPlan(cmd *cobra.Command, flags runFlags, args []string) error {
	if len(args) == 0 {
		return usageError(errors.New("run: no command given; write it after --"))
	}
	slowdown, err := slowdownOf("run", flags.noOverhead, flags.slowdown)
	if err != nil {
		return err
	}
	flags.slowdown = slowdown
	given := 0
	for _, set := range []bool{flags.target != "", flags.plan != "", slowdown > 0} {
		if set {
			given++
		}
	}
	if given != 1 {
		return usageError(errors.New("run: give one of --target, --no-overhead, --slowdown, and --plan for a plan that was kept"))
	}
	if flags.plan != "" {
		if flags.onlyPlan || flags.out != "" {
			return usageError(errors.New("run: --plan carries out a plan that is there; --only-plan and -o make one"))
		}
		plan, err := offload.ReadFile(flags.plan)
		if err != nil {
			return err
		}
		return start(plan, flags.plan, args, "GRESIZE_OFFLOAD_STRICT=1") // what was made for something else is refused
	}
	plan, path, err := flags.makePlan(cmd, args)
	if err != nil || flags.onlyPlan {
		return err
	}
	return start(plan, path, args)
}

// makePlan finds a plan for the target, prints what it does, and keeps it. Without one, the command fits as it is.
func (flags *runFlags) makePlan(cmd *cobra.Command, args []string) (plan *offload.Plan, path string, err error) {
	request := offload.Request{Slowdown: flags.slowdown}
	if percent, ok := strings.CutSuffix(flags.target, "%"); ok {
		if request.Share, err = strconv.ParseFloat(percent, 64); err != nil || !(request.Share > 0 && request.Share <= 100) {
			return nil, "", usageError(fmt.Errorf("--target: %q: a share is more than 0%% and at most 100%%", flags.target))
		}
		request.Share /= 100
	} else if flags.target != "" {
		target, err := parseSize(flags.target)
		if err != nil {
			return nil, "", usageError(fmt.Errorf("--target: %w", err))
		}
		request.TargetBytes = int64(target)
	}
	link, err := linkOf(flags.pcie)
	if err != nil {
		return nil, "", err
	}
	if flags.steps < 1 || flags.budget <= 0 {
		return nil, "", usageError(errors.New("run: --steps and --budget must be positive"))
	}
	profile, err := gpu.Load(flags.gpu)
	if err != nil {
		return nil, "", usageError(err)
	}
	if flags.out != "" {
		if err := canWrite(flags.out); err != nil {
			return nil, "", usageError(fmt.Errorf("run: -o: %w", err))
		}
	}
	if !flags.onlyPlan {
		if err := cardHere(os.Environ()); err != nil {
			return nil, "", err
		}
	}
	progress := newProgressLine(cmd.ErrOrStderr(), flags.progress)
	stop := func() {}
	tell := func(what string) {
		stop()
		stop = progress.working(what)
	}
	request.Link, request.Expandable, request.Tell = link, flags.expandable, tell
	request.Run = probe.Options{Command: args, GPU: profile, Devices: 1, Steps: flags.steps, Budget: flags.budget, NoSandbox: flags.noSandbox}
	fitted, err := offload.Fit(cmd.Context(), request)
	stop()
	if err != nil {
		return nil, "", flags.refused(cmd.OutOrStdout(), fitted, err)
	}
	printFitted(cmd.OutOrStdout(), fitted)
	if fitted.Plan == nil {
		return nil, "", nil
	}
	path, err = flags.keep(fitted.Plan)
	return fitted.Plan, path, err
}

// refused says why there is no plan, with the exit status.
func (flags *runFlags) refused(w io.Writer, fitted *offload.Fitted, err error) error {
	var need *offload.NeedError
	var failed *offload.FailedError
	code := exitUnknown
	switch {
	case errors.As(err, &need):
		code = exitDoesNotFit
		largest, _ := fitted.Before.Largest()
		where := "at one moment of an iteration"
		if need.Outside {
			where = "where nothing can be moved"
		}
		stays, smallest := "", need.NeedBytes+largest.OutsideBytes
		if fitted.SmallestBytes > 0 {
			smallest = fitted.SmallestBytes
		}
		if fitted.Stays != "" {
			stays = "  stays on the card: " + printable.Text(fitted.Stays) + "\n"
		}
		asItIs, target := "", "--target "+roundUp(smallest)+", or "
		if before := largest.ComfortableBytes; before > 0 {
			asItIs = fmt.Sprintf("  as it is, the program needs %s; the target is %s\n", quantity.Size(uint64(before)), quantity.Size(uint64(fitted.TargetBytes)))
			if smallest >= before {
				target = ""
			}
		}
		if need.Segments {
			more := "--expandable, "
			if flags.expandable {
				more = ""
			}
			fmt.Fprintf(w, "no plan for %s\n%s%s  with every plan for it, the segments of PyTorch's allocator take %s or more, and %s lie outside of it\n  to try: %s%sa smaller batch\n",
				flags.target, asItIs, stays, quantity.Size(uint64(need.NeedBytes)), quantity.Size(uint64(largest.OutsideBytes)), more, target)
			break
		}
		fmt.Fprintf(w, "no plan for %s\n%s%s  %s have to be on the card at once %s, and %s lie outside of PyTorch's allocator\n  to try: %sa smaller batch\n",
			flags.target, asItIs, stays, quantity.Size(uint64(need.NeedBytes)), where, quantity.Size(uint64(largest.OutsideBytes)), target)
	default:
		if errors.As(err, &failed) && failed.Result.Estimate.Confidence != estimator.Unknown {
			code = exitFailed
		}
		fmt.Fprintf(w, "no plan: %s\n", printable.Text(err.Error()))
	}
	return &statusError{code: code}
}

// roundUp is a size that is a little more: in steps of a half GiB, or of 32 MiB where it is small.
func roundUp(bytes int64) string {
	const half, fine = int64(1) << 29, int64(1) << 25
	bytes += bytes / 20
	if bytes < 4*half {
		return fmt.Sprintf("%dMiB", (bytes+fine-1)/fine*32)
	}
	return fmt.Sprintf("%gGiB", float64((bytes+half-1)/half)/2)
}

func printFitted(w io.Writer, f *offload.Fitted) {
	target := f.TargetBytes
	before, _ := f.Before.Largest()
	if f.Plan == nil {
		fmt.Fprintf(w, "fits %s as it is: %s at most\n", quantity.Size(uint64(target)), quantity.Size(uint64(before.ComfortableHighBytes)))
		return
	}
	after, _ := f.After.Largest()
	moves := f.Plan.Moves()
	with := "a plan"
	switch {
	case f.Plan.ExpandableSegments && moves == 0:
		with = "expandable segments"
	case f.Plan.ExpandableSegments:
		with = "expandable segments and a plan"
	case moves == 0 && len(f.Plan.Regions) > 0:
		with = "memory in regions"
	case moves == 0:
		with = "nothing moved"
	}
	fmt.Fprintf(w, "fits %s with %s: ran there, on the virtual GPU\n", quantity.Size(uint64(target)), with)
	fmt.Fprintf(w, "  without it   %s, %s in live blocks at the peak\n", quantity.Size(uint64(before.ComfortableBytes)), quantity.Size(uint64(before.PeakAllocatedBytes)))
	more := ""
	if after.ComfortableHighBytes > target {
		more = fmt.Sprintf(" (%s where kernels take the largest workspaces that they may)", quantity.Size(uint64(after.ComfortableHighBytes)))
	}
	live := fmt.Sprintf("%s in live blocks at the peak", quantity.Size(uint64(after.PeakAllocatedBytes)))
	if n := len(f.Plan.Regions); n > 0 { // each of which was a block at first
		live = fmt.Sprintf("%s of it in %s that blocks are cut from", quantity.Size(uint64(f.Plan.RegionBytes())), quantity.Count(n, "region"))
	}
	fmt.Fprintf(w, "  with it      %s%s, %s\n", quantity.Size(uint64(after.ComfortableBytes)), more, live)
	for _, r := range f.After.Reasons {
		if r.Code != estimator.CodeRunCutShort { // each of these runs is
			fmt.Fprintf(w, "  doubt        %s\n", printable.Text(r.Words()))
		}
	}
	if moves == 0 {
		fmt.Fprintf(w, "  moved        nothing\n")
		return
	}
	fmt.Fprintf(w, "  moved        %s of %s, %s to and from the host in an iteration, %s of pinned host memory\n", quantity.Count(moves, "storage"), quantity.Count(len(f.Plan.Iterations), "sequence"),
		quantity.Size(uint64(f.Plan.MovedBytes)), quantity.Size(uint64(f.Plan.HostBytes)))
	if f.Stays != "" {
		fmt.Fprintf(w, "  stays        %s\n", printable.Text(f.Stays))
	}
	if s := f.Plan.Slowdown; s != nil {
		fmt.Fprintf(w, "  time         %.0f %% slower (%.0f to %.0f %%) than a step of %s by roofline; no kernel was timed\n", 100*s.Value, 100*s.Low, 100*s.High, duration(f.StepSeconds.Value))
	}
	fmt.Fprintf(w, "  planned in   %s, beside two runs on the virtual GPU\n", duration(f.Planning.Seconds()))
}

// keep writes the plan where it was asked for, or to a file that the command's processes read.
func (flags *runFlags) keep(p *offload.Plan) (path string, err error) {
	data, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	if flags.out != "" {
		return flags.out, os.WriteFile(flags.out, data, 0o644)
	}
	if flags.onlyPlan {
		return "", nil
	}
	f, err := os.CreateTemp("", "gresize-*.plan")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
}

// start becomes the command, with the layer that carries a plan out and more variables; without a plan, as it is.
func start(plan *offload.Plan, path string, args []string, more ...string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	env := os.Environ()
	if plan != nil {
		var host *offload.HostError
		if err := plan.CheckHost(); errors.As(err, &host) {
			return fmt.Errorf("run: the plan takes %s of pinned host memory, and this job may have %s: give it more (sbatch --mem), or plan for a larger --target",
				quantity.Size(uint64(host.NeedBytes)), quantity.Size(uint64(host.HaveBytes)))
		}
		if err := cardHere(env); err != nil {
			return err
		}
		if env, err = withPlan(plan, path, env); err != nil {
			return err
		}
		env = append(env, more...)
	}
	return fmt.Errorf("run: %s: %w", program, syscall.Exec(program, args, env))
}

// cardHere is an error where the command would find no GPU.
func cardHere(env []string) error {
	if why := capture.Hidden(env); why != "" {
		return fmt.Errorf("run: %s, and the command is started here: make the plan with --only-plan -o FILE, and start it on the node that has the card, such as with srun --gres=gpu:1 gresize run --plan FILE -- COMMAND", why)
	}
	return nil
}

// withPlan is an environment with the layer that carries a plan out.
func withPlan(plan *offload.Plan, path string, env []string) ([]string, error) {
	env = plan.Environment(env)
	if plan.Moves() == 0 && len(plan.Regions) == 0 {
		return env, nil
	}
	dir, err := vgpu.Locate()
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	layers := vgpu.PythonPath(dir, env)
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "GRESIZE_OFFLOAD_PLAN=") || strings.HasPrefix(kv, "PYTHONPATH=")
	})
	return append(env, "GRESIZE_OFFLOAD_PLAN="+path, layers), nil
}
