package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator/eval"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/buildinfo"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/spf13/cobra"
)

type evalFlags struct {
	out        string
	estimators string
	python     string
	only       []string
	limit      int
	every      int
	workers    int
	timeout    time.Duration
	again      string
	noSandbox  bool
	printOnly  bool
	plot       string
	largest    int
}

func newEvalCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use: "eval TABLE.csv -o ANSWERS.csv", Short: "Print the error of each estimator, against a table of measured figures",
		Long: `Has every bundled estimator answer for each row of a table of truth, and prints the
error of each. A row names a script beside the table, its arguments, a GPU, and the
memory that was measured.

Answers are appended to the file of -o, whole rows only. Rows that it has are not run
again, so an interrupted comparison continues where it stopped; --again repeats those
that are unknown, for example of a run that was too slow. --print runs nothing and
prints what there is. docs/eval.md describes both files and every figure.`,
		Example: `  # in a checkout of the sources, which have tables and their scripts
  gresize eval testdata/workloads/xmem.csv -o answers.csv --python ~/venv/bin/python
  gresize eval testdata/workloads/xmem.csv -o answers.csv --print --plot calibration.svg`,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(errors.New("eval: give one table"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.eval(cmd, args[0]) },
	}
	flags := c.Flags()
	flags.StringVarP(&f.out, "output", "o", "", "the `FILE` of answers; rows that it has are not run again")
	flags.StringVar(&f.estimators, "estimators", "", "only these `NAMES`, with commas between them")
	flags.StringVar(&f.python, "python", "python3", "the `interpreter` of the scripts")
	flags.StringArrayVar(&f.only, "only", nil, "only rows whose script, arguments, GPU or group contain this `text`; may be repeated, then all must")
	flags.IntVar(&f.every, "every", 1, "only each `N`-th row of those; the rows that constants are taken from come on top")
	flags.IntVar(&f.limit, "limit", 0, "at most `N` rows of those; the rows that constants are taken from come on top")
	flags.IntVar(&f.workers, "workers", 1, "runs at once, 1 or 2")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "time that one run may take")
	flags.StringVar(&f.again, "again", "", "answer again the rows that have an answer: `WHICH` is unknown (the default) or all")
	flags.Lookup("again").NoOptDefVal = againUnknown
	flags.BoolVar(&f.noSandbox, "no-sandbox", false, "run the scripts as they are")
	flags.BoolVar(&f.printOnly, "print", false, "make no answers")
	flags.StringVar(&f.plot, "plot", "", "draw the calibration into `FILE`, an SVG")
	flags.IntVar(&f.largest, "largest", 10, "list the `N` largest errors of each estimator")
	return c
}

func (f *evalFlags) eval(cmd *cobra.Command, path string) error {
	if f.out == "" {
		return usageError(errors.New("eval: name the file of answers: -o ANSWERS.csv"))
	}
	if f.workers < 1 || f.workers > eval.MaxWorkers || f.limit < 0 || f.every < 1 || f.timeout <= 0 || f.largest < 0 {
		return usageError(fmt.Errorf("eval: --workers is 1 to %d, --every and --timeout are positive, --limit and --largest not negative", eval.MaxWorkers))
	}
	if f.again != "" && f.again != againUnknown && f.again != againAll {
		return usageError(fmt.Errorf("eval: --again=%.40q: write --again for answers that are unknown, or --again=%s", f.again, againAll))
	}
	if f.again != "" && f.printOnly {
		return usageError(errors.New("eval: --print makes no answers, and --again makes some again: give one of them"))
	}
	methods, err := f.methods()
	if err != nil {
		return usageError(err)
	}
	rows, err := eval.ReadTable(path)
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	if rows = f.chosen(rows); len(rows) == 0 && len(f.only) > 0 {
		return fmt.Errorf("eval: %s: no row holds %q", path, f.only)
	}
	answers, err := f.answers(cmd, path, rows, methods)
	if err != nil {
		return err
	}
	c, err := eval.Compare(rows, answers)
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "gresize: %s\n", eval.Left(rows, answers))
	if err := c.Print(cmd.OutOrStdout(), f.largest); err != nil {
		return fmt.Errorf("print the comparison: %w", err)
	}
	if f.plot == "" {
		return nil
	}
	title := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) + ": measured and estimated"
	return writeWhole(f.plot, func(w io.Writer) error { return c.Plot(w, title) })
}

// The values of --again.
const (
	againUnknown = "unknown"
	againAll     = "all"
)

func (f *evalFlags) makeAgain() func(eval.Answer) bool {
	if f.again == "" {
		return nil
	}
	return func(a eval.Answer) bool { return f.again == againAll || a.Verdict == eval.Unknown }
}

func (f *evalFlags) methods() ([]bundled.Method, error) {
	if f.estimators == "" {
		return bundled.All(), nil
	}
	var methods []bundled.Method
	for name := range strings.SplitSeq(f.estimators, ",") {
		m, err := bundled.Find(name)
		if err != nil {
			return nil, fmt.Errorf("eval: %w", err)
		}
		methods = append(methods, m)
	}
	return methods, nil
}

// chosen are the rows that are asked for. Those that constants are taken from are kept whatever --every and --limit say.
func (f *evalFlags) chosen(rows []eval.Row) []eval.Row {
	var kept []eval.Row
	n, others := 0, 0
	for _, row := range rows {
		if row.Truth == eval.Crash && !f.printOnly {
			continue
		}
		if slices.ContainsFunc(f.only, func(text string) bool { return !strings.Contains(row.String()+" "+row.Group, text) }) {
			continue
		}
		if !row.Fit {
			n++
			if (n-1)%f.every != 0 || f.limit > 0 && others == f.limit {
				continue
			}
			others++
		}
		kept = append(kept, row)
	}
	return kept
}

// answers makes what is missing in the file of answers.
func (f *evalFlags) answers(cmd *cobra.Command, table string, rows []eval.Row, methods []bundled.Method) (*eval.Answers, error) {
	if f.printOnly {
		answers, err := eval.ReadAnswers(f.out)
		if err != nil {
			return nil, fmt.Errorf("eval: %w", err)
		}
		return answers, nil
	}
	python, err := exec.LookPath(f.python)
	if err == nil {
		python, err = filepath.Abs(python)
	}
	if err != nil {
		return nil, usageError(fmt.Errorf("eval: --python: %w", err))
	}
	folder, err := filepath.Abs(filepath.Dir(table))
	if err != nil {
		return nil, err
	}
	// A script that is not there would be a row of wrong answers, and so would one for each.
	for _, row := range rows {
		if info, err := os.Stat(scriptOf(folder, row.Workload)); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("eval: %w", &eval.FileError{File: table, Line: row.Line, Column: 1, Fault: fmt.Sprintf("no script %s", row.Script), Hint: "scripts are looked for from the folder of the table"})
		}
	}
	answers, err := eval.OpenAnswers(f.out)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	defer answers.Close()
	begun := time.Now()
	c := eval.Comparison{
		Rows: rows, Methods: methods, Workers: f.workers, Answers: answers, Again: f.makeAgain(),
		Run: func(ctx context.Context, w eval.Workload, card *gpu.Profile, r trace.Recording) (*trace.Bundle, error) {
			command := append([]string{python, scriptOf(folder, w)}, strings.Fields(w.Arguments)...)
			result, err := probe.Run(ctx, probe.Options{
				Command: command, GPU: card, Budget: f.timeout, Recording: r, NoSandbox: f.noSandbox, Quick: true, Version: buildinfo.Version(),
			})
			return result.Bundle, err
		},
		Progress: func(done, all int, made []eval.Answer) {
			left := time.Duration(float64(time.Since(begun)) / float64(done) * float64(all-done))
			fmt.Fprintf(cmd.ErrOrStderr(), "gresize: %d of %d, %s left: %s\n", done, all, left.Round(time.Second), printable.Text(summaryOf(made)))
		},
	}
	if err := c.Do(cmd.Context()); err != nil {
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted; run the same command to continue")
		}
		return nil, fmt.Errorf("eval: %w", err)
	}
	return answers, nil
}

func scriptOf(folder string, w eval.Workload) string {
	if filepath.IsAbs(w.Script) {
		return w.Script
	}
	return filepath.Join(folder, w.Script)
}

func summaryOf(answers []eval.Answer) string {
	var b strings.Builder
	b.WriteString(answers[0].Workload.String())
	for _, a := range answers {
		fmt.Fprintf(&b, "; %s ", a.Estimator)
		switch a.Verdict {
		case eval.Fits:
			b.WriteString(quantity.GiB(a.ReservedBytes))
		case eval.Full:
			b.WriteString("out of memory")
		case eval.Unknown:
			b.WriteString("unknown, " + a.Reasons)
		}
	}
	return b.String()
}
