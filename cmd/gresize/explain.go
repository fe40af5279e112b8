package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/internal/printable"
)

func newExplainCommand() *cobra.Command {
	var path logPath
	var url, munge, socket string
	cmd := &cobra.Command{
		Use:   "explain JOBID",
		Short: "Explain one of your jobs, in plain words",
		Long: `One page for the owner of a job: what was asked for, what was found out and how,
what was changed and why, what the job really used, and how to opt out.

Whoever may read the decision log (root and SlurmUser) is told of every job. Others
are told of their own: gresized is asked, and munge proves who is asking, on any
machine of the cluster. "gresize show JOBID" has every step and number.`,
		Example: "  gresize explain 4711\n  gresize explain 4711 --url http://controller:8917",
		Args:    oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := path.open(cmd)
			if err != nil && path.db == "" && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
				sender, err := senderOf(cmd, path.config, url, munge, socket, "")
				if err != nil {
					return err
				}
				sender.Key = "" // a user has none
				return askAbout(cmd, sender, args[0])
			}
			if err != nil {
				return err
			}
			defer log.Close()
			story, err := storyOf(cmd, log, args[0])
			if err != nil {
				return err
			}
			return explain(cmd.OutOrStdout(), story)
		},
	}
	path.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&url, "url", "", "ask gresized at `URL` instead of the configured one (probe.url)")
	flags.StringVar(&munge, "munge", "/usr/bin/munge", "prove with this `PROGRAM` who is asking")
	flags.StringVar(&socket, "munge-socket", "", "munged listens at `PATH`, if not where the configuration says")
	return cmd
}

// explain writes the owner's page.
func explain(w io.Writer, s decisionlog.Story) error {
	return writeLines(w, slices.Concat(logview.Explain(s), logview.OwnersWord(s.Job)))
}

// askAbout has gresized explain a job of whoever runs this.
func askAbout(cmd *cobra.Command, sender epilog.Sender, job string) error {
	id, err := strconv.ParseUint(job, 10, 32)
	if err != nil || id == 0 {
		return usageError(fmt.Errorf("explain: %q is no job id, as squeue shows it", job))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), tellLimit)
	defer cancel()
	body, err := sender.Post(ctx, epilog.PathExplain, epilog.Wanted{Schema: epilog.SchemaExplain, JobID: uint32(id)})
	if err != nil {
		return fmt.Errorf("%w; gresized was asked at %s, and --url names another address", err, sender.URL)
	}
	var told epilog.Explained
	if err := json.Unmarshal(body, &told); err != nil {
		return fmt.Errorf("answer of gresized: %w", err)
	}
	lines := make([]logview.StoryLine, 0, len(told.Lines))
	for _, l := range told.Lines {
		lines = append(lines, logview.StoryLine{Name: printable.Clip(l.Name, 40), Text: printable.Clip(l.Text, logview.MaxTextRunes)})
	}
	return writeLines(cmd.OutOrStdout(), lines)
}
