package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/buildinfo"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/batch"
	"github.com/spf13/cobra"
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
	estimator string
	faithful  bool
	json      bool
	bundle    string
	noSandbox bool
	quick     bool
	progress  bool
	output    bool
	whatIfs   []string
	// input is what the command gets on its standard input, in each of its runs.
	input []byte
	// job is the command as a job of Slurm, where it is one, environment that of its script, and notes what to say of it.
	job         *batch.Submission
	environment []string
	notes       []string

	utilization bool
}

func newEstimateCommand() *cobra.Command {
	var flags estimateFlags
	cmd := &cobra.Command{
		Use:   "estimate [flags] -- COMMAND [ARGUMENT...]",
		Short: "Say how much GPU memory a command needs, without a GPU",
		Long: `Runs the command for some training steps on a virtual GPU and says how much
memory a real one would need. The command is run as it is, in a sandbox: it can
read everything that you can, and changes nothing.

A job script, with #SBATCH lines or where the command begins with sbatch, is run as
Slurm would start it: with the GPUs and tasks that it asks for, in its folder, with
the variables SLURM_* of its job, and as the first task of an array.

The first word is the answer:
  fits            it fits, and how much is left
  does not fit    PyTorch ran out of the card's memory
  unknown         no answer that could be relied on; the reasons are named
  command failed  the command ended with an error of its own; its last words follow

"Needed" is what PyTorch reserves at its peak and what lies outside of it (context,
libraries); "at most" is the upper end of the interval. The confidence says how far
both may be trusted: exact, high, low, unknown; each step down names its reasons.
The first steps are run as they are, and give a first answer. Then the command
continues in time-lapse, with a few batches of each data loader, to its end or until nothing
new is seen; --quick leaves that out.

--what-if runs the command again on another GPU, with another batch size, or with
other settings of PyTorch's allocator (PYTORCH_CUDA_ALLOC_CONF), one row of a table
each; the exit status is then that of the first row that does not fit. batch=N goes
where the command has {}, or replaces the value of --batch-size, --batch_size, -b,
--train_batch_size, --per_device_train_batch_size and their like, or the variable
BATCH_SIZE.

docs/estimate.md describes the answer, docs/estimate.schema.json its JSON form.

EXIT STATUS
  0  it fits on the GPU
  1  an error
  2  wrong usage
  3  it does not fit
  4  unknown; the reasons are named
  5  the command failed`,
		Example: `  gresize estimate -- python train.py --batch-size 64
  gresize estimate job.sh
  gresize estimate --gpu rtx4060 --json -- python train.py
  gresize estimate --what-if gpu=l40s,batch=64 --what-if conf=expandable_segments:True -- python train.py --batch-size 32`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return estimate(cmd, flags, args) },
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&flags.bundle, "bundle", "", "keep the trace bundle in `FILE`")
	f.BoolVar(&flags.utilization, "utilization", false, "also say how busy the GPU would be, as advice")
	f.StringArrayVar(&flags.whatIfs, "what-if", nil, "also with `gpu=NAME,batch=N,conf=SETTINGS`, any of them; may be repeated")
	f.SetInterspersed(false)
	return cmd
}

// add defines the flags that say how a command is run and what is printed.
func (flags *estimateFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&flags.gpu, "gpu", gpu.DefaultID, "GPU `model`, see gresize gpu list")
	f.IntVar(&flags.gpus, "gpus", 1, "number of GPUs that the command sees")
	f.IntVar(&flags.steps, "steps", probe.DefaultSteps, "optimizer steps to see at least")
	f.StringVar(&flags.estimator, "estimator", bundled.Default, "the `estimator` that answers, see gresize estimator list")
	f.BoolVar(&flags.faithful, "faithful", false, "with --estimator xmem, horus or another that was published: as its program computes, faults included")
	f.DurationVar(&flags.budget, "budget", probe.DefaultBudget, "time that the command may take")
	f.BoolVar(&flags.quick, "quick", false, "stop at the first answer: do not follow the command in time-lapse to its end")
	f.BoolVar(&flags.json, "json", false, "print the answer as JSON")
	f.BoolVar(&flags.noSandbox, "no-sandbox", false, "run the command as it is: it may change files, send mail, submit jobs")
	f.BoolVar(&flags.progress, "progress", false, "show progress also where standard error is no terminal")
	f.BoolVar(&flags.output, "show-output", false, "pass the command's output on to standard error while it runs")
}

// check refuses flags that make no sense, and reads what the command is: its arguments, or those of a job's script, and its standard input.
func (flags *estimateFlags) check(cmd *cobra.Command, command []string) ([]string, error) {
	verb := cmd.Name()
	submission, err := submissionOf(command)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", verb, err))
	}
	if submission != nil {
		if command, err = flags.takeSubmission(submission, cmd.Flags().Changed("gpus")); err != nil {
			return nil, usageError(fmt.Errorf("%s: %w", verb, err))
		}
	}
	for _, n := range []struct {
		name, value string
		wrong       bool
	}{{"gpus", fmt.Sprint(flags.gpus), flags.gpus < 1}, {"steps", fmt.Sprint(flags.steps), flags.steps < 1}, {"budget", flags.budget.String(), flags.budget <= 0}} {
		if n.wrong {
			return nil, usageError(fmt.Errorf("%s: --%s %s: it must be positive", verb, n.name, n.value))
		}
	}
	if flags.gpus > probe.MaxDevices {
		return nil, usageError(fmt.Errorf("%s: --gpus %d: at most %d are modelled", verb, flags.gpus, probe.MaxDevices))
	}
	if flags.faithful {
		published := flags.estimator + bundled.Published
		if _, err := bundled.Find(published); err != nil {
			return nil, usageError(fmt.Errorf("%s: --faithful: %s has no published form of its own, see gresize estimator list", verb, flags.estimator))
		}
		flags.estimator = published
	}
	if flags.input, err = inputFor(command, os.Stdin); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	return command, nil
}

func estimate(cmd *cobra.Command, flags estimateFlags, args []string) error {
	if len(args) == 0 {
		return usageError(errors.New("estimate: no command given; write it after --"))
	}
	args, err := flags.check(cmd, args)
	if err != nil {
		return err
	}
	profile, err := gpu.Load(flags.gpu)
	if err != nil {
		return usageError(err)
	}
	if len(flags.whatIfs) > 0 && flags.utilization {
		return usageError(errors.New("estimate: --utilization needs one run, and --what-if makes several"))
	}
	if flags.bundle != "" {
		if err := canWrite(flags.bundle); err != nil {
			return usageError(fmt.Errorf("estimate: --bundle: %w", err)) // before the run, and not after it
		}
	}
	if len(flags.whatIfs) > 0 {
		return estimateWhatIfs(cmd, flags, args, profile)
	}
	result, err := flags.run(cmd, probe.Options{Command: args, Env: flags.env(), GPU: profile}, newProgressLine(cmd.ErrOrStderr(), flags.progress))
	if err != nil {
		return err
	}
	r := newReading(&result, profile)
	r.Notes = slices.Insert(r.Notes, 0, flags.notes...) // a list stays a list, also an empty one
	if flags.bundle != "" {
		kept, err := keepBundle(flags.bundle, result.Bundle)
		if err != nil {
			return err
		}
		r.Notes = append(r.Notes, kept...)
	}
	if flags.utilization {
		r.readUtilization(result.Bundle, profile)
	}
	if flags.json {
		err = printJSON(cmd, r)
	} else {
		err = r.print(cmd.OutOrStdout())
	}
	if err != nil {
		return fmt.Errorf("print the estimate: %w", err)
	}
	return r.exit()
}

// env is the environment of the command.
func (flags *estimateFlags) env() []string {
	if flags.job != nil {
		return flags.environment
	}
	return os.Environ()
}

// keepBundle writes the bundle of a run, but leaves an older one where the run recorded no GPU, and says so.
func keepBundle(path string, b *trace.Bundle) (notes []string, err error) {
	if len(b.Ranks) == 0 {
		if _, err := os.Stat(path); err == nil {
			return []string{fmt.Sprintf("--bundle: the run recorded no GPU, so %s was left as it was", path)}, nil
		}
	}
	return nil, trace.WriteFile(path, b)
}

// run runs one command with the flags' policy.
func (f *estimateFlags) run(cmd *cobra.Command, o probe.Options, progress *progressLine) (probe.Result, error) {
	o.Input = f.input
	if f.job != nil {
		o.Script, o.Dir, o.VisibleDevices = f.job.Script, f.job.Dir, o.GPU.VisibleDevices(f.gpus)
	}
	o.Devices, o.Steps, o.Budget, o.NoSandbox, o.Quick, o.Version = f.gpus, f.steps, f.budget, f.noSandbox, f.quick || o.Quick, buildinfo.Version()
	if f.output {
		o.Output = cmd.ErrOrStderr()
	}
	method, err := bundled.Find(f.estimator)
	if err != nil {
		return probe.Result{}, usageError(err)
	}
	o.Recording = method.Recording
	if f.utilization {
		var ok bool
		if o.Recording, ok = o.Recording.With(trace.Recording{Parts: []trace.Part{trace.PartOperators}}); !ok {
			return probe.Result{}, usageError(fmt.Errorf("--utilization needs a run on the virtual GPU, --estimator %s makes another", method.Name))
		}
	}
	progress.attach(&o)
	defer progress.end()
	result, err := probe.Run(cmd.Context(), o)
	if err != nil || method.Name == result.Estimate.Estimator {
		return result, err
	}
	wall := result.Estimate.WallSeconds
	begin := time.Now()
	result.Estimate, err = method.FromBundle(result.Bundle, o.GPU)
	result.Estimate.WallSeconds = wall + time.Since(begin).Seconds()
	return result, err
}

// reading is an answer as this program prints it.
type reading struct{ answer.Answer }

func newReading(result *probe.Result, p *gpu.Profile) reading {
	r := reading{answer.Of(&result.Estimate, result.Bundle, p)}
	r.Hints = append(r.Hints, hints(&result.Bundle.Manifest)...)
	return r
}

// exit is the error that carries the exit code, nil for 0.
func (r *reading) exit() error {
	if r.ExitCode == exitOK {
		return nil
	}
	return &statusError{code: r.ExitCode}
}

func (r *reading) print(w io.Writer) error {
	var b strings.Builder
	b.WriteString(printable.Text(r.headline()) + "\n")
	for _, way := range r.Hints {
		fmt.Fprintf(&b, "  to try       %s\n", printable.Text(way))
	}
	for _, k := range r.Ranks {
		need := fmt.Sprintf("%s needed, at most %s", quantity.GiB(k.ComfortableBytes), quantity.GiB(k.ComfortableHighBytes))
		if r.WasFullOnce() {
			need = quantity.GiB(k.ComfortableBytes) + " in use when the card was full once: it continued without the allocator's cache, and may be slow"
		} else if !r.Fits {
			need = fmt.Sprintf("more than %s needed: that much was in use before the request that found no room", quantity.GiB(k.ComfortableBytes))
		}
		fmt.Fprintf(&b, "  %-12s %s\n", r.nameOf(k.Rank), need)
		if k.MinimumBytes > 0 && quantity.GiB(k.MinimumBytes) != quantity.GiB(k.ComfortableBytes) {
			fmt.Fprintf(&b, "               %s at the least: PyTorch would have to release its cache\n", quantity.GiB(k.MinimumBytes))
		}
		if r.Versions.JAX != "" && r.Versions.Torch == "" {
			fmt.Fprintf(&b, "               %s in use by JAX at the peak, %s for what is outside of its allocator or what that leaves\n", quantity.GiB(k.PeakAllocatedBytes), quantity.GiB(k.OutsideBytes))
			continue
		}
		fmt.Fprintf(&b, "               %s allocated and %s reserved by PyTorch at the peak, %s outside it\n",
			quantity.GiB(k.PeakAllocatedBytes), quantity.GiB(k.PeakReservedBytes), quantity.GiB(k.OutsideBytes))
	}
	if h := r.Headroom; h != nil && h.Bytes >= 0 {
		fmt.Fprintf(&b, "  headroom     %s at least, %.1f %% of the card\n", quantity.GiB(h.Bytes), h.Percent)
	} else if h != nil {
		fmt.Fprintf(&b, "  headroom     none: the upper end is %s beyond the card\n", quantity.Size(uint64(-h.Bytes)))
	}
	if r.HostPeakBytes > 0 {
		fmt.Fprintf(&b, "  host memory  %s", quantity.GiB(r.HostPeakBytes))
		if r.HostDriverHighBytes > 0 {
			fmt.Fprintf(&b, ", and up to %s for NVIDIA's libraries on a GPU node", quantity.GiB(r.HostDriverHighBytes))
		}
		b.WriteByte('\n')
	}
	from := quantity.Count(r.Steps, "step")
	if r.Estimator != bundled.Default {
		from += " by the estimator " + r.Estimator
	}
	fmt.Fprintf(&b, "  confidence   %s, from %s in %.1f s\n", r.Confidence, from, r.WallSeconds)
	var names []string
	for _, id := range r.WouldFit {
		if c, err := gpu.Load(id); err == nil {
			names = append(names, fmt.Sprintf("%s (%s)", c.ID, quantity.GiB(c.Total.Bytes)))
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(&b, "  would fit    %s (not tried there)\n", strings.Join(names, ", "))
	}
	if r.Status == answer.DoesNotFit || r.WasFullOnce() {
		b.WriteString(r.largerCards())
	}
	r.printOwners(&b)
	r.printUtilization(&b)
	for _, x := range r.Reasons {
		if r.Status == answer.Failed && x.Code == estimator.CodeScriptFailed {
			continue // it is the headline
		}
		fmt.Fprintf(&b, "  because      %s\n", printable.Text(x.WordsWithHint()))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "  note         %s\n", printable.Text(n))
	}
	if r.OutputTail != "" {
		lines := strings.Split(strings.TrimRight(r.OutputTail, "\n"), "\n")
		lines = lines[max(0, len(lines)-shownOutputLines):]
		fmt.Fprintf(&b, "  last output of the command:\n")
		for _, l := range lines {
			fmt.Fprintf(&b, "    | %s\n", printable.Text(l))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// nameOf is what a rank is called: the number of its GPU, or, where more processes than GPUs used one after the other, that of the process.
func (r *reading) nameOf(rank int) string {
	if r.Devices > 0 && len(r.Ranks) > r.Devices {
		return fmt.Sprintf("process %d", rank)
	}
	return fmt.Sprintf("GPU %d", rank)
}

// largerCards is the way on where the card was too small: a run that found no room does not say how much room there should be.
func (r *reading) largerCards() string {
	var names []string
	for _, c := range gpu.SmallestFor(r.CapacityBytes + 1) {
		if names = append(names, fmt.Sprintf("%s (%s)", c.ID, quantity.GiB(c.Total.Bytes))); len(names) == shownSmallest {
			break
		}
	}
	if len(names) == 0 {
		return "  to try       a smaller batch, see gresize fit: no larger card is known\n"
	}
	return fmt.Sprintf("  to try       --gpu with a larger card, which says how much is needed: %s; or a smaller batch, see gresize fit\n", strings.Join(names, ", "))
}

func (r *reading) printOwners(b *strings.Builder) {
	purposes := slices.SortedFunc(maps.Keys(r.PeakByPurpose), func(x, y string) int {
		return cmp.Or(cmp.Compare(r.PeakByPurpose[y], r.PeakByPurpose[x]), strings.Compare(x, y))
	})
	var sum int64
	for _, bytes := range r.PeakByPurpose {
		sum += bytes
	}
	// What is less than a thousandth would only be read over.
	purposes = slices.DeleteFunc(purposes, func(name string) bool { return r.PeakByPurpose[name] < sum/1000 })
	for i, name := range purposes {
		purposes[i] = name + " " + quantity.Size(uint64(r.PeakByPurpose[name]))
	}
	if len(purposes) > 0 {
		fmt.Fprintf(b, "  at the peak  %s\n", strings.Join(purposes, ", "))
	}
	for _, o := range r.Owners {
		if o.Percent < 0.1 {
			continue
		}
		fmt.Fprintf(b, "  %22s %5.1f %%  %s\n", quantity.Size(uint64(o.Bytes)), o.Percent, printable.Text(strings.TrimSpace(o.Purpose+" "+o.Name)))
	}
}

// headline is the status and the card of which it speaks, and for a command that failed, which no card did, how it did.
func (r *reading) headline() string {
	if r.Status != answer.Failed {
		return fmt.Sprintf("%s: %s (%s)", r.Status, r.GPUName, quantity.GiB(r.CapacityBytes))
	}
	how := fmt.Sprintf("exit status %d", r.CommandExitStatus)
	if r.CommandExitStatus > 128 {
		how = fmt.Sprintf("ended by signal %d", r.CommandExitStatus-128)
	}
	if i := slices.IndexFunc(r.Reasons, func(x estimator.Reason) bool { return x.Code == estimator.CodeScriptFailed }); i >= 0 {
		// The detail begins with the exit status, which stands here already.
		if _, cause, _ := strings.Cut(r.Reasons[i].Detail, fmt.Sprintf("exit status %d: ", r.CommandExitStatus)); cause != "" {
			return fmt.Sprintf("%s: %s (%s)", r.Status, cause, how)
		}
	}
	return fmt.Sprintf("%s (%s)", r.Status, how)
}
