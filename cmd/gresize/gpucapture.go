package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/gpu/capture"
	"github.com/spf13/cobra"
)

type captureFlags struct {
	out, raw, python, id string
	limit                time.Duration
	nccl                 bool
}

const defaultPython = "python3"

func newGPUCaptureCommand() *cobra.Command {
	var flags captureFlags
	cmd := &cobra.Command{
		Use:   "capture -o FILE.json [--python PYTHON]",
		Short: "Measure the GPU of this machine and write a profile of it",
		Long: `Measures the first GPU of this machine: its properties and attributes, what a CUDA
context takes, what the first use of each library adds, and cuDNN's description of
the card. Run it on an otherwise idle GPU, with the Python whose PyTorch the jobs
use. Nothing is downloaded, and nothing but FILE is written.

The profile is used with --gpu FILE.json. --raw keeps all that was measured, with
operators and the workspaces of convolutions.`,
		Example: `  gresize gpu capture -o h100.json --python ~/venv/bin/python
  gresize estimate --gpu h100.json -- python train.py`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return captureGPU(cmd, flags) },
	}
	f := cmd.Flags()
	f.StringVarP(&flags.out, "output", "o", "", "the profile's `FILE`, which must end in .json")
	f.StringVar(&flags.raw, "raw", "", "keep the whole record in `FILE`")
	f.StringVar(&flags.python, "python", defaultPython, "the `PYTHON` whose PyTorch is used")
	f.StringVar(&flags.id, "id", "", "short `NAME` of the profile (default: that of the model)")
	f.DurationVar(&flags.limit, "limit", time.Minute, "time for the measurements")
	f.BoolVar(&flags.nccl, "nccl", false, "also measure the first use of NCCL, which opens a local port")
	return cmd
}

// profileSections are what a profile is made of; with --raw all is measured.
var profileSections = []string{"device", "granularity", "context", "first_use", "cudnn"}

func captureGPU(cmd *cobra.Command, flags captureFlags) error {
	if !strings.HasSuffix(flags.out, ".json") {
		return usageError(errors.New("gpu capture: name a file that ends in .json with -o"))
	}
	if flags.limit < time.Second {
		return usageError(errors.New("gpu capture: --limit must be a second at least"))
	}
	o := capture.Options{Python: flags.python, Seconds: flags.limit.Seconds(), NCCL: flags.nccl, Log: cmd.ErrOrStderr()}
	if flags.raw == "" {
		o.Sections = profileSections
	}
	record, err := capture.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("gpu capture: %w", err)
	}
	if flags.raw != "" {
		if err := os.WriteFile(flags.raw, record, 0o644); err != nil {
			return fmt.Errorf("gpu capture: %w", err)
		}
	}
	p, err := capture.Profile(record, flags.id)
	if err != nil {
		return fmt.Errorf("gpu capture: %w", err)
	}
	if err := writeProfile(flags.out, p); err != nil {
		return fmt.Errorf("gpu capture: %w", err)
	}
	return printProfile(cmd, p)
}

// writeProfile writes a profile whole or not at all.
func writeProfile(path string, p *gpu.Profile) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}
