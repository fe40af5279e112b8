package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
)

// schemaShow names the JSON form of `gresize show --json`.
const schemaShow = "gresize.show/1"

func newShowCommand() *cobra.Command {
	var path logPath
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show JOBID",
		Short: "Tell one job's whole story",
		Long: `Tell what was asked for, what the probe and the estimate found, what was decided
and why, and when each step was taken. Instead of the Slurm job id, the token
from the job's AdminComment may be given.`,
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
			if asJSON {
				encoder := json.NewEncoder(harmlessJSON{cmd.OutOrStdout()})
				encoder.SetIndent("", "  ")
				return encoder.Encode(struct {
					Schema string `json:"schema"`
					decisionlog.Story
				}{schemaShow, story})
			}
			return writeStory(cmd.OutOrStdout(), story)
		},
	}
	path.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// storyOf is the story of a Slurm job id or of a token.
func storyOf(cmd *cobra.Command, log *decisionlog.Log, name string) (decisionlog.Story, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return log.Story(cmd.Context(), uint32(id))
	}
	return log.StoryByToken(cmd.Context(), name)
}

func oneArgument(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usageError(fmt.Errorf("%s: name a job by its job id", cmd.Name()))
	case 1:
		return nil
	}
	return usageError(fmt.Errorf("%s: one job id at a time, not %q", cmd.Name(), args))
}

// writeLines writes a story line by line.
func writeLines(w io.Writer, lines []logview.StoryLine) error {
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%-10s %s\n", l.Name, l.Text); err != nil {
			return err
		}
	}
	return nil
}

func writeStory(w io.Writer, s decisionlog.Story) error {
	lines := append(logview.Facts(s), logview.StoryLine{Name: "steps"})
	for _, step := range logview.Steps(s) {
		code := ""
		if step.Code != "" {
			code = " [" + step.Code + "]"
		}
		lines = append(lines, logview.StoryLine{Text: fmt.Sprintf("%s  %10s  %-10s%s %s", step.Clock, step.After, step.State, code, step.Detail)})
	}
	return writeLines(w, append(lines, logview.StoryLine{Name: "identity", Text: fmt.Sprintf("token %s, script sha256 %.16s…, fingerprint %.16s…", s.Job.Token, s.Job.ScriptSHA256, s.Job.Fingerprint)}))
}
