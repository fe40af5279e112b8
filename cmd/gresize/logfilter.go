package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
)

// jobFilter are the flags that choose jobs of the decision log.
type jobFilter struct {
	logview.Choice
	partition string
}

func (f *jobFilter) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.User, "user", "u", "", "only jobs of `USER`, a name or a number")
	cmd.Flags().StringVarP(&f.partition, "partition", "p", "", "only jobs that were submitted to `PARTITION`; \"\" for those that named none")
	cmd.Flags().StringVar(&f.Verdict, "verdict", "", "only jobs with this `VERDICT`: rewrite, keep or leave-alone; oom: those that died of GPU memory")
	cmd.Flags().StringVar(&f.State, "state", "", "only jobs in this `STATE` (docs/decisionlog.md), or open: those that gresized still tracks")
	cmd.Flags().StringVarP(&f.Since, "since", "S", "", "only jobs submitted at `TIME` or later: 2026-11-28, 2026-11-28T14:30, or 36h, 7d for so long ago")
	cmd.Flags().StringVarP(&f.Until, "until", "E", "", "only jobs submitted before `TIME`, written like --since")
}

// read turns the flags into a filter; every error is one of usage.
func (f *jobFilter) read(cmd *cobra.Command, now time.Time) (decisionlog.Filter, error) {
	choice := f.Choice
	if cmd.Flags().Changed("partition") {
		choice.Partition = &f.partition
	}
	chosen, err := choice.Filter("--", now)
	if err != nil {
		return chosen, usageError(err)
	}
	return chosen, nil
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
