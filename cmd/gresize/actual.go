package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// tellLimit bounds the whole of `gresize actual add`.
const tellLimit = 30 * time.Second

func newActualCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actual",
		Short: "Tell what jobs really used",
		Args:  noArguments,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newActualAddCommand())
	return cmd
}

func newActualAddCommand() *cobra.Command {
	var configFile, url, munge, socket, key, memory, node, outcome string
	var job uint32
	var run int
	cmd := &cobra.Command{
		Use:   "add --job ID --gpu-memory SIZE",
		Short: "Tell gresized how much GPU memory a job took, from the site's own monitoring",
		Long: `Tell gresized how much GPU memory a job took, as the site's own monitoring knows it
(DCGM, a Prometheus exporter, an accounting of one's own). It counts like the report
of an Epilog: in "gresize report", for the margin of the next decisions, and as an
alarm where the job died on what it was given.

munge proves who is speaking, on any machine of the cluster: root and SlurmUser are
believed, nobody else. Each run of a job is told once.`,
		Example: `  gresize actual add --job 123 --gpu-memory 17.5GiB
  gresize actual add --job 123 --run 1 --node gpu07 --gpu-memory 38GiB --outcome out_of_memory`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			told := epilog.Told{Schema: epilog.SchemaTold, JobID: job, Node: node, Outcome: outcome}
			if job == 0 || memory == "" {
				return usageError(errors.New("actual add: give --job ID and --gpu-memory SIZE"))
			}
			bytes, err := parseSize(memory)
			if err != nil {
				return usageError(fmt.Errorf("--gpu-memory: %w", err))
			}
			told.PeakBytes = int64(min(bytes, math.MaxInt64))
			if cmd.Flags().Changed("run") {
				told.Run = &run
			}
			if err := told.Validate(); err != nil {
				return usageError(err)
			}
			sender, err := senderOf(cmd, configFile, url, munge, socket, key)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), tellLimit)
			defer cancel()
			body, err := sender.Post(ctx, epilog.PathTold, told)
			if err != nil {
				return err
			}
			var answer epilog.ToldAnswer
			if err := json.Unmarshal(body, &answer); err != nil {
				return fmt.Errorf("answer of gresized: %w", err)
			}
			says := fmt.Sprintf("job %d, run %d (%s): %s of GPU memory", answer.JobID, answer.Run, printable.Clip(answer.Outcome, 40), quantity.GiB(told.PeakBytes))
			if e := answer.EstimateBytes; e > 0 {
				says += fmt.Sprintf(", %+.1f %% of the upper end of the estimate, %s", 100*float64(told.PeakBytes-e)/float64(e), quantity.GiB(e))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), says)
			return err
		},
	}
	flags := cmd.Flags()
	flags.Uint32Var(&job, "job", 0, "the Slurm job `ID`; the latest job where Slurm has used it again")
	flags.StringVar(&memory, "gpu-memory", "", "`SIZE` that the GPU of the job held that held most, such as 17.5GiB")
	flags.IntVar(&run, "run", 0, "`N`: 0 is the first start of the job, 1 that after its first requeue (default: the latest)")
	flags.StringVar(&node, "node", "", "the `NAME` of the node of which it was measured (default: the whole job)")
	flags.StringVar(&outcome, "outcome", "", "how the run ended: `WORD` is one of "+strings.Join(epilog.Outcomes, ", ")+" (default: what Slurm and the log know)")
	flags.StringVar(&configFile, "config", "/etc/gresize/gresize.toml", "take gresized's address from this configuration `FILE`")
	flags.StringVar(&url, "url", "", "send to gresized at `URL` instead of the configured one (probe.url)")
	flags.StringVar(&munge, "munge", "/usr/bin/munge", "prove with this `PROGRAM` who is speaking")
	flags.StringVar(&socket, "munge-socket", "", "munged listens at `PATH`, if not where the configuration says")
	flags.StringVar(&key, "key", "", "prove it with the key in `FILE` in place of munge, if not with the one of the configuration (actuals.key)")
	return cmd
}

// senderOf finds gresized: on the command line, or by its configuration.
func senderOf(cmd *cobra.Command, file, url, munge, socket, key string) (epilog.Sender, error) {
	s := epilog.Sender{URL: url, Munge: munge, Socket: socket, Key: key}
	c, err := config.Read(file)
	switch {
	case (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) && !cmd.Flags().Changed("config"):
		defaults := config.Defaults()
		c = &defaults
	case err != nil && url == "":
		return s, err
	case err != nil:
		return s, nil
	}
	if s.URL == "" {
		s.URL = c.Probe.URL
	}
	if s.URL == "" {
		if _, port, err := net.SplitHostPort(c.Probe.Listen); err != nil || port == "0" {
			return s, fmt.Errorf("%s: probe.listen %q says no port: give --url", file, c.Probe.Listen)
		}
		s.URL = "http://" + c.Probe.Listen
	}
	if s.Socket == "" {
		s.Socket = c.Actuals.MungeSocket
	}
	if s.Key == "" && !cmd.Flags().Changed("munge") {
		s.Key = c.Actuals.Key
	}
	return s, nil
}
