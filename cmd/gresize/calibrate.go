package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/gpu/calibration"
	"github.com/gresize/gresize/estimator/gpu/capture"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/internal/printable"
	"github.com/spf13/cobra"
)

type calibrateFlags struct {
	gpu, python, compare, keep string
	limit, each                time.Duration
	only                       []string
}

func newCalibrateCommand() *cobra.Command {
	var flags calibrateFlags
	cmd := &cobra.Command{
		Use:   "calibrate [--python PYTHON] [--keep DIR] | calibrate --compare RESULTS.jsonl --gpu NAME",
		Short: "Compare the virtual GPU with the real one of this machine",
		Long: `Runs reference workloads on the GPU of this machine, measures the card itself, runs the
same workloads on the virtual GPU, and prints the two side by side with the error and
with what the profile should say. It is what to run first on a new type of GPU. Run it
on an otherwise idle GPU, with the Python whose PyTorch the jobs use.

With --compare the real figures are those of a recorded file, and no GPU is needed.`,
		Example: `  gresize calibrate --python ~/venv/bin/python --keep h100-results
  gresize calibrate --compare h100-results/results.jsonl --gpu h100 --python ~/venv/bin/python`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return calibrate(cmd, flags) },
	}
	f := cmd.Flags()
	f.StringVar(&flags.gpu, "gpu", "", "the profile to compare with (default: the one captured; with --compare, name it)")
	f.StringVar(&flags.python, "python", defaultPython, "the `PYTHON` whose PyTorch is used")
	f.StringVar(&flags.compare, "compare", "", "compare with recorded results in `FILE`")
	f.StringVar(&flags.keep, "keep", "", "keep what was measured, and the captured profile, in `DIR`")
	f.DurationVar(&flags.limit, "limit", 9*time.Minute, "time for the measurements on the real GPU")
	f.DurationVar(&flags.each, "each", 2*time.Minute, "time for one workload on the virtual GPU")
	f.StringSliceVar(&flags.only, "only", nil, "compare only these `WORKLOADS`, separated by commas")
	return cmd
}

func calibrate(cmd *cobra.Command, flags calibrateFlags) error {
	if flags.limit < time.Second || flags.each < time.Second {
		return usageError(errors.New("calibrate: --limit and --each must be a second at least"))
	}
	if flags.compare != "" && flags.gpu == "" {
		return usageError(errors.New("calibrate: --compare: name the profile of the recorded GPU with --gpu"))
	}
	var profile *gpu.Profile
	if flags.gpu != "" {
		var err error
		if profile, err = gpu.Load(flags.gpu); err != nil {
			return usageError(err)
		}
	}
	results := flags.compare
	if results == "" {
		measured, err := measure(cmd, &flags)
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		if flags.keep == "" {
			defer os.RemoveAll(filepath.Dir(measured))
		}
		results = measured
		if profile == nil {
			if profile, err = capturedProfile(cmd, filepath.Dir(results)); err != nil {
				return fmt.Errorf("calibrate: %w", err)
			}
		}
	}
	rows, err := calibration.ReadResults(results)
	if err != nil {
		return err
	}
	pairs, err := onVirtual(cmd, flags, profile, rows)
	if err != nil {
		return err
	}
	return calibration.Print(cmd.OutOrStdout(), pairs, profile)
}

// measure runs the workloads on the real GPU and returns the file of their results.
func measure(cmd *cobra.Command, flags *calibrateFlags) (string, error) {
	if _, err := capture.Check(cmd.Context(), capture.Options{Python: flags.python}); err != nil {
		return "", err
	}
	dir := flags.keep
	if dir == "" {
		made, err := os.MkdirTemp("", "gresize-calibrate-")
		if err != nil {
			return "", err
		}
		dir = made
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(dir, calibration.ResultsFile), calibration.Measure(cmd.Context(), flags.python, dir, flags.limit, cmd.ErrOrStderr())
}

// capturedProfile makes the profile of the card that was just measured, and says what is new in it.
func capturedProfile(cmd *cobra.Command, dir string) (*gpu.Profile, error) {
	record, err := os.ReadFile(filepath.Join(dir, calibration.CaptureFile))
	if err != nil {
		return nil, fmt.Errorf("the card was not captured, name a profile with --gpu: %w", err)
	}
	p, err := capture.Profile(record, "")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, p.ID+".json")
	if err := writeProfile(path, p); err != nil {
		return nil, err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "the profile of this card, as captured (kept with --keep as %s):\n", filepath.Base(path))
	return p, printProfile(cmd, p)
}

func onVirtual(cmd *cobra.Command, flags calibrateFlags, profile *gpu.Profile, rows []calibration.Row) ([]calibration.Pair, error) {
	lib, err := vgpu.Locate()
	if err != nil {
		return nil, err
	}
	v := calibration.Virtual{Python: flags.python, LibDir: lib, Profile: profile, Limit: flags.each}
	if err := v.Open(); err != nil {
		return nil, err
	}
	defer v.Close()
	var pairs []calibration.Pair
	for i := range rows {
		if len(flags.only) > 0 && !slices.Contains(flags.only, rows[i].Name) {
			continue
		}
		pair := calibration.Pair{Real: rows[i]}
		if rows[i].MaxReservedBytes > 0 && rows[i].Error == "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "gresize: %s on the virtual GPU\n", printable.Text(rows[i].Title()))
			if pair.Virtual, err = v.Run(cmd.Context(), &rows[i]); err != nil {
				return nil, err
			}
		}
		pairs = append(pairs, pair)
	}
	if len(pairs) == 0 {
		return nil, usageError(errors.New("calibrate: --only names no workload of the results"))
	}
	return pairs, nil
}
