package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/fit"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/spf13/cobra"
)

type fitFlags struct {
	estimateFlags
	from, step, most int
	acceptLow, exact bool
	within           time.Duration
}

func newFitCommand() *cobra.Command {
	var flags fitFlags
	cmd := &cobra.Command{
		Use:   "fit [flags] -- COMMAND [ARGUMENT...]",
		Short: "Find the largest batch size that fits on a GPU, by running it",
		Long: `Runs the command on a virtual GPU with one batch size after the other and says which
is the largest that fits. Nothing is extrapolated: the answer was run and fits, and
a larger one was run and does not, or not for sure. All runs are shown.

Write {} where the batch size goes. Without it, the value of --batch-size,
--batch_size, -b, --train_batch_size, --per_device_train_batch_size and their like
is replaced, or the variable BATCH_SIZE.

The search doubles from the first size until one does not fit, then halves the rest.
It ends earlier where the sizes left differ by less than the interval of an answer can
tell, unless --exact is given, and when the time of --within is spent: the next size
has not been run then, and the answer says so. It also ends where the batch size has no
effect on what the command asks for.
Memory need not grow evenly with the batch: a larger size beyond the answer might
happen to fit again, and is not looked for.

EXIT STATUS
  0  a size was found
  1  an error
  2  wrong usage
  3  not even the smallest fits
  4  unknown: an answer could not be relied on
  5  the command failed`,
		Example: `  gresize fit --gpu A100-40 -- python train.py --batch-size {}
  gresize fit --gpu l40s --step 8 -- python train.py --batch_size 64`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return runFit(cmd, flags, args) },
	}
	flags.add(cmd)
	f := cmd.Flags()
	f.IntVar(&flags.from, "from", 0, "first batch size to try (default: the command's own, or 8)")
	f.IntVar(&flags.step, "step", 1, "batch sizes are multiples of this")
	f.IntVar(&flags.most, "most", 1<<20, "largest batch size to try")
	f.BoolVar(&flags.acceptLow, "accept-low", false, "accept an answer of low confidence")
	f.BoolVar(&flags.exact, "exact", false, "continue to the last size, however little the sizes differ")
	f.DurationVar(&flags.within, "within", 10*time.Minute, "time for all runs together; a run that has begun is finished")
	f.SetInterspersed(false)
	return cmd
}

const (
	defaultFirstBatch = 8

	// usualRuns is what a search takes; of runs as short as shortRunSeconds nothing need be announced.
	usualRuns       = 8
	shortRunSeconds = 5
)

func runFit(cmd *cobra.Command, flags fitFlags, args []string) error {
	if len(args) == 0 {
		return usageError(errors.New("fit: no command given; write it after --"))
	}
	if flags.step < 1 || flags.from < 0 || flags.most < flags.step {
		return usageError(errors.New("fit: --step and --from must be positive, and --most at least --step"))
	}
	if flags.from > flags.most {
		return usageError(fmt.Errorf("fit: --from %d is above --most %d: nothing would be tried", flags.from, flags.most))
	}
	if flags.within <= 0 {
		return usageError(errors.New("fit: --within must be positive"))
	}
	args, err := flags.check(cmd, args)
	if err != nil {
		return err
	}
	profile, err := gpu.Load(flags.gpu)
	if err != nil {
		return usageError(err)
	}
	first := flags.from
	if first == 0 {
		if first = fit.BatchOf(args); first == 0 {
			first = defaultFirstBatch
		}
	}
	env := flags.env()
	if _, _, err := fit.WithBatch(args, env, first); err != nil {
		return usageError(fmt.Errorf("fit: %w", err))
	}
	progress := newProgressLine(cmd.ErrOrStderr(), flags.progress)
	s := fit.Search{Step: flags.step, First: first, Most: flags.most, CapacityBytes: profile.Total.Bytes, AcceptLow: flags.acceptLow, Coarse: !flags.exact}
	begin := time.Now()
	s.Spent = func() bool { return time.Since(begin) >= flags.within }
	var base followed
	announced := false
	s.Try = func(batch int) (fit.Run, error) {
		command, newEnv, err := fit.WithBatch(args, env, batch)
		if err != nil {
			return fit.Run{}, err
		}
		progress.begin(fmt.Sprintf("batch %d: ", batch))
		o := base.options(probe.Options{Command: command, Env: newEnv, GPU: profile})
		result, err := flags.run(cmd, o, progress)
		if err != nil {
			return fit.Run{}, err
		}
		base.conclude(&result, o)
		r := newReading(&result, profile)
		tried := fit.Run{Estimate: r.Answer, Asked: fit.Asked(result.Bundle)}
		if err := cmd.Context().Err(); err != nil {
			return tried, err
		}
		if progress == nil || !progress.terminal { // on a terminal, the progress was seen
			fmt.Fprintf(cmd.ErrOrStderr(), "gresize: batch %d: %s, %.1f s\n", batch, fit.Word(&r.Answer), r.WallSeconds)
		}
		if !announced && r.WallSeconds > shortRunSeconds {
			fmt.Fprintf(cmd.ErrOrStderr(), "gresize: a search takes about %d runs, %.0f s at this pace, and ends after %s (--within)\n", usualRuns, usualRuns*r.WallSeconds, flags.within)
		}
		announced = true
		return tried, nil
	}
	res, err := s.Run()
	if errors.Is(err, context.Canceled) {
		return errors.New("fit: interrupted; nothing is known yet")
	}
	if err != nil {
		return fmt.Errorf("fit: %w", err)
	}
	res.GPU = profile.ID
	if flags.json {
		err = printJSON(cmd, res)
	} else {
		err = printFit(cmd.OutOrStdout(), &res, profile)
	}
	if err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	if res.ExitCode != exitOK {
		return &statusError{code: res.ExitCode}
	}
	return nil
}

func printFit(out io.Writer, f *fit.Result, p *gpu.Profile) error {
	var err error
	switch {
	case f.Batch > 0 && f.Status == answer.Fits:
		_, err = fmt.Fprintf(out, "%d: the largest batch that fits on %s (%s)%s\n", f.Batch, p.Name, quantity.GiB(p.Total.Bytes), f.Proof())
	case f.Batch > 0:
		_, err = fmt.Fprintf(out, "%s on %s: %d fits, but %s\n", f.Status, p.Name, f.Batch, printable.Text(f.Why))
	default:
		_, err = fmt.Fprintf(out, "%s on %s (%s): %s\n", f.Status, p.Name, quantity.GiB(p.Total.Bytes), printable.Text(f.Why))
	}
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  BATCH\tANSWER\tRESERVED\tNEEDED\tAT MOST\tHEADROOM\tCONFIDENCE\tSECONDS")
	for _, run := range f.Runs {
		r := &reading{run.Estimate}
		c := r.cells()
		fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\n", run.Batch, fit.Word(&r.Answer), c[0], c[1], c[2], c[3], r.Confidence, r.WallSeconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	shown := decisive(f)
	shared := sharedReasons{of: "batch", all: len(shown)}
	for _, run := range shown {
		shared.add(run.Batch, run.Estimate.Reasons)
	}
	return shared.print(out, "  ")
}

// decisive are the runs that the answer rests on: the size that fits and the first that does not, and where none fits the last.
func decisive(f *fit.Result) (runs []fit.Run) {
	for i, run := range f.Runs {
		if f.Batch > 0 && (run.Batch == f.Batch || run.Batch == f.FailsAt || f.FailsAt != f.Batch+f.Step && run.Batch == f.Batch+f.Step) || (f.Batch == 0 || f.Status != answer.Fits) && i == len(f.Runs)-1 {
			runs = append(runs, run)
		}
	}
	slices.SortFunc(runs, func(a, b fit.Run) int { return a.Batch - b.Batch })
	return runs
}
