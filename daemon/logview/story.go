package logview

import (
	"fmt"
	"slices"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/daemon/report"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// StoryLine is one line of a story; a line without a name goes on with what the one before it is about.
type StoryLine struct{ Name, Text string }

// teller collects lines.
type teller struct{ lines []StoryLine }

func (t *teller) line(name, format string, args ...any) {
	t.lines = append(t.lines, StoryLine{name, printable.Clip(fmt.Sprintf(format, args...), MaxTextRunes)})
}

// Explain is one page for the owner of a job: what was asked for, what was found out and how, what was changed and why, and what the job really used.
func Explain(s decisionlog.Story) []StoryLine {
	t := &teller{}
	j := s.Job
	t.line("Job", "%s, \"%s\" of %s, submitted %s", JobID(j), j.Name, UserName(j.UID), j.SubmittedAt.Local().Format(time.DateTime))
	t.line("Requested", "%s", j.Asked)
	for i, e := range s.Estimates {
		rank, ok := e.Largest()
		how := fmt.Sprintf("your script was run for %d training steps on a virtual %s", e.Steps, e.GPU)
		for _, event := range s.Events {
			if event.Code == decision.CodeFromCache && i == len(s.Estimates)-1 {
				how = event.Detail
			}
		}
		if !ok || e.Confidence == estimator.Unknown {
			t.line("Measured", "%s; it is not known what it needs", how)
		} else {
			t.line("Measured", "%s: it needs %s of each GPU, at most %s (confidence: %s)", how, quantity.GiB(rank.ComfortableBytes), quantity.GiB(rank.ComfortableHighBytes), e.Confidence)
		}
		for n, reason := range e.Reasons {
			if n < 3 && reason.Detail != "" {
				t.line("", "caveat: %s", sentence(reason))
			}
		}
	}
	if n := len(s.Decisions); n > 0 {
		d := s.Decisions[n-1]
		t.line("Action", "%s", did(s, d))
		t.line("Why", "%s", d.Reason)
		if d.NeedBytes > 0 {
			t.line("", "%s of that is a margin for what an estimate cannot know%s", quantity.GiB(d.MarginBytes), margin(d.Margin))
		}
	} else {
		t.line("Action", "nothing: the job is as you asked (%s)", Spaced(j.State))
	}
	for _, a := range s.Actuals {
		t.line("Used", "%s", actual(a))
	}
	if len(s.Actuals) == 0 {
		t.line("Used", "not known (yet)")
	}
	for _, e := range s.Events {
		switch e.Code {
		case decision.CodeDied:
			after := "jobs like it are left alone from now on"
			if s.HasPlan() {
				after = "this script gets no plan again"
			}
			t.line("Failure", "%s; %s", e.Detail, after)
		case decision.CodeSlowWithPlan:
			t.line("Failure", "%s; this script gets no plan again", e.Detail)
		case decision.CodeNoPlan:
			t.line("", "%s", e.Detail)
		case decision.CodeRequeued, decision.CodeRequestRestored, decision.CodeRequeueRefused:
			t.line("", "%s %s", clock(e.At), e.Detail)
		}
	}
	return t.lines
}

// sentence is what a reason says to the owner of a job. A detail that is a list of names says nothing without what they are names of.
func sentence(r estimator.Reason) string {
	if r.Code == estimator.CodeWorkspaceBounded {
		return "what libraries take for themselves is from a model, for " + r.Detail
	}
	return r.Detail
}

// OwnersWord is how the owner of a job has the last word; how to start it, only while it is held.
func OwnersWord(j decisionlog.Job) []StoryLine {
	t := &teller{}
	t.line("Opt out", "to be left alone: sbatch --comment=gresize:off, or GRESIZE=off in the environment, or a line #GRESIZE off in the script")
	if j.SlurmJobID != 0 && j.Mode != string(jobs.Shadow) && slices.Contains(jobs.OpenStates, j.State) && j.State != jobs.StateUpdated && !j.Finished {
		t.line("", "to start the job at once, which is held: scontrol update JobId=%s StartTime=now", JobID(j))
	}
	return t.lines
}

// margin is the evidence of a margin.
func margin(m decisionlog.Margin) string {
	switch m.Kind {
	case decision.MarginCalibrated, decision.MarginFloor:
		return fmt.Sprintf(" (%s, from %s of %s, %d of which died; target %.2g %%)", m.Kind, quantity.Count(m.Actuals, "job"), m.Group, m.Died, 100*m.TargetFailureRate)
	case "":
		return ""
	}
	return " (" + m.Kind + ")"
}

// actual is what one source says of one run.
func actual(a decisionlog.Actual) string {
	text := map[decisionlog.Outcome]string{decisionlog.Completed: "completed", decisionlog.Failed: "failed", decisionlog.OutOfMemory: "ran out of GPU memory", decisionlog.NotKnown: "ended in a way that is not known"}[a.Outcome]
	if a.Run > 0 {
		text = fmt.Sprintf("run %d: %s", a.Run+1, text)
	}
	if a.PeakBytes > 0 {
		text += ", at most " + quantity.GiB(a.PeakBytes) + " of one GPU"
	}
	if a.HostPeakBytes > 0 {
		text += ", " + quantity.GiB(a.HostPeakBytes) + " of host memory"
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

// did is what became of a decision.
func did(s decisionlog.Story, d decisionlog.Decision) string {
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

// Facts is a job's story for an operator, with every number, without its steps.
func Facts(s decisionlog.Story) []StoryLine {
	t := &teller{}
	j := s.Job
	t.line("job", "%s  %s  of %s", JobID(j), j.Name, UserName(j.UID))
	t.line("submitted", "%s, %s mode", j.SubmittedAt.Local().Format(time.DateTime), j.Mode)
	t.line("asked", "%s", j.Asked)
	t.line("state", "%s", j.State)
	if j.NodeList != "" {
		t.line("node", "%s", j.NodeList)
	}
	for _, probe := range s.Probes {
		t.line("probe", "%s, Slurm job %s, asked for at %s%s", probe.Name, orDash(probe.SlurmJobID), clock(probe.RequestedAt), reported(probe))
	}
	for _, e := range s.Estimates {
		t.estimate(e)
	}
	for _, d := range s.Decisions {
		t.line("decision", "%s (%s)", d.Verdict, d.Code)
		t.line("", "%s", d.Reason)
		if d.NeedBytes > 0 {
			t.line("", "margin %s, need %s%s", quantity.GiB(d.MarginBytes), quantity.GiB(d.NeedBytes), margin(d.Margin))
		}
		if d.Verdict == decision.Rewrite {
			t.line("", "from %s", j.Asked)
			t.line("", "to   %s", d.Change.Result)
		}
	}
	for _, a := range s.Actuals {
		t.line("used", "%s", actual(a))
	}
	return t.lines
}

func (t *teller) estimate(e estimator.Estimate) {
	rank, ok := e.Largest()
	if !ok || e.Confidence == estimator.Unknown {
		t.line("estimate", "unknown, by %s on %s after %s", e.Estimator, e.GPU, quantity.Count(e.Steps, "step"))
	} else {
		t.line("estimate", "%s, at most %s, by %s on %s after %s, confidence %s", quantity.GiB(rank.ComfortableBytes), quantity.GiB(rank.ComfortableHighBytes),
			e.Estimator, e.GPU, quantity.Count(e.Steps, "step"), e.Confidence)
		t.line("", "PyTorch: %s allocated, %s reserved; outside of it: %s", quantity.GiB(rank.PeakAllocatedBytes), quantity.GiB(rank.PeakReservedBytes), quantity.GiB(rank.OutsideBytes))
	}
	for _, reason := range e.Reasons {
		t.line("", "%s", reason.Words())
	}
	v := e.Versions
	t.line("", "gresize %s, Python %s, PyTorch %s, CUDA %s, cuDNN %s; %.1f s", unknownIfEmpty(v.Gresize), unknownIfEmpty(v.Python), unknownIfEmpty(v.Torch),
		unknownIfEmpty(v.CUDA), unknownIfEmpty(v.CuDNN), e.WallSeconds)
}

func reported(p decisionlog.Probe) string {
	if p.ReportedAt.IsZero() {
		return ", no report"
	}
	return fmt.Sprintf(", reported %.1f s later with %d bytes", p.ReportedAt.Sub(p.RequestedAt).Seconds(), p.BundleBytes)
}

// Step is one transition of a job.
type Step struct {
	Clock string
	// After is how long after the submission it was, such as "+1.250 s".
	After, State, Code, Detail string
}

// Steps are the transitions of a job.
func Steps(s decisionlog.Story) []Step {
	steps := make([]Step, len(s.Events))
	for i, e := range s.Events {
		steps[i] = Step{Clock: clock(e.At), After: fmt.Sprintf("%+.3f s", e.At.Sub(s.Job.SubmittedAt).Seconds()),
			State: printable.Clip(e.State, 40), Code: printable.Clip(e.Code, 80), Detail: printable.Clip(e.Detail, MaxTextRunes)}
	}
	return steps
}
