package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/report"
	"github.com/gresize/gresize/estimator"
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

// marginWords is the evidence of a margin.
func marginWords(m decisionlog.Margin) string {
	switch m.Kind {
	case "calibrated", "floor":
		return fmt.Sprintf(" (%s, from %d jobs of %s, %d of which died; target %.2g %%)", m.Kind, m.Actuals, m.Group, m.Died, 100*m.TargetFailureRate)
	case "":
		return ""
	}
	return " (" + m.Kind + ")"
}

// actualWords is what one source says of one run.
func actualWords(a decisionlog.Actual) string {
	text := map[decisionlog.Outcome]string{decisionlog.Completed: "completed", decisionlog.Failed: "failed", decisionlog.OutOfMemory: "ran out of GPU memory", decisionlog.NotKnown: "ended in a way that is not known"}[a.Outcome]
	if a.Run > 0 {
		text = fmt.Sprintf("run %d: %s", a.Run+1, text)
	}
	if a.PeakBytes > 0 {
		text += ", at most " + gibibytes(a.PeakBytes) + " of one GPU"
	}
	if a.HostPeakBytes > 0 {
		text += ", " + gibibytes(a.HostPeakBytes) + " of host memory"
	}
	if a.Node != "" {
		text += " on " + a.Node
	}
	if a.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *a.ExitCode)
	}
	if a.ElapsedGPUSeconds != nil {
		text += fmt.Sprintf(", %.2f GPU-hours", float64(*a.ElapsedGPUSeconds)/3600)
	}
	text += " (" + string(a.Source) + ")"
	if a.Detail != "" {
		text += ": " + a.Detail
	}
	return text
}

// explain writes the owner's page.
func explain(w io.Writer, s decisionlog.Story) error {
	p := &printer{w: w}
	j := s.Job
	p.line("Job", "%s, \"%s\" of %s, submitted %s", jobID(j), j.Name, userName(j.UID), j.SubmittedAt.Local().Format(time.DateTime))
	p.line("You asked", "%s", j.Asked)
	for i, e := range s.Estimates {
		rank, ok := e.Largest()
		how := fmt.Sprintf("your script was run for %d training steps on a virtual %s", e.Steps, e.GPU)
		for _, event := range s.Events {
			if event.Code == "answered_from_cache" && i == len(s.Estimates)-1 {
				how = event.Detail
			}
		}
		if !ok || e.Confidence == estimator.Unknown {
			p.line("We looked", "%s; what it needs could not be told", how)
		} else {
			p.line("We looked", "%s: it needs %s of each GPU, at most %s (confidence: %s)", how, gibibytes(rank.ComfortableBytes), gibibytes(rank.ComfortableHighBytes), e.Confidence)
		}
		for n, reason := range e.Reasons {
			if n < 3 && reason.Detail != "" {
				p.line("", "not certain: %s", reason.Detail)
			}
		}
	}
	if n := len(s.Decisions); n > 0 {
		d := s.Decisions[n-1]
		p.line("We did", "%s", didWords(s, d))
		p.line("Why", "%s", d.Reason)
		if d.NeedBytes > 0 {
			p.line("", "%s of that is a margin for what an estimate cannot know%s", gibibytes(d.MarginBytes), marginWords(d.Margin))
		}
	} else {
		p.line("We did", "nothing: the job is as you asked (%s)", j.State)
	}
	for _, a := range s.Actuals {
		p.line("It used", "%s", actualWords(a))
	}
	if len(s.Actuals) == 0 {
		p.line("It used", "not known (yet)")
	}
	for _, e := range s.Events {
		switch e.Code {
		case "out_of_memory_after_rewrite":
			p.line("We are", "sorry: %s. Jobs like it are left alone from now on.", e.Detail)
		case "requeued", "request_restored", "requeue_refused":
			p.line("", "%s %s", clock(e.At), e.Detail)
		}
	}
	p.line("Your word", "to be left alone: sbatch --comment=gresize:off, or GRESIZE=off in the environment, or a line #GRESIZE off in the script;")
	p.line("", "to start a job that is held: scontrol update JobId=%s StartTime=now", jobID(j))
	return p.err
}

// didWords is what became of a decision.
func didWords(s decisionlog.Story, d decisionlog.Decision) string {
	switch report.OutcomeOf(s.Job.Mode, s.Job.State, d.Verdict, d.Code) {
	case report.Changed:
		return fmt.Sprintf("the job asks for %s instead", d.Change.Result)
	case report.WouldChange:
		return fmt.Sprintf("nothing (this site only watches): it would ask for %s", d.Change.Result)
	case report.NotCarriedOut:
		return "nothing: a smaller request was found, and was not made or was taken back"
	case report.Right:
		return "nothing: you asked for the smallest card that holds it"
	case report.Open:
		return "not decided yet"
	}
	return "nothing: the job is as you asked"
}
