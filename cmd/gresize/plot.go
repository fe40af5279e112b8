package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gresize/gresize/estimator/analysis/plot"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/regular"
	"github.com/spf13/cobra"
)

func newPlotCommand() *cobra.Command {
	var out string
	var rank int
	cmd := &cobra.Command{
		Use:   "plot FILE [-o FILE.svg|FILE.html] [--rank N]",
		Short: "Draw where the GPU memory of a recorded run went",
		Long: `Draws the memory of one GPU over time, by what it is for (parameters, gradients,
optimizer state, activations, workspace, cached, outside), with the ends of the
training steps; the ten largest owners at the peak; and the map of addresses at
the peak. Without -o, a plain form of it is printed.

FILE is a trace bundle, made by "gresize estimate --bundle FILE -- COMMAND", or a
PyTorch memory snapshot (a pickle of torch.cuda.memory._dump_snapshot), of which
nothing is run; a snapshot does not say what its memory was for.`,
		Example: `  gresize plot job.gresize
  gresize plot job.gresize -o memory.svg
  gresize plot snapshot.pickle -o memory.html`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("plot: give one file, not %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return drawBundle(cmd, args[0], out, rank) },
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write a picture (.svg) or a page (.html) to `FILE`")
	cmd.Flags().IntVar(&rank, "rank", 0, "rank of a bundle, or device of a snapshot")
	return cmd
}

func drawBundle(cmd *cobra.Command, path, out string, rank int) error {
	draw := plot.Text
	switch strings.ToLower(filepath.Ext(out)) {
	case ".svg":
		draw = plot.SVG
	case ".html", ".htm":
		draw = plot.HTML
	default:
		if out != "" {
			return usageError(fmt.Errorf("plot: %s: write a name that ends in .svg or .html", out))
		}
	}
	figure, err := figureOf(path, rank)
	if err != nil {
		return err
	}
	if out == "" {
		return draw(cmd.OutOrStdout(), figure)
	}
	return writeWhole(out, func(w io.Writer) error { return draw(w, figure) })
}

func figureOf(path string, rank int) (*plot.Figure, error) {
	b, err := trace.ReadFile(path)
	if err == nil {
		return plot.OfBundle(b, rank, path)
	}
	if !errors.Is(err, trace.ErrNotBundle) {
		return nil, err
	}
	f, openErr := regular.Open(path)
	if openErr != nil {
		return nil, openErr
	}
	defer f.Close()
	s, none := snapshot.Read(f, path, snapshot.DefaultLimits)
	if none != nil {
		return nil, fmt.Errorf("%w; nor is it a memory snapshot of PyTorch: %w", err, none)
	}
	return plot.OfSnapshot(s, rank, filepath.Base(path))
}

// canWrite says what would keep a file from being written at a path.
func canWrite(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder: name a file", path)
	}
	f, err := regular.CreateBeside(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeWhole writes a file so that it is there whole or not at all.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	f, err := regular.CreateBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
