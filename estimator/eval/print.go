package eval

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/internal/quantity"
)

const mebibyte = 1 << 20

// Print writes the comparison as tables in Markdown: the constants, the scores, and the largest errors of each estimator.
func (c *Comparable) Print(w io.Writer, largest int) error {
	var b bytes.Buffer
	c.printConstants(&b)
	c.printScores(&b)
	scores := c.Scores()
	for _, s := range scores {
		if s.Group == AllGroups && largest > 0 {
			c.printLargest(&b, s.Estimator, largest)
		}
	}
	_, err := b.WriteTo(w)
	return err
}

func (c *Comparable) printConstants(b *bytes.Buffer) {
	if len(c.Constants) == 0 {
		return
	}
	b.WriteString("| machine | estimator | constant | from rows | smallest to largest |\n|---|---|---:|---:|---:|\n")
	for _, k := range c.Constants {
		added := fmt.Sprintf("%d MiB", k.Bytes/mebibyte)
		if !k.Sound() {
			added = fmt.Sprintf("none (%s): its own outside", k.why())
		}
		fmt.Fprintf(b, "| %s | %s | %s | %d | %d to %d MiB |\n", cell(k.Machine), k.Estimator, added, k.Rows, k.LowBytes/mebibyte, k.HighBytes/mebibyte)
	}
	b.WriteByte('\n')
}

func (c *Comparable) printScores(b *bytes.Buffer) {
	b.WriteString("| rows | estimator | asked | answered | median error | mean | 95th percentile | largest | too low | by over 5 % | below the upper end | out of memory: foreseen, falsely | " +
		"failure probability | conserved, GiB a run | (as published) | seconds a row | (estimator alone) |\n|---|---|" + "---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, s := range c.Scores() {
		fmt.Fprintf(b, "| %s | %s | %d | %d | %s | %s | %s | %s | %s | %s | %s | %d of %d, %d | %s | %s | (%s) | %s | (%s) |\n", cell(s.Group), cell(s.Estimator), s.Rows, s.Answered,
			percent(s.MedianError, 2), percent(s.MeanError, 1), percent(s.P95Error, 1), percent(s.LargestError, 1), percent(s.Under, 0), percent(s.Under5, 1), percent(s.Covered, 0),
			s.OOMForeseen, s.OOMRows, s.FalseOOM, percent(s.Failure, 1), number(s.ConservedGiB, 2), number(s.ConservedAsPublishedGiB, 2), number(s.Seconds, 1), number(s.EstimateSeconds, 3))
	}
}

func (c *Comparable) printLargest(b *bytes.Buffer, name string, n int) {
	cases := c.Largest(name, n)
	if len(cases) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s: the largest errors\n\n| row | measured | estimated | error |\n|---|---:|---:|---:|\n", name)
	for _, x := range cases {
		fmt.Fprintf(b, "| %s | %d MiB | %d MiB | %+.1f %% |\n", cell(x.Row.String()), x.Row.MeasuredBytes/mebibyte, x.EstimateBytes/mebibyte, 100*x.Error())
	}
}

// Left says what of a table is in no score, and why.
func Left(rows []Row, answers *Answers) string {
	crashes, fits, open := 0, 0, 0
	names := answers.Estimators()
	for _, row := range rows {
		switch {
		case row.Truth == Crash:
			crashes++
		case row.Fit:
			fits++
		case !slices.ContainsFunc(names, func(name string) bool { _, asked := answers.Find(row.Workload, name); return asked }):
			open++
		}
	}
	return fmt.Sprintf("%s: %s and %d that constants are taken from are in no score, %d %s not asked about", quantity.Count(len(rows), "row"), quantity.Count(crashes, "crash", "crashes"), fits, open, quantity.Word(open, "was", "were"))
}

// cell is a text as a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func number(v float64, digits int) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, v)
}
