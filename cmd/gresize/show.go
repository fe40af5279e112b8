package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator"
)

// schemaShow names the JSON form of `gresize show --json`.
const schemaShow = "gresize.show/1"

// maxTextRunes bounds a line of a story; the longest reasons are sentences of some hundred letters.
const maxTextRunes = 2000

func newShowCommand() *cobra.Command {
	var path logPath
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show JOBID",
		Short: "Tell one job's whole story",
		Long: `Tell what was asked for, what the probe and the estimate found, what was decided
and why, and when each step was taken. Instead of the Slurm job id, the token
from the job's AdminComment may be given.`,
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
			if asJSON {
				encoder := json.NewEncoder(harmlessJSON{cmd.OutOrStdout()})
				encoder.SetIndent("", "  ")
				return encoder.Encode(struct {
					Schema string `json:"schema"`
					decisionlog.Story
				}{schemaShow, story})
			}
			return writeStory(cmd.OutOrStdout(), story)
		},
	}
	path.addFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// storyOf is the story of a Slurm job id or of a token.
func storyOf(cmd *cobra.Command, log *decisionlog.Log, name string) (decisionlog.Story, error) {
	if id, err := strconv.ParseUint(name, 10, 32); err == nil {
		return log.Story(cmd.Context(), uint32(id))
	}
	return log.StoryByToken(cmd.Context(), name)
}

func oneArgument(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError(fmt.Errorf("one job id is wanted, not %d", len(args)))
	}
	return nil
}

// printer writes lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(name, format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%-10s %s\n", name, printable(fmt.Sprintf(format, args...), maxTextRunes))
	}
}

func writeStory(w io.Writer, s decisionlog.Story) error {
	p := &printer{w: w}
	j := s.Job
	p.line("job", "%s  %s  of %s", jobID(j), j.Name, userName(j.UID))
	p.line("submitted", "%s, %s mode", j.SubmittedAt.Local().Format(time.DateTime), j.Mode)
	p.line("asked", "%s", j.Asked)
	p.line("state", "%s", j.State)
	if j.NodeList != "" {
		p.line("node", "%s", j.NodeList)
	}
	for _, probe := range s.Probes {
		p.line("probe", "%s, Slurm job %s, asked for at %s%s", probe.Name, orDash(probe.SlurmJobID), clock(probe.RequestedAt), reported(probe))
	}
	for _, e := range s.Estimates {
		writeEstimate(p, e)
	}
	for _, d := range s.Decisions {
		p.line("decision", "%s (%s)", d.Verdict, d.Code)
		p.line("", "%s", d.Reason)
		if d.NeedBytes > 0 {
			p.line("", "margin %s, need %s%s", gibibytes(d.MarginBytes), gibibytes(d.NeedBytes), marginWords(d.Margin))
		}
		if d.Verdict == decisionlog.Rewrite {
			p.line("", "from %s", j.Asked)
			p.line("", "to   %s", d.Change.Result)
		}
	}
	for _, a := range s.Actuals {
		p.line("used", "%s", actualWords(a))
	}
	p.line("steps", "")
	start := j.SubmittedAt
	for _, e := range s.Events {
		code := ""
		if e.Code != "" {
			code = " [" + e.Code + "]"
		}
		p.line("", "%s  %+8.3f s  %-10s%s %s", clock(e.At), e.At.Sub(start).Seconds(), e.State, code, e.Detail)
	}
	p.line("identity", "token %s, script sha256 %.16s…, fingerprint %.16s…", j.Token, j.ScriptSHA256, j.Fingerprint)
	return p.err
}

func writeEstimate(p *printer, e estimator.Estimate) {
	rank, ok := e.Largest()
	if !ok || e.Confidence == estimator.Unknown {
		p.line("estimate", "unknown, by %s on %s after %d steps", e.Estimator, e.GPU, e.Steps)
	} else {
		p.line("estimate", "%s, at most %s, by %s on %s after %d steps, confidence %s", gibibytes(rank.ComfortableBytes), gibibytes(rank.ComfortableHighBytes),
			e.Estimator, e.GPU, e.Steps, e.Confidence)
		p.line("", "PyTorch: %s allocated, %s reserved; outside of it: %s", gibibytes(rank.PeakAllocatedBytes), gibibytes(rank.PeakReservedBytes), gibibytes(rank.OutsideBytes))
	}
	for _, reason := range e.Reasons {
		p.line("", "%s: %s", reason.Code, reason.Detail)
	}
	v := e.Versions
	p.line("", "gresize %s, Python %s, PyTorch %s, CUDA %s, cuDNN %s; %.1f s", unknownIfEmpty(v.Gresize), unknownIfEmpty(v.Python), unknownIfEmpty(v.Torch),
		unknownIfEmpty(v.CUDA), unknownIfEmpty(v.CuDNN), e.WallSeconds)
}

func reported(p decisionlog.Probe) string {
	if p.ReportedAt.IsZero() {
		return ", no report"
	}
	return fmt.Sprintf(", reported %.1f s later with %d bytes", p.ReportedAt.Sub(p.RequestedAt).Seconds(), p.BundleBytes)
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

func orDash(id uint32) string {
	if id == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(id), 10)
}

func unknownIfEmpty(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func userName(uid uint32) string {
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		return u.Username
	}
	return "uid " + strconv.FormatUint(uint64(uid), 10)
}
