package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

const (
	shortestTopInterval = 200 * time.Millisecond
	maxTopJobs          = 1000
)

func newTopCommand() *cobra.Command {
	var path logPath
	interval := 2 * time.Second
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the jobs that gresized holds or watches now",
		Long: `Show the jobs that gresized holds or watches now, the newest first: what they ask
for, how far they are, since when, and how long they are held at most. On a terminal the
view is drawn again until Ctrl-C; elsewhere it is printed once.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < shortestTopInterval {
				return usageError(fmt.Errorf("--interval: %s is less than %s", interval, shortestTopInterval))
			}
			log, err := path.open(cmd)
			if err != nil {
				return err
			}
			defer log.Close()
			screen, ok := windowOf(cmd.OutOrStdout())
			if !ok {
				return drawTop(cmd.Context(), cmd.OutOrStdout(), log, time.Now())
			}
			return watchTop(cmd.Context(), screen, log, interval)
		},
	}
	path.addFlags(cmd)
	cmd.Flags().DurationVar(&interval, "interval", interval, "draw again after so much `TIME`")
	return cmd
}

// windowOf is the terminal behind a writer, if there is one.
func windowOf(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	if !ok {
		return nil, false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return f, err == nil
}

// watchTop draws until the context ends, on the terminal's other page, so that what stood there before stands there again.
func watchTop(ctx context.Context, screen *os.File, log *decisionlog.Log, interval time.Duration) error {
	const otherPage, back, redraw = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[2J"
	fmt.Fprint(screen, otherPage)
	defer fmt.Fprint(screen, back)
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		var page bytes.Buffer
		if err := drawTop(ctx, &page, log, time.Now()); errors.Is(err, context.Canceled) {
			return nil
		} else if err != nil {
			return err
		}
		rows, columns := 24, 80
		if size, err := unix.IoctlGetWinsize(int(screen.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > 0 && size.Col > 0 {
			rows, columns = int(size.Row), int(size.Col)
		}
		fmt.Fprint(screen, redraw, cutTo(page.String(), rows, columns))
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// cutTo is the upper left part of a text that a window holds.
func cutTo(text string, rows, columns int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > rows {
		lines = append(lines[:rows-1], fmt.Sprintf("… %d more", len(lines)-rows+1))
	}
	for i, line := range lines {
		if runes := []rune(line); len(runes) > columns {
			lines[i] = string(runes[:columns])
		}
	}
	return strings.Join(lines, "\r\n")
}

// recently is how far back top looks for jobs that were not held since probes fail.
const recently = 15 * time.Minute

// drawProbesFailing says that jobs pass untried, and why the last of them did.
func drawProbesFailing(ctx context.Context, w io.Writer, log *decisionlog.Log, now time.Time) error {
	lines, err := log.List(ctx, maxTopJobs, decisionlog.Filter{Verdict: decision.LeaveAlone, Since: now.Add(-recently)})
	if err != nil {
		return err
	}
	n, last := 0, decisionlog.Line{}
	for _, l := range lines {
		if l.Decision != nil && l.Decision.Code == decision.CodeProbesFailing {
			if n++; n == 1 {
				last = l
			}
		}
	}
	if n == 0 {
		return nil
	}
	_, err = fmt.Fprintf(w, "Probes fail: %s in the last %s passed untried, the last at %s: %s\n", quantity.Count(n, "job"), recently, last.Job.SubmittedAt.Local().Format(time.TimeOnly),
		printable.Clip(last.Decision.Reason, 300))
	return err
}

func drawTop(ctx context.Context, w io.Writer, log *decisionlog.Log, now time.Time) error {
	if err := drawProbesFailing(ctx, w, log, now); err != nil {
		return err
	}
	lines, err := log.List(ctx, maxTopJobs, decisionlog.Filter{Open: true})
	if err != nil {
		return err
	}
	states := map[string]int{}
	for _, l := range lines {
		states[l.Job.State]++
	}
	var parts []string
	for state, n := range states {
		parts = append(parts, fmt.Sprintf("%d %s", n, strings.ReplaceAll(state, "_", " ")))
	}
	slices.Sort(parts)
	if len(lines) == 0 {
		_, err := fmt.Fprintf(w, "gresize  %s  no open jobs\n", now.Format(time.DateTime))
		return err
	}
	count := fmt.Sprint(len(lines))
	if len(lines) == maxTopJobs {
		count += " or more"
	}
	fmt.Fprintf(w, "gresize  %s  %s open: %s\n\n", now.Format(time.DateTime), count, strings.Join(parts, ", "))
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "JOB\tUSER\tNAME\tPARTITION\tASKED\tSTATE\tFOR\tHELD FOR\tNEEDS\tVERDICT")
	var names logview.Names
	for _, l := range lines {
		j := l.Job
		held, needs, verdict, partition := "-", "-", "-", "-"
		if left := j.HoldUntil.Sub(now); left > 0 {
			held = left.Round(time.Second).String()
		}
		if j.Partition != "" {
			partition = printable.Clip(j.Partition, 16)
		}
		if d := l.Decision; d != nil {
			verdict = strings.ReplaceAll(string(d.Verdict), "_", " ")
			if d.NeedBytes > 0 {
				needs = quantity.GiB(d.NeedBytes)
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", logview.JobID(j), printable.Clip(names.Of(j.UID), 16), printable.Clip(j.Name, 20), partition, logview.Short(j.Asked),
			strings.ReplaceAll(j.State, "_", " "), max(0, now.Sub(j.UpdatedAt)).Round(time.Second), held, needs, verdict)
	}
	return table.Flush()
}
