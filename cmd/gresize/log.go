package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/internal/printable"
)

// schemaLog names the JSON form of `gresize log --json`.
const schemaLog = "gresize.log/1"

// maxLogLines bounds what one call lists.
const maxLogLines = 100_000

// logPath is where the decision log is: named on the command line, or by the daemon's configuration.
type logPath struct{ db, config string }

func (p *logPath) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.db, "db", "", "read the decision log at `FILE` instead of the configured one")
	cmd.Flags().StringVar(&p.config, "config", "/etc/gresize/gresize.toml", "read where the decision log is from this configuration `FILE`")
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
		return nil, fmt.Errorf("%w; the log is for root and SlurmUser: sudo, or ask the administrator (or the page of decisions, where the site has one)", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; has gresized run here? --db names another file", err)
	case errors.Is(err, decisionlog.ErrNoLog):
		return nil, fmt.Errorf("%w; --db names another file", err)
	}
	return log, err
}

func newLogCommand() *cobra.Command {
	var path logPath
	var filter jobFilter
	var asJSON, asCSV bool
	var limit int
	var before int64
	cmd := &cobra.Command{
		Use:   "log",
		Short: "List what was decided about jobs",
		Long: `List the jobs that gresized has heard of, the newest first: what was asked for,
what was found out, and what was done. "gresize show JOBID" tells one job's story,
"gresize report" sums up, and "gresize export" writes all of it.

For the next page give --before the "id" of the last job (--json, --csv).`,
		Example: `  gresize log --user alice --since 7d --verdict rewrite
  gresize log --partition gpu --since 2026-11-01 --until 2026-12-01 --csv`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > maxLogLines {
				return usageError(fmt.Errorf("--limit: %d is not between 1 and %d", limit, maxLogLines))
			}
			if err := oneFormat(asJSON, asCSV); err != nil {
				return err
			}
			chosen, err := filter.read(cmd, time.Now())
			if err != nil {
				return err
			}
			log, err := path.open(cmd)
			if err != nil {
				return err
			}
			defer log.Close()
			if cmd.Flags().Changed("before") {
				if chosen.Before, err = log.PlaceOf(cmd.Context(), before); err != nil {
					return fmt.Errorf("--before: %w", err)
				}
			}
			lines, err := log.List(cmd.Context(), limit, chosen)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return writeLogJSON(cmd.OutOrStdout(), lines)
			case asCSV:
				return writeLogCSV(cmd.OutOrStdout(), lines)
			}
			return writeLogTable(cmd.OutOrStdout(), lines, chosen == decisionlog.Filter{})
		},
	}
	path.addFlags(cmd)
	filter.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV, for a spreadsheet")
	cmd.Flags().IntVarP(&limit, "limit", "n", 50, "list at most `N` jobs")
	cmd.Flags().Int64Var(&before, "before", 0, "list the jobs that come after the one with this `ID` in the log")
	return cmd
}

func writeLogJSON(w io.Writer, lines []decisionlog.Line) error {
	if lines == nil {
		lines = []decisionlog.Line{}
	}
	encoder := json.NewEncoder(harmlessJSON{w})
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Schema string             `json:"schema"`
		Jobs   []decisionlog.Line `json:"jobs"`
	}{schemaLog, lines})
}

// logColumns are the columns of the CSV form. They stay; more may be added at the end.
var logColumns = []string{"id", "slurm_job_id", "submitted", "user", "uid", "job_name", "partition", "account", "qos", "mode", "state", "asked", "time_limit_minutes",
	"verdict", "code", "now", "confidence", "need_gib", "margin_gib", "reason", "node_list"}

func writeLogCSV(w io.Writer, lines []decisionlog.Line) error {
	table := newCSV(w)
	if err := table.row(logColumns...); err != nil {
		return err
	}
	var names logview.Names
	for _, l := range lines {
		if err := table.row(csvLine(l, &names)...); err != nil {
			return err
		}
	}
	return table.flush()
}

func csvLine(l decisionlog.Line, names *logview.Names) []string {
	j := l.Job
	var verdict, code, now, need, margin, reason string
	if d := l.Decision; d != nil {
		verdict, code, reason = string(d.Verdict), d.Code, d.Reason
		if d.Verdict == decision.Rewrite {
			now = d.Change.Result.String()
		}
		if d.NeedBytes > 0 {
			need, margin = plainGiB(d.NeedBytes), plainGiB(d.MarginBytes)
		}
	}
	return []string{strconv.FormatInt(j.ID, 10), emptyIfZero(int64(j.SlurmJobID)), j.SubmittedAt.UTC().Format(time.RFC3339), names.Of(j.UID), strconv.FormatUint(uint64(j.UID), 10),
		printable.Clip(j.Name, logview.MaxTextRunes), printable.Clip(j.Partition, logview.MaxTextRunes), printable.Clip(j.Account, logview.MaxTextRunes), printable.Clip(j.QOS, logview.MaxTextRunes), j.Mode, j.State, printable.Clip(j.Asked.String(), logview.MaxTextRunes),
		emptyIfZero(j.TimeLimitMinutes), verdict, code, printable.Clip(now, logview.MaxTextRunes), l.Confidence, need, margin, printable.Clip(reason, logview.MaxTextRunes), printable.Clip(j.NodeList, logview.MaxTextRunes)}
}

func emptyIfZero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func plainGiB(bytes int64) string { return strconv.FormatFloat(float64(bytes)/(1<<30), 'f', 3, 64) }

func writeLogTable(w io.Writer, lines []decisionlog.Line, all bool) error {
	if len(lines) == 0 {
		text := "No jobs match."
		if all {
			text = "No jobs yet."
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "SUBMITTED\tJOB\tUSER\tNAME\tASKED\tNEEDS\tCONFIDENCE\tVERDICT\tNOW\tSTATE\tWHY")
	var names logview.Names
	for _, l := range lines {
		r := logview.RowOf(l, &names)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Submitted, r.JobID, r.User, r.Name, r.Asked, r.Needs, r.Confidence, r.Verdict, r.Now, r.State, r.Why)
	}
	return table.Flush()
}
