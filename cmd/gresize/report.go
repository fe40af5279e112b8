package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/config"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/report"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// schemaReport names the JSON form of `gresize report --json`.
const schemaReport = "gresize.report/1"

func newReportCommand() *cobra.Command {
	var path logPath
	var filter jobFilter
	var asJSON, asCSV bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Sum up: GPU-hours asked for, needed and freed",
		Long: `Sum up what was decided: the GPU-hours that were requested, that would have sufficed,
and that are freed, by kind of card; how many jobs were changed, right, too small
or not known, and why; how many died of GPU memory or would have; the error of the
estimates; and what these figures do not say.`,
		Example: "  gresize report --since 30d\n  gresize report --since 2026-11-01 --until 2026-12-01 --csv",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			span, groups, err := log.Groups(cmd.Context(), chosen)
			if err != nil {
				return err
			}
			truth, err := log.Truth(cmd.Context(), chosen)
			if err != nil {
				return err
			}
			sum := report.Make(span, groups, truth, path.siteWords())
			switch {
			case asJSON:
				encoder := json.NewEncoder(harmlessJSON{cmd.OutOrStdout()})
				encoder.SetIndent("", "  ")
				return encoder.Encode(struct {
					Schema string    `json:"schema"`
					First  time.Time `json:"first_submitted,omitzero"`
					Last   time.Time `json:"last_submitted,omitzero"`
					report.Report
				}{schemaReport, span.First, span.Last, sum})
			case asCSV:
				return writeReportCSV(cmd.OutOrStdout(), sum)
			case span.Jobs == 0:
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "No jobs match.")
				return err
			}
			arrays := ""
			if span.Tasks > span.Jobs {
				arrays = fmt.Sprintf(" (%d with the tasks of arrays)", span.Tasks)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s%s of %s, submitted from %s to %s\n", quantity.Count(span.Jobs, "job"), arrays, quantity.Count(span.Users, "user"), span.First.Local().Format(time.DateOnly), span.Last.Local().Format(time.DateOnly))
			return writeReport(cmd.OutOrStdout(), sum)
		},
	}
	path.addFlags(cmd)
	filter.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV, for a spreadsheet")
	return cmd
}

// siteWords are the words with which the configuration tells cards apart; none when it cannot be read, and every feature counts then.
func (p *logPath) siteWords() map[string]bool {
	c, err := config.Read(p.config)
	if err != nil {
		return nil
	}
	return c.Words()
}

func writeReport(w io.Writer, r report.Report) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\nGPU-hours by time limit\n")
	fmt.Fprintln(table, "CARD\tTASKS ASKED\tNEEDED\tHOURS ASKED\tNEEDED\tFREED\tADDED\tJOBS WITHOUT LIMIT\t")
	for _, c := range append(slices.Clone(r.Cards), r.Total) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t\n", printable.Clip(c.Kind, 40), c.TasksAsked, c.TasksNeeded, c.GPUHoursAsked, c.GPUHoursNeeded, c.Freed(), c.GPUHoursAdded, c.WithoutLimit)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if about := r.AboutFreed(); about != "" {
		fmt.Fprintln(w, about)
	}
	if _, err := fmt.Fprintln(w, "\nJobs"); err != nil {
		return err
	}
	for _, o := range logview.Outcomes(r) {
		fmt.Fprintf(w, "%8d  %s (%.1f %%)\n", o.Jobs, o.Text, o.Percent)
		for _, code := range o.Codes {
			if _, err := fmt.Fprintf(w, "%12d  %s\n", code.N, code.Text); err != nil {
				return err
			}
		}
	}
	if err := writeTruth(w, r.Actuals); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nWhat these figures do not say")
	for _, sentence := range r.NotKnown {
		if _, err := fmt.Fprintln(w, "  - "+sentence); err != nil {
			return err
		}
	}
	return nil
}

// writeTruth says how jobs ended and the error of the estimates, as far as it is known.
func writeTruth(w io.Writer, t decisionlog.Truth) error {
	fmt.Fprintln(w, "\nHow it went")
	for _, line := range logview.HowItWent(t) {
		if _, err := fmt.Fprintf(w, "%8d  %s\n", line.N, line.Text); err != nil {
			return err
		}
	}
	if len(t.Errors) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\nWhat was measured against the upper end of the estimate\n")
	fmt.Fprintln(table, "CARD\tESTIMATOR\tCONFIDENCE\tRUNS\tUSED MORE\tMEAN\tWORST\t")
	for _, e := range t.Errors {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%+.1f %%\t%+.1f %%\t\n", printable.Clip(e.GPU, 40), printable.Clip(e.Estimator, 40), e.Confidence, e.Runs, e.Over, e.MeanPercent, e.WorstPercent)
	}
	return table.Flush()
}

// reportColumns are the columns of the CSV form. They stay; more may be added at the end. What a section has no value for is empty.
// rowDiedAfterRewrite is the name of a row, and not a code.
const rowDiedAfterRewrite = "died_after_rewrite"

var reportColumns = []string{"section", "name", "code", "jobs", "gpu_hours_asked", "gpu_hours_needed", "gpu_hours_freed", "jobs_without_limit", "tasks", "tasks_needed",
	"runs_over", "mean_error_percent", "worst_error_percent", "gpu_hours_added"}

func writeReportCSV(w io.Writer, r report.Report) error {
	table := newCSV(w)
	if err := table.row(reportColumns...); err != nil {
		return err
	}
	row := func(section, name, code string, values map[string]string) error {
		cells := []string{section, name, code}
		for _, column := range reportColumns[len(cells):] {
			cells = append(cells, values[column])
		}
		return table.row(cells...)
	}
	number := func(h float64) string { return strconv.FormatFloat(h, 'f', 2, 64) }
	count := func(n int64) string { return strconv.FormatInt(n, 10) }
	for i, c := range append(slices.Clone(r.Cards), r.Total) {
		section := "card"
		if i == len(r.Cards) {
			section = "total"
		}
		if err := row(section, printable.Clip(c.Kind, logview.MaxTextRunes), "", map[string]string{"jobs": count(c.Asked), "tasks": count(c.TasksAsked), "tasks_needed": count(c.TasksNeeded),
			"gpu_hours_asked": number(c.GPUHoursAsked), "gpu_hours_needed": number(c.GPUHoursNeeded), "gpu_hours_freed": number(c.GPUHoursFreed), "gpu_hours_added": number(c.GPUHoursAdded), "jobs_without_limit": count(c.WithoutLimit)}); err != nil {
			return err
		}
	}
	for _, line := range []struct {
		name string
		n    int64
	}{{"known", r.Actuals.Known}, {"died_of_memory", r.Actuals.Died}, {rowDiedAfterRewrite, r.Actuals.DiedAfterRewrite}, {"run_again", r.Actuals.RanAgain},
		{"shadow_measured", r.Actuals.ShadowMeasured}, {"shadow_over_need", r.Actuals.WouldHaveDied}, {"from_cache", r.Actuals.FromCache}} {
		if err := row("actual", line.name, "", map[string]string{"jobs": count(line.n)}); err != nil {
			return err
		}
	}
	for _, line := range r.Outcomes {
		if err := row("outcome", string(line.Outcome), line.Code, map[string]string{"jobs": count(line.Jobs), "tasks": count(line.Tasks), "gpu_hours_asked": number(line.GPUHours)}); err != nil {
			return err
		}
	}
	for _, e := range r.Actuals.Errors {
		if err := row("error", printable.Clip(e.GPU, logview.MaxTextRunes), printable.Clip(e.Estimator, logview.MaxTextRunes)+" "+e.Confidence, map[string]string{"jobs": count(e.Runs), "runs_over": count(e.Over),
			"mean_error_percent": number(e.MeanPercent), "worst_error_percent": number(e.WorstPercent)}); err != nil {
			return err
		}
	}
	return table.flush()
}
