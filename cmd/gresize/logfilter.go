package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
)

// jobFilter are the flags that choose jobs of the decision log.
type jobFilter struct{ owner, partition, verdict, since, until string }

func (f *jobFilter) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.owner, "user", "u", "", "only jobs of `USER`, a name or a number")
	cmd.Flags().StringVarP(&f.partition, "partition", "p", "", "only jobs that were submitted to `PARTITION`; \"\" for those that named none")
	cmd.Flags().StringVar(&f.verdict, "verdict", "", "only jobs with this `VERDICT`: rewrite, keep or leave-alone; oom: those that died of GPU memory")
	cmd.Flags().StringVarP(&f.since, "since", "S", "", "only jobs submitted at `TIME` or later: 2026-11-28, 2026-11-28T14:30, or 36h, 7d for so long ago")
	cmd.Flags().StringVarP(&f.until, "until", "E", "", "only jobs submitted before `TIME`, written like --since")
}

// read turns the flags into a filter; every error is one of usage.
func (f *jobFilter) read(cmd *cobra.Command, now time.Time) (decisionlog.Filter, error) {
	var out decisionlog.Filter
	var err error
	if out.UID, err = userID(f.owner); err != nil {
		return out, usageError(err)
	}
	if cmd.Flags().Changed("partition") {
		out.Partition = &f.partition
	}
	switch f.verdict {
	case "":
	case "oom":
		out.OutOfMemory = true
	default:
		out.Verdict = decisionlog.Verdict(strings.NewReplacer("-", "_", " ", "_").Replace(f.verdict))
		switch out.Verdict {
		case decisionlog.Rewrite, decisionlog.Keep, decisionlog.LeaveAlone:
		default:
			return out, usageError(fmt.Errorf("--verdict: %.40q is none of rewrite, keep, leave-alone, oom", f.verdict))
		}
	}
	if out.Since, err = timeOf("--since", f.since, now); err != nil {
		return out, err
	}
	if out.Until, err = timeOf("--until", f.until, now); err != nil {
		return out, err
	}
	if !out.Since.IsZero() && !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, usageError(fmt.Errorf("--since %s is not before --until %s", f.since, f.until))
	}
	return out, nil
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

// timeLayouts are read in the local time zone unless the text names another.
var timeLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly}

// maxAgo is longer than any log is kept.
const maxAgo = 100 * 365 * 24 * time.Hour

// timeOf reads a point in time, or how long ago it was. The empty text is no time.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			// The log knows milliseconds since 1970, and its first job came later.
			if t.Year() < 1970 || t.Year() > 9999 {
				break
			}
			return t, nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 && ago < maxAgo {
		return now.Add(-ago), nil
	}
	return time.Time{}, usageError(fmt.Errorf("%s: %.40q is no time: write 2026-11-28, 2026-11-28T14:30, or 36h or 7d for so long ago", flag, text))
}

// csvRows writes a table that a spreadsheet may open: a cell that it would take for a formula begins with an apostrophe, for users choose the names of jobs.
type csvRows struct{ w *csv.Writer }

func newCSV(w io.Writer) csvRows { return csvRows{csv.NewWriter(w)} }

func (c csvRows) row(cells ...string) error {
	safe := make([]string, len(cells))
	for i, cell := range cells {
		safe[i] = cell
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			if _, err := strconv.ParseFloat(cell, 64); err != nil {
				safe[i] = "'" + cell
			}
		}
	}
	return c.w.Write(safe)
}

func (c csvRows) flush() error {
	c.w.Flush()
	return c.w.Error()
}

// oneFormat refuses two forms at once.
func oneFormat(asJSON, asCSV bool) error {
	if asJSON && asCSV {
		return usageError(fmt.Errorf("--json and --csv: one of them"))
	}
	return nil
}
