package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/replay"
	"github.com/gresize/gresize/daemon/report"
	sitetable "github.com/gresize/gresize/daemon/site"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

// schemaReplay names the JSON form of `gresize replay --json`.
const schemaReplay = "gresize.replay/1"

// assumedSlurm is the release for jobs that were logged before it was recorded, unless --slurm-version says another.
const assumedSlurm = "24.11.0"

// move is a number of jobs that were decided in one way and would be in another.
type move struct {
	WasVerdict decision.Verdict `json:"was_verdict"`
	WasCode    string           `json:"was_code"`
	Verdict    decision.Verdict `json:"verdict"`
	Code       string           `json:"code"`
	Jobs       int64            `json:"jobs"`
}

// replayedJob is a job that would have been decided differently.
type replayedJob struct {
	ID         int64            `json:"id"`
	SlurmJobID uint32           `json:"slurm_job_id,omitempty"`
	UID        uint32           `json:"uid"`
	Asked      request.Request  `json:"asked"`
	WasVerdict decision.Verdict `json:"was_verdict"`
	WasCode    string           `json:"was_code"`
	WasNow     request.Request  `json:"was_now,omitzero"`
	replay.Result
}

// replaySum is what a replay found.
type replaySum struct {
	Schema string `json:"schema"`
	With   string `json:"with"`
	Jobs   int64  `json:"jobs"`
	// WithoutEstimate were never estimated, so no table could decide them. NotKnown would be tried on a card of which the log has no estimate.
	WithoutEstimate int64 `json:"jobs_without_estimate"`
	NotKnown        int64 `json:"jobs_not_known"`
	// Untried counts those by that card.
	Untried map[string]int64 `json:"jobs_not_known_by_card,omitempty"`
	// AssumedVersion were decided for a release of Slurm that is not in the log.
	AssumedVersion int64         `json:"jobs_with_assumed_slurm_version"`
	Different      int64         `json:"jobs_decided_differently"`
	Moves          []move        `json:"moves"`
	Before         []report.Card `json:"cards_as_logged"`
	After          []report.Card `json:"cards_with_new_table"`
	Changes        []replayedJob `json:"changes"`
}

func newReplayCommand() *cobra.Command {
	var path logPath
	var filter jobFilter
	var asJSON, asCSV bool
	var with, slurm string
	var limit int
	cmd := &cobra.Command{
		Use:   "replay --with FILE",
		Short: "Decide logged jobs again with another configuration",
		Long: `Decide the jobs of the log again with the [policy], [gpu], [[target]] and [shard]
of another gresize.toml, from the estimates that the log has: what would that
table have done? Slurm is not asked, no probe is made and nothing is changed.

A job that would be tried on a card of which the log has no estimate is counted
as not known. Jobs that were never estimated stay as they are.`,
		Example: "  gresize replay --with /etc/gresize/new.toml --since 30d\n  gresize replay --with new.toml --csv > changes.csv",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneFormat(asJSON, asCSV); err != nil {
				return err
			}
			if with == "" {
				return usageError(fmt.Errorf("--with FILE: name the configuration to decide with"))
			}
			if limit < 0 || limit > maxLogLines {
				return usageError(fmt.Errorf("--limit: %d is not between 0 and %d", limit, maxLogLines))
			}
			version, err := release.Parse(slurm)
			if err != nil {
				return usageError(fmt.Errorf("--slurm-version: %w", err))
			}
			chosen, err := filter.read(cmd, time.Now())
			if err != nil {
				return err
			}
			table, impossible, err := sitetable.Load(with)
			if err != nil {
				return err
			}
			for _, fault := range impossible {
				fmt.Fprintln(cmd.ErrOrStderr(), "gresize: warning:", fault)
			}
			log, err := path.open(cmd)
			if err != nil {
				return err
			}
			defer log.Close()
			player := replay.Player{Rules: table.Rules(), ProfileOf: table.ProfileOf, Version: version}
			if asCSV {
				return replayCSV(cmd, log, chosen, player)
			}
			sum, err := replayAll(cmd, log, chosen, player, limit, path.siteWords(), table.Config.Words())
			if err != nil {
				return err
			}
			sum.With = with
			if asJSON {
				encoder := json.NewEncoder(harmlessJSON{cmd.OutOrStdout()})
				encoder.SetIndent("", "  ")
				return encoder.Encode(sum)
			}
			return writeReplay(cmd.OutOrStdout(), sum)
		},
	}
	path.addFlags(cmd)
	filter.addFlags(cmd)
	cmd.Flags().StringVar(&with, "with", "", "decide with the configuration in `FILE`")
	cmd.Flags().StringVar(&slurm, "slurm-version", assumedSlurm, "where the log does not know the release of a job's Slurm, take this `RELEASE` of Slurm")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print every job that would be decided differently as CSV")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "list at most `N` of the jobs that would be decided differently")
	return cmd
}

// again decides a logged job; ok is false when it has no estimate to decide by.
func again(player replay.Player, line decisionlog.Line, estimates []estimator.Estimate) (job replayedJob, different, ok bool) {
	job = replayedJob{ID: line.Job.ID, SlurmJobID: line.Job.SlurmJobID, UID: line.Job.UID, Asked: line.Job.Asked}
	if d := line.Decision; d != nil {
		job.WasVerdict, job.WasCode = d.Verdict, d.Code
		if d.Verdict == decision.Rewrite {
			job.WasNow = d.Change.Result
		}
	}
	if len(estimates) == 0 {
		return job, false, false
	}
	var margin decisionlog.Margin
	if line.Decision != nil {
		margin = line.Decision.Margin
	}
	job.Result = player.Decide(line.Job, estimates, margin)
	different = job.Verdict != job.WasVerdict || job.Verdict == decision.Rewrite && !request.Equivalent(job.Now, job.WasNow)
	return job, different, true
}

func replayAll(cmd *cobra.Command, log *decisionlog.Log, chosen decisionlog.Filter, player replay.Player, limit int, oldWords, newWords map[string]bool) (replaySum, error) {
	sum := replaySum{Schema: schemaReplay, Moves: []move{}, Changes: []replayedJob{}}
	moves := map[move]int64{}
	type key struct {
		asked, now request.Request
		verdict    decision.Verdict
		code       string
	}
	before, after := map[key]*decisionlog.Group{}, map[key]*decisionlog.Group{}
	add := func(to map[key]*decisionlog.Group, k key, job decisionlog.Job) {
		g := to[k]
		if g == nil {
			// What was carried out does not matter here: both sides count as in shadow mode.
			g = &decisionlog.Group{Asked: k.asked, Now: k.now, Mode: string(jobs.Shadow), State: jobs.StateShadowed, Verdict: k.verdict, Code: k.code}
			to[k] = g
		}
		g.Jobs++
		g.Tasks += job.Tasks
		switch {
		case job.TimeLimitMinutes > 0:
			g.LimitedJobs++
			g.LimitMinutes += job.TimeLimitMinutes * job.Tasks
		case job.TimeLimitMinutes < 0:
			g.UnlimitedJobs++
		}
	}
	err := log.EachEstimated(cmd.Context(), chosen, func(line decisionlog.Line, estimates []estimator.Estimate) error {
		sum.Jobs++
		job, different, ok := again(player, line, estimates)
		if !ok {
			sum.WithoutEstimate++
			return nil
		}
		if job.AssumedVersion {
			sum.AssumedVersion++
		}
		if job.Code == decision.CodeNoEstimate {
			sum.NotKnown++
			if sum.Untried == nil {
				sum.Untried = map[string]int64{}
			}
			sum.Untried[job.Untried]++
		}
		moves[move{WasVerdict: job.WasVerdict, WasCode: job.WasCode, Verdict: job.Verdict, Code: job.Code}]++
		add(before, key{job.Asked, job.WasNow, job.WasVerdict, job.WasCode}, line.Job)
		add(after, key{job.Asked, job.Now, job.Verdict, job.Code}, line.Job)
		if different {
			sum.Different++
			if len(sum.Changes) < limit {
				sum.Changes = append(sum.Changes, job)
			}
		}
		return nil
	})
	if err != nil {
		return sum, err
	}
	for m, n := range moves {
		m.Jobs = n
		sum.Moves = append(sum.Moves, m)
	}
	slices.SortFunc(sum.Moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.WasCode, b.WasCode), cmp.Compare(a.Code, b.Code), cmp.Compare(a.WasVerdict, b.WasVerdict), cmp.Compare(a.Verdict, b.Verdict))
	})
	// Without the words of the table that decided then, every feature counts.
	words := maps.Clone(oldWords)
	if words != nil {
		maps.Copy(words, newWords)
	}
	cards := func(groups map[key]*decisionlog.Group) []report.Card {
		all := make([]decisionlog.Group, 0, len(groups))
		for _, g := range groups {
			all = append(all, *g)
		}
		r := report.Make(decisionlog.Span{Jobs: sum.Jobs - sum.WithoutEstimate}, all, decisionlog.Truth{}, words)
		return append(r.Cards, r.Total)
	}
	sum.Before, sum.After = cards(before), cards(after)
	return sum, nil
}

func writeReplay(w io.Writer, sum replaySum) error {
	fmt.Fprintf(w, "%s with an estimate, decided again with %s: %d differently\n\n", quantity.Count(sum.Jobs-sum.WithoutEstimate, "job"), printable.Clip(sum.With, 200), sum.Different)
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "WAS\t\tWOULD BE\t\tJOBS")
	for _, m := range sum.Moves {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", spaced(m.WasVerdict), dash(m.WasCode), spaced(m.Verdict), m.Code, m.Jobs)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprint(w, "\nGPU-hours by time limit\n")
	numbers := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(numbers, "CARD\tASKED\tNEEDED, AS LOGGED\tNEEDED, WITH THE FILE\t")
	needed := func(cards []report.Card, kind string) float64 {
		if i := slices.IndexFunc(cards, func(c report.Card) bool { return c.Kind == kind }); i >= 0 {
			return cards[i].GPUHoursNeeded
		}
		return 0
	}
	var kinds []string
	for _, c := range append(slices.Clone(sum.After), sum.Before...) { // each ends with its total
		if !slices.Contains(kinds, c.Kind) {
			kinds = append(kinds, c.Kind)
		}
	}
	kinds = append(slices.DeleteFunc(kinds, func(kind string) bool { return kind == report.TotalKind }), report.TotalKind)
	for _, kind := range kinds {
		asked := 0.0
		if i := slices.IndexFunc(sum.Before, func(c report.Card) bool { return c.Kind == kind }); i >= 0 {
			asked = sum.Before[i].GPUHoursAsked
		}
		fmt.Fprintf(numbers, "%s\t%.1f\t%.1f\t%.1f\t\n", printable.Clip(kind, 40), asked, needed(sum.Before, kind), needed(sum.After, kind))
	}
	if err := numbers.Flush(); err != nil {
		return err
	}
	if len(sum.Changes) > 0 {
		fmt.Fprintln(w)
		changes := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(changes, "JOB\tASKED\tWAS\tWOULD BE\tWHY")
		for _, c := range sum.Changes {
			fmt.Fprintf(changes, "%s\t%s\t%s\t%s\t%s\n", logview.JobID(decisionlog.Job{SlurmJobID: c.SlurmJobID}), logview.Short(c.Asked), decided(c.WasVerdict, c.WasNow), decided(c.Verdict, c.Now), c.why())
		}
		if err := changes.Flush(); err != nil {
			return err
		}
		if more := sum.Different - int64(len(sum.Changes)); more > 0 {
			fmt.Fprintf(w, "and %d more: --limit, or --csv for all\n", more)
		}
	}
	fmt.Fprintln(w, "\nWhat this does not say")
	fmt.Fprintf(w, "  - %d of %s %s no estimate, and no table could decide %s.\n", sum.WithoutEstimate, quantity.Count(sum.Jobs, "job"),
		quantity.Word(sum.WithoutEstimate, "has", "have"), quantity.Word(sum.WithoutEstimate, "it", "them"))
	if sum.NotKnown > 0 {
		fmt.Fprintf(w, "  - %s would be tried on a card of which the log has no estimate: what then would come of %s is not known.\n", quantity.Count(sum.NotKnown, "job"),
			quantity.Word(sum.NotKnown, "it", "them"))
		for _, card := range slices.Sorted(maps.Keys(sum.Untried)) {
			fmt.Fprintf(w, "    %s: %d. In shadow mode with the file gresized tries such jobs on it; gresize estimate --gpu %s -- COMMAND tries one now.\n", printable.Clip(card, 40), sum.Untried[card], printable.Clip(card, 40))
		}
	}
	if sum.AssumedVersion > 0 {
		fmt.Fprintf(w, "  - Of %s the release of Slurm is not in the log, and was assumed (--slurm-version).\n", quantity.Count(sum.AssumedVersion, "job"))
	}
	_, err := fmt.Fprintln(w, "  - Whether the jobs would have run well, or sooner, is not known: hours are time limits, and queues were not simulated.")
	return err
}

func spaced(v decision.Verdict) string { return dash(strings.ReplaceAll(string(v), "_", " ")) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return printable.Clip(s, 60)
}

// decided is a verdict, or what a rewrite asks for.
func decided(v decision.Verdict, now request.Request) string {
	if v == decision.Rewrite {
		return logview.Short(now)
	}
	return spaced(v)
}

// why is the code, with the card where that is what is missing.
func (j *replayedJob) why() string {
	if j.Untried == "" {
		return j.Code
	}
	return j.Code + ": " + printable.Clip(j.Untried, 40)
}

func replayCSV(cmd *cobra.Command, log *decisionlog.Log, chosen decisionlog.Filter, player replay.Player) error {
	table := newCSV(cmd.OutOrStdout())
	if err := table.row("id", "slurm_job_id", "uid", "asked", "was_verdict", "was_code", "was_now", "verdict", "code", "now", "reason"); err != nil {
		return err
	}
	text := func(v decision.Verdict, r request.Request) string {
		if v != decision.Rewrite {
			return ""
		}
		return printable.Clip(r.String(), logview.MaxTextRunes)
	}
	err := log.EachEstimated(cmd.Context(), chosen, func(line decisionlog.Line, estimates []estimator.Estimate) error {
		job, different, ok := again(player, line, estimates)
		if !ok || !different {
			return nil
		}
		return table.row(strconv.FormatInt(job.ID, 10), emptyIfZero(int64(job.SlurmJobID)), strconv.FormatUint(uint64(job.UID), 10), printable.Clip(job.Asked.String(), logview.MaxTextRunes),
			string(job.WasVerdict), job.WasCode, text(job.WasVerdict, job.WasNow), string(job.Verdict), job.Code, text(job.Verdict, job.Now), printable.Clip(job.Reason, logview.MaxTextRunes))
	})
	if err != nil {
		return err
	}
	return table.flush()
}
