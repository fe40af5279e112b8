package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/spf13/cobra"
)

func newGPUCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Show the GPU models that estimates can be made for",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGPUListCommand(), newGPUShowCommand(), newGPUCaptureCommand())
	return cmd
}

func newGPUListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the known GPU models, the smallest first",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := gpu.List()
			if asJSON {
				return printJSON(cmd, all)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tMEMORY\tCONTEXT\tCOMPUTE\tCUDA NAME")
			for _, p := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.ID, quantity.GiB(p.Total.Bytes), mib(p.Context.Bytes), p.ComputeCapability, p.Name)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the profiles as JSON")
	return cmd
}

func newGPUShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one GPU model, with the source of each figure",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("gpu show: one name wanted, %d given", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := gpu.Load(args[0])
			if err != nil {
				return usageError(err)
			}
			if asJSON {
				return printJSON(cmd, p)
			}
			return printProfile(cmd, p)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the profile as JSON, the form that --gpu FILE.json reads")
	return cmd
}

func printProfile(cmd *cobra.Command, p *gpu.Profile) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\t%s (%s)\t\n", p.ID, p.Name, p.Architecture)
	fmt.Fprintf(w, "also called\t%s\t\n", strings.Join(p.Aliases, ", "))
	fmt.Fprintf(w, "memory\t%s (%d bytes)\t%s\n", quantity.GiB(p.Total.Bytes), p.Total.Bytes, p.Total.Source)
	fmt.Fprintf(w, "CUDA context\t%s, at most %s\t%s\n", mib(p.Context.Bytes), mib(p.Context.High()), p.Context.Source)
	for _, l := range p.Libraries {
		fmt.Fprintf(w, "first use of %s\t%s, at most %s\t%s\n", l.Library, mib(l.Bytes), mib(l.High()), l.Source)
	}
	fmt.Fprintf(w, "multiprocessors\t%d, compute capability %s\t%s\n", p.Multiprocessors(), p.ComputeCapability, p.AttributesSource)
	kinds := make([]string, 0, len(p.PeakFLOPS))
	for k := range p.PeakFLOPS {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		fmt.Fprintf(w, "peak %s\t%.4g TFLOP/s\t%s\n", k, p.PeakFLOPS[k]/1e12, p.Source)
	}
	fmt.Fprintf(w, "bandwidth\t%.4g GB/s\t%s\n", p.MemoryBandwidthBytesPerSecond/1e9, p.Source)
	if p.MIG != nil {
		fmt.Fprintf(w, "MIG slice\t%s of %s\t\n", p.MIG.Profile, p.MIG.Parent)
	}
	return w.Flush()
}

func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) != 0 {
		err := fmt.Errorf("%s knows no %q", cmd.CommandPath(), args[0])
		cmd.SuggestionsMinimumDistance = 2
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			err = fmt.Errorf("%w: did you mean %s?", err, strings.Join(near, " or "))
		}
		return usageError(err)
	}
	return nil
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
