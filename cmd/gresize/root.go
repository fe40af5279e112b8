package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/internal/buildinfo"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity/flags"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes, the same for every verb. The manual lists them.
const (
	exitOK         = answer.ExitFits
	exitError      = 1
	exitUsage      = 2
	exitDoesNotFit = answer.ExitDoesNotFit
	exitUnknown    = answer.ExitUnknown
	exitFailed     = answer.ExitFailed
)

// statusError ends the program with a code of its own. Its text, if any, goes to standard error.
type statusError struct {
	code int
	err  error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// maxErrorBytes bounds an error that quotes a stranger's file.
const maxErrorBytes = 8 << 10

func usageError(err error) error { return &statusError{exitUsage, err} }

// run is the whole program but for the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code, silent := exitError, false
	var status *statusError
	if errors.As(err, &status) {
		code, silent = status.code, status.err == nil
	}
	if silent {
		return code
	}
	text := err.Error()
	if len(text) > maxErrorBytes {
		text = strings.ToValidUTF8(text[:maxErrorBytes], "") + "…"
	}
	if wantsJSON(args) {
		// A program that reads JSON gets JSON, whatever happens. A person who has it on the terminal need not read it twice.
		_ = json.NewEncoder(harmlessJSON{stdout}).Encode(map[string]any{"error": text, "exit_code": code})
		if _, terminal := columnsOf(stdout); terminal {
			return code
		}
	}
	// Further lines are set in: a line break in a file's name begins none that looks like one of ours.
	fmt.Fprintln(stderr, "gresize:", strings.ReplaceAll(printable.Lines(text), "\n", "\n  "))
	if code == exitUsage {
		verb, _, err := root.Find(args)
		if err != nil {
			verb = root
		}
		fmt.Fprintf(stderr, "See %s --help.\n", verb.CommandPath())
	}
	return code
}

// wantsJSON looks for --json before the command that is to be estimated.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gresize",
		Short: "The GPU that a job needs instead of the GPU that was guessed",
		Long: `gresize tells how much GPU memory a training command needs, without a GPU, and
shows what the daemon of a Slurm site decided about jobs, and why.

EXIT STATUS
  0  done; for estimate: it fits
  1  an error
  2  wrong usage
  3  estimate: it does not fit
  4  estimate: unknown
  5  estimate: the command failed`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       buildinfo.Version(),
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDoctorCommand(), newSlurmCommand(), newProbeCommand(), newTopCommand(), newActualCommand())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(meantFlag(cmd, err)) })
	root.AddCommand(newEstimateCommand(), newFitCommand(), newGPUCommand(), newCalibrateCommand(), newLogCommand(), newShowCommand(), newExplainCommand(), newReportCommand(), newReplayCommand(), newExportCommand(), newSimulateCommand(), newPlotCommand(), newPlanCommand(), newRunCommand(), newTaskPrologCommand(), newEstimatorCommand(), newEvalCommand())
	root.AddCommand(newVersionCommand())
	readDecimals(root)
	return root
}

// meantFlag adds to the error of a flag that is not known the one that was probably meant: of one dash the same with two, and one whose name begins or ends alike.
func meantFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	word := unknown.GetSpecifiedName()
	if group := unknown.GetSpecifiedShortnames(); group != "" {
		word = group
	}
	name, _, _ := strings.Cut(word, "=")
	if len(name) > 1 && cmd.Flags().Lookup(name) != nil {
		return fmt.Errorf("%w: it is written --%s", err, name)
	}
	const alike = 3
	var near []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if len(name) >= alike && !f.Hidden && (strings.HasPrefix(f.Name, name[:alike]) || strings.HasSuffix(f.Name, name[len(name)-alike:])) {
			near = append(near, "--"+f.Name)
		}
	})
	if len(near) == 0 {
		return err
	}
	return fmt.Errorf("%w: near it: %s", err, strings.Join(near, ", "))
}

// readDecimals has the whole numbers of the command and of those below it read in decimal digits.
func readDecimals(cmd *cobra.Command) {
	flags.Decimal(cmd.Flags())
	flags.Decimal(cmd.PersistentFlags())
	for _, below := range cmd.Commands() {
		readDecimals(below)
	}
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, as --version does",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "gresize version", cmd.Root().Version)
			return err
		},
	}
}
