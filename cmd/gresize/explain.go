package main

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
)

func newExplainCommand() *cobra.Command {
	var path logPath
	cmd := &cobra.Command{
		Use:   "explain JOBID",
		Short: "Explain one job to its owner, in plain words",
		Long: `One page to send to the owner of a job: what was asked for, what was found out and
how, what was changed and why, what the job really used, and how to opt out.
"gresize show JOBID" has every step and number.`,
		Args: oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := path.open(cmd)
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
	return cmd
}

// explain writes the owner's page.
func explain(w io.Writer, s decisionlog.Story) error {
	return writeLines(w, slices.Concat(logview.Explain(s), logview.OwnersWord(s.Job)))
}
