package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/slurm/request"
)

// schemaLog names the JSON form of `gresize log --json`.
const schemaLog = "gresize.log/1"

// maxLogLines bounds what one call lists.
const maxLogLines = 100_000

// logPath is where the decision log is: named on the command line, or by the daemon's configuration.
type logPath struct{ db, config string }

func (p *logPath) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.db, "db", "", "read the decision log at `FILE` instead of the configured one")
	cmd.Flags().StringVar(&p.config, "config", "/etc/gresize/gresize.toml", "take the place of the decision log from this configuration `FILE`")
}

func (p *logPath) open(cmd *cobra.Command) (*decisionlog.Log, error) {
	path := p.db
	if path == "" {
		c, err := config.Read(p.config)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config"):
			path = config.Defaults().Log.Path
		case err != nil:
			return nil, err
		default:
			path = c.Log.Path
		}
	}
	log, err := decisionlog.OpenReadOnly(cmd.Context(), path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; the log is for SlurmUser and root", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; has gresized run here? --db names another file", err)
	}
	return log, err
}

func newLogCommand() *cobra.Command {
	var path logPath
	var asJSON bool
	var limit int
	var owner string
	cmd := &cobra.Command{
		Use:   "log",
		Short: "List what was decided about jobs",
		Long: `List the jobs that gresized has heard of, the newest first: what was asked for,
what was found out, and what was done. "gresize show JOBID" tells one job's story.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxLogLines {
				return usageError(fmt.Errorf("--limit: %d is not between 1 and %d", limit, maxLogLines))
			}
			uid, err := userID(owner)
			if err != nil {
				return usageError(err)
			}
			log, err := path.open(cmd)
			if err != nil {
				return err
			}
			defer log.Close()
			lines, err := log.List(cmd.Context(), limit, uid)
			if err != nil {
				return err
			}
			if asJSON {
				return writeLogJSON(cmd.OutOrStdout(), lines)
			}
			return writeLogTable(cmd.OutOrStdout(), lines)
		},
	}
	path.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "list at most `N` jobs")
	cmd.Flags().StringVarP(&owner, "user", "u", "", "list only the jobs of `USER`, a name or a number")
	return cmd
}

func userID(owner string) (*uint32, error) {
	if owner == "" {
		return nil, nil
	}
	text := owner
	if u, err := user.Lookup(owner); err == nil {
		text = u.Uid
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--user: there is no user %q", owner)
	}
	uid := uint32(n)
	return &uid, nil
}

func writeLogJSON(w io.Writer, lines []decisionlog.Line) error {
	if lines == nil {
		lines = []decisionlog.Line{}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Schema string             `json:"schema"`
		Jobs   []decisionlog.Line `json:"jobs"`
	}{schemaLog, lines})
}

func writeLogTable(w io.Writer, lines []decisionlog.Line) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(w, "No jobs yet.")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "SUBMITTED\tJOB\tNAME\tASKED\tNEEDS\tCONFIDENCE\tVERDICT\tNOW\tSTATE\tWHY")
	for _, l := range lines {
		verdict, why, now, needs := "-", "-", "-", "-"
		if d := l.Decision; d != nil {
			verdict, why = strings.ReplaceAll(string(d.Verdict), "_", " "), d.Code
			if d.Verdict == decisionlog.Rewrite {
				now = short(d.Change.Result)
			}
			if d.NeedBytes > 0 {
				needs = gibibytes(d.NeedBytes)
			}
		}
		confidence := l.Confidence
		if confidence == "" {
			confidence = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Job.SubmittedAt.Local().Format(time.DateTime), jobID(l.Job), printable(l.Job.Name, 20), short(l.Job.Asked),
			needs, confidence, verdict, now, strings.ReplaceAll(l.Job.State, "_", " "), why)
	}
	return table.Flush()
}

// short is a request in as few letters as tell it from others.
func short(r request.Request) string {
	var parts []string
	for _, ask := range r.Asks() {
		word := ask.Name
		if ask.Type != "" {
			word += ":" + ask.Type
		}
		parts = append(parts, fmt.Sprintf("%s:%d", word, ask.Count))
	}
	if r.Features != "" {
		parts = append(parts, r.Features)
	}
	if len(parts) == 0 {
		return "-"
	}
	return printable(strings.Join(parts, " "), 40)
}

func jobID(j decisionlog.Job) string {
	if j.SlurmJobID == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(j.SlurmJobID), 10)
}

// printable keeps what users chose from moving the cursor of whoever reads it.
func printable(s string, limit int) string {
	clean := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if runes := []rune(clean); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return clean
}

func gibibytes(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }
