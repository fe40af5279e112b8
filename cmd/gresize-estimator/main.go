// Command gresize-estimator drives estimator plugins by hand, checks them against the contract, and serves the bundled
// estimators as such. `gresize estimator` starts it, so that gresize itself needs no gRPC.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/contract/contracttest"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/methods/bundled/plugin"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/buildinfo"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity/flags"
	"github.com/gresize/gresize/internal/regular"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	if contract.Starter() {
		os.Exit(contract.StartPlugin())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gresize estimator:", err)
		stop()
		os.Exit(codeOf(err))
	}
}

// Exit codes, as those of gresize.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command line that asks for nothing that there is.
type usageError struct{ error }

func codeOf(err error) int {
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}

// arguments makes the fault that a rule finds one of usage, and says what is wanted.
func arguments(rule cobra.PositionalArgs, wanted string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if rule(c, args) != nil {
			return usageError{fmt.Errorf("%s: %s wanted, %d given; see %s --help", c.Name(), wanted, len(args), c.CommandPath())}
		}
		return nil
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "gresize-estimator", Short: "List the bundled estimators, drive and check estimator plugins", Version: buildinfo.Version(), SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "gresize estimator"}, // what a person types
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q; see gresize estimator --help", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newListCommand(), newRunCommand(), newCheckCommand(), newServeCommand())
	return root
}

func newListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The bundled estimators, and how a command is run for each", Args: arguments(cobra.NoArgs, "no argument is"),
		Example: "  gresize estimator list",
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tVERSION\tRUN\tRECORDS\tANSWERS FROM")
			for _, m := range bundled.All() {
				parts := make([]string, 0, len(m.Recording.Parts))
				for _, p := range m.Recording.Parts {
					parts = append(parts, string(p))
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.Version, m.Recording.RunMode(), cmp.Or(strings.Join(parts, ","), "-"), m.Summary)
			}
			return w.Flush()
		},
	}
}

// addReads adds the flag that stands for a row's `reads` in gresize.toml.
func addReads(flags *pflag.FlagSet, reads *[]string) {
	flags.StringSliceVar(reads, "reads", nil, "a `FOLDER` more that the plugin may read, as gresize.toml's reads")
}

func newRunCommand() *cobra.Command {
	var bundle, card string
	var reads []string
	var timeout time.Duration
	c := &cobra.Command{
		Use: "run PLUGIN --bundle FILE --gpu NAME [-- ARGS]", Short: "Ask a plugin about a bundle, and print its answer", Args: arguments(cobra.MinimumNArgs(1), "a PLUGIN is"),
		Example: "  gresize estimate --bundle job.gresize -- python train.py\n  gresize estimator run ./my-estimator --bundle job.gresize --gpu a100-80",
		RunE: func(c *cobra.Command, args []string) error {
			if bundle == "" || card == "" {
				return usageError{errors.New("run: give --bundle FILE and --gpu NAME; see gresize estimator run --help")}
			}
			profile, err := gpu.Load(card)
			if err != nil {
				return usageError{err}
			}
			if err := regular.Check(bundle); err != nil {
				return fmt.Errorf("--bundle: %w", err)
			}
			path, err := filepath.Abs(bundle)
			if err != nil {
				return err
			}
			return runPlugin(c.Context(), args, reads, contract.NewRequest(path, profile), timeout, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&bundle, "bundle", "", "the trace bundle `FILE` (gresize estimate --bundle writes one)")
	c.Flags().StringVar(&card, "gpu", "", "the GPU `NAME` (gresize gpu list)")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "the time for the answer")
	addReads(c.Flags(), &reads)
	flags.Decimal(c.Flags())
	return c
}

func runPlugin(ctx context.Context, args, reads []string, r contract.Request, timeout time.Duration, stdout, stderr io.Writer) error {
	command, err := commandOf(args)
	if err != nil {
		return err
	}
	command.Reads = append(reads, filepath.Dir(r.Bundle))
	begun := time.Now()
	client, err := contract.Start(ctx, command)
	if err != nil {
		return err
	}
	defer client.Close()
	started := time.Since(begun)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun = time.Now()
	e, err := client.Estimate(ctx, r)
	fmt.Fprintf(stderr, "%s %s, contract %d: start %s, call %s\n", client.Info().Name, client.Info().Version, client.ContractVersion(),
		started.Round(10*time.Microsecond), time.Since(begun).Round(10*time.Microsecond))
	if err != nil {
		return err
	}
	out := json.NewEncoder(stdout)
	out.SetIndent("", "  ")
	return out.Encode(e)
}

func newCheckCommand() *cobra.Command {
	var reads []string
	c := &cobra.Command{
		Use: "check PLUGIN [-- ARGS]", Short: "Run the contract suite on a plugin", Args: arguments(cobra.MinimumNArgs(1), "a PLUGIN is"),
		Example: "  gresize estimator check ./my-estimator\n  gresize estimator check /usr/bin/python3 -- my_estimator.py",
		RunE: func(c *cobra.Command, args []string) error {
			command, err := commandOf(args)
			if err != nil {
				return err
			}
			scratch, err := os.MkdirTemp("", "gresize-check-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			card, err := gpu.Load(gpu.DefaultID)
			if err != nil {
				return err
			}
			command.Reads = reads
			s := contracttest.Subject{Command: command, Bundle: filepath.Join(scratch, "sound.bundle"), Card: card, Scratch: scratch}
			if err := trace.WriteFile(s.Bundle, contracttest.SoundBundle(card)); err != nil {
				return err
			}
			return report(contracttest.Check(c.Context(), s), c.OutOrStdout())
		},
	}
	addReads(c.Flags(), &reads)
	return c
}

// reportRunes bounds what is printed of one fault: what a plugin wrote stands in it, and is the same in each.
const reportRunes = 200

func report(results []contracttest.Result, stdout io.Writer) error {
	failed, whole := 0, ""
	for _, r := range results {
		word := "ok"
		if r.Err != nil {
			text := strings.Join(strings.Fields(r.Err.Error()), " ")
			word = printable.Clip(text, reportRunes)
			if failed++; failed == 1 && word != printable.Text(text) {
				whole = printable.Text(text)
			}
		}
		fmt.Fprintf(stdout, "%-42s %s\n", r.Case, word)
	}
	if whole != "" {
		fmt.Fprintf(stdout, "\nthe first failure in full: %s\n", whole)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases failed", failed, len(results))
	}
	return nil
}

func newServeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "serve NAME", Short: "Be a plugin: a bundled estimator, for a host to start", Args: arguments(cobra.ExactArgs(1), "one NAME is"), ValidArgs: bundled.Names(),
		RunE: func(_ *cobra.Command, args []string) error {
			method, err := bundled.Find(args[0])
			if err != nil {
				return usageError{err}
			}
			contract.Serve(plugin.Estimator{Method: method})
			return nil
		},
	}
}

// commandOf finds the program as a shell would.
func commandOf(args []string) (contract.Command, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return contract.Command{}, err
	}
	path, err = filepath.Abs(path)
	return contract.Command{Path: path, Args: args[1:]}, err
}
