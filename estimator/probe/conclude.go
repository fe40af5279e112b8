package probe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/internal/regular"
)

const (
	maxScriptText       = 1 << 20
	maxShimLogLines     = 256
	maxShimLogLineBytes = 64 << 10
	lastWordsBytes      = 400
)

// manifest holds what is known whatever the virtual GPU left.
func (r *run) manifest() trace.Manifest {
	command := r.options.Command
	if len(r.options.Script) > 0 {
		command = append([]string{"script"}, command...)
	}
	p := r.options.GPU
	mode := r.options.Recording.RunMode()
	if mode == trace.ModeVGPU {
		mode = "" // what a bundle means that names none
	}
	return trace.Manifest{
		Schema:   trace.Schema,
		Versions: estimator.Versions{Gresize: r.options.Version},
		GPU:      trace.GPU{ID: p.ID, Name: p.Name, CapacityBytes: r.options.CapacityBytes, Devices: r.options.Devices},
		Mode:     mode,
		Command:  trace.ClipCommand(command), Libraries: []string{}, UnansweredSymbols: []trace.Symbol{}, Reasons: []estimator.Reason{},
		Notes: []string{}, Calls: []trace.Call{}, Sandboxed: !r.options.NoSandbox,
	}
}

// notRun is the result where the command could not be started.
func (r *run) notRun(cause error) Result {
	m := r.manifest()
	m.Outcome = trace.NotRun
	m.Reasons = append(m.Reasons, reason(estimator.CodeNoSandbox, cause.Error()))
	return Result{
		Bundle:   &trace.Bundle{Manifest: m, Ranks: []trace.Rank{}},
		Estimate: estimator.NewUnknown(r.options.Engine.Name(), r.options.GPU.ID, m.Reasons...),
	}
}

// conclude reads what the run left and names its outcome.
func (r *run) conclude() (Result, error) {
	m := r.manifest()
	m.ExitStatus, m.Signal = r.exit.Code&0xff, r.exit.Signal
	m.HostPeakBytes = r.exit.HostPeakBytes
	m.Timings = trace.Timings{SandboxMillis: float64(r.exit.Setup.Microseconds()) / 1000, RunMillis: float64(r.ranFor.Microseconds()) / 1000}
	m.Notes = append(m.Notes, r.exit.Notes...)
	m.Calls = readShimLog(filepath.Join(r.reportDir(), sandbox.ShimLog))

	reports, err := r.options.Engine.Read(r.reportDir())
	if err != nil {
		m.Reasons = append(m.Reasons, reason(estimator.CodeBundleInvalid, "the virtual GPU's reports: "+err.Error()))
		reports = Reports{TorchSeen: true}
	}
	for _, place := range reports.NotRun {
		m.Notes = append(m.Notes, "not run: "+place+", which may take memory")
	}
	m.Reasons = append(m.Reasons, reports.Reasons...)
	m.Steps, m.RankCount = reports.Steps, len(reports.Ranks)
	m.ValuesReadBack = reports.ValuesReadBack
	m.Libraries = append(m.Libraries, reports.Libraries...)
	m.UnansweredSymbols = append(m.UnansweredSymbols, reports.UnansweredSymbols...)
	m.Versions = reports.Versions
	m.Versions.Gresize = r.options.Version
	m.Outcome = r.outcome(reports)
	if why, ok := r.explain(m.Outcome, reports); ok {
		m.Reasons = append(m.Reasons, why)
	}
	if m.Outcome == trace.Crashed || m.Outcome == trace.Stopped && m.ExitStatus != 0 {
		m.Reasons = append(m.Reasons, r.blame(reports)...)
	}
	m.Reasons = append(m.Reasons, r.unwritten()...)
	switch m.Outcome {
	case trace.Completed, trace.Stopped, trace.NoStep: // who is ended in its preparations may have come to it
		if len(reports.Ranks) == 0 && reports.TorchSeen && reports.Versions.JAX == "" {
			m.Reasons = append(m.Reasons, reason(estimator.CodeNoGPUUsed, `PyTorch ran on the CPU alone: a program uses a GPU for what it moves to the device "cuda"`))
		} else if len(reports.Ranks) == 0 && reports.TorchSeen {
			m.Reasons = append(m.Reasons, reason(estimator.CodeNoGPUUsed, "JAX ran on the CPU alone"))
		}
	}
	if m.ExitStatus != 0 || m.Outcome != trace.Stopped && m.Outcome != trace.Completed {
		m.OutputTail = r.output.text()
	}
	b := &trace.Bundle{Manifest: m, Ranks: reports.Ranks}
	if b.Ranks == nil {
		b.Ranks = []trace.Rank{}
	}
	if err := b.Validate(); err != nil {
		return Result{}, fmt.Errorf("probe: make the bundle: %w", err)
	}
	return Result{Bundle: b, Estimate: evaluate(r.options.Engine, b, r.options.GPU)}, nil
}

// evaluate makes the estimate that belongs to a bundle: from the virtual GPU's
// record where the run went far enough, and an unknown with its reasons otherwise.
func evaluate(engine Engine, b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	m := &b.Manifest
	e := estimator.NewUnknown(engine.Name(), p.ID, m.Reasons...)
	switch m.Outcome {
	case trace.Stopped, trace.Completed, trace.OutOfMemory, trace.Timeout, trace.NoStep:
		if len(b.Ranks) > 0 {
			e = engine.Estimate(b, p)
		}
	}
	if m.Outcome == trace.Stopped && m.ExitStatus != 0 {
		e.Confidence = e.Confidence.AtMost(estimator.High)
	}
	e.Versions, e.Steps, e.HostPeakBytes = m.Versions, m.Steps, m.HostPeakBytes
	e.WallSeconds = (m.Timings.SandboxMillis + m.Timings.RunMillis) / 1000
	e.Reasons = withoutRepeats(e.Reasons)
	if err := e.Validate(); err != nil {
		u := estimator.NewUnknown(engine.Name(), p.ID, reason(estimator.CodeBundleInvalid, "the estimate: "+err.Error()))
		u.Versions, u.HostPeakBytes, u.WallSeconds = m.Versions, m.HostPeakBytes, e.WallSeconds
		return u
	}
	return e
}

// withoutRepeats keeps the first reason of each code, except for those of which each names something else.
func withoutRepeats(reasons []estimator.Reason) []estimator.Reason {
	seen := map[string]bool{}
	kept := []estimator.Reason{}
	failed := ""
	for _, r := range reasons {
		if r.Code == estimator.CodeScriptFailed {
			failed = r.Detail
		}
	}
	for _, r := range reasons {
		// That the command failed says it already, with the same words.
		if what, ended := strings.CutPrefix(r.Detail, vgpu.EndedBeforeItsTime); r.Code == estimator.CodePhaseNotReached && ended && failed != "" && strings.Contains(failed, what) {
			continue
		}
		if !seen[r.Code] || r.Code == estimator.CodeSymbolUnanswered || r.Code == estimator.CodeSymbolMissing {
			kept = append(kept, r)
		}
		seen[r.Code] = true
	}
	return kept
}

func (r *run) outcome(reports Reports) trace.Outcome {
	switch {
	case r.exit.Killed || reports.BudgetSpent:
		return trace.Timeout
	case reports.CPUOnly:
		return trace.CPUOnlyTorch
	case reports.Stopped:
		// What follows the training in a job script often fails without its checkpoint: that is no fault of the job.
		return trace.Stopped
	case r.exit.Code != 0 && (reports.OutOfMemory || reports.OutOfMemoryMet):
		return trace.OutOfMemory
	case r.exit.Code != 0:
		return trace.Crashed
	case !reports.TorchSeen:
		return trace.NoTorch
	case reports.Steps == 0:
		return trace.NoStep
	}
	return trace.Completed
}

// boundReasons are the reasons of the bounds that end a command.
var boundReasons = map[sandbox.Bound]string{sandbox.BoundDisk: estimator.CodeOutOfDisk, sandbox.BoundHostMemory: estimator.CodeOutOfHostMemory, sandbox.BoundProcesses: estimator.CodeTooManyProcesses}

// explain gives the reason that belongs to an outcome.
func (r *run) explain(o trace.Outcome, reports Reports) (estimator.Reason, bool) {
	switch o {
	case trace.Timeout:
		if code, ok := boundReasons[r.exit.Bound]; ok {
			return reason(code, "the sandbox ended the command: it is in the notes what it took"), true
		}
		if r.exit.Failed != "" {
			return reason(estimator.CodeSandboxEnded, "its first process ended: "+r.exit.Failed), true
		}
		what := "spent its budget of " + r.options.Budget.String()
		if r.cancelled {
			what = "was interrupted"
		}
		if len(reports.Ranks) == 0 {
			return reason(estimator.CodeBudgetSpent, fmt.Sprintf("the command %s before it put anything on a GPU", what)), true
		}
		return reason(estimator.CodeBudgetSpent, fmt.Sprintf("the command %s after %s", what, quantity.Count(reports.Steps, "step"))), true
	case trace.Stopped:
		return reason(estimator.CodeScriptFailed, fmt.Sprintf("after the training had been stopped: exit status %d: %s", r.exit.Code, r.cause(reports))), r.exit.Code != 0
	case trace.CPUOnlyTorch:
		return reason(estimator.CodeCPUOnlyTorch, "the job's PyTorch "+reports.Versions.Torch+" is built without CUDA: on a GPU node it would not use the GPU"), true
	case trace.OutOfMemory:
		return reason(estimator.CodeOutOfMemory, "the command needs more than the modelled card has"), true
	case trace.Crashed:
		return reason(estimator.CodeScriptFailed, fmt.Sprintf("exit status %d: %s", r.exit.Code, r.cause(reports))), true
	case trace.NoTorch:
		return reason(estimator.CodeNoTorch, r.whyNoTorch()), !slices.ContainsFunc(reports.Reasons, func(r estimator.Reason) bool { return r.Code == estimator.CodeTensorflow })
	case trace.NoStep:
		return reason(estimator.CodeNoStepSeen, "the command ended before a training step was seen"), true
	}
	return estimator.Reason{}, false
}

// whyNoTorch names what hides PyTorch, and an empty standard input first where the command seems to want its program there.
func (r *run) whyNoTorch() string {
	if len(r.options.Input) == 0 && slices.Contains(r.options.Command, "-") {
		return "no process of the command imported PyTorch, and nothing stood on its standard input: a program goes there by a file or a pipe, as in: gresize estimate -- python - < train.py"
	}
	if program := containerOf(r.options.Command, r.scriptText()); program != "" {
		return "no process outside of a container imported PyTorch, and " + program + " starts one: what runs in it is not seen. It is in a container of apptainer exec or singularity exec, and in an environment of the node (a venv, conda)"
	}
	return "no process of the command imported PyTorch, or it did so out of sight: in a container, or with the environment taken away (env -i)"
}

// scriptText is the job script, or the beginning of the program where a person named a script as the command.
func (r *run) scriptText() []byte {
	if len(r.options.Script) > 0 || len(r.options.Command) == 0 {
		return r.options.Script
	}
	path := r.options.Command[0]
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.options.Dir, path)
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScriptText))
	if err != nil || !bytes.HasPrefix(text, []byte("#!")) {
		return nil
	}
	return text
}

// cause is the exception that a process reported, since a launcher's or a progress bar's words may follow it; else the last words. Where a launcher alone reports one, the program that it
// started was none of Python, or came to nothing: what was said last before is its.
func (r *run) cause(reports Reports) string {
	if vgpu.NamesNoCause(reports.Failure) {
		if said := saidBefore(r.output.text()); said != "" {
			return trace.Clip([]byte(said), lastWordsBytes)
		}
	}
	if reports.Failure != "" {
		return trace.Clip([]byte(reports.Failure), lastWordsBytes)
	}
	return r.lastWords()
}

// lastWords is the exception that ended the last program of Python that showed one, without the lines that may follow it; else the last line that says something.
func (r *run) lastWords() string {
	return trace.Clip([]byte(lastWordsOf(r.output.text())), lastWordsBytes)
}

// logged begins a line of a launcher's log.
var logged = regexp.MustCompile(`^\[?[IWEF]\d{4} \d\d:\d\d:\d\d`)

// saidBefore is what was said last before the last traceback, without the lines of a log.
func saidBefore(output string) string {
	end := strings.LastIndex(output, pythonTraceback)
	if end < 0 {
		return ""
	}
	lines := slices.DeleteFunc(strings.Split(output[:end], "\n"), logged.MatchString)
	return lastWordsOf(strings.Join(lines, "\n"))
}

const pythonTraceback = "Traceback (most recent call last):"

func lastWordsOf(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	for i, line := range slices.Backward(lines) {
		if !strings.HasPrefix(line, pythonTraceback) {
			continue
		}
		for k, after := range lines[i+1:] {
			if after == "" || after[0] == ' ' || after[0] == '\t' { // the frames
				continue
			}
			after = strings.TrimSpace(after)
			if next := i + 2 + k; strings.HasSuffix(after, ":") && next < len(lines) { // the exception only announces its cause
				after += " " + strings.TrimSpace(lines[next])
			}
			return after
		}
		break
	}
	return strings.TrimSpace(lines[len(lines)-1])
}

func reason(code, detail string) estimator.Reason {
	return estimator.Reason{Code: code, Detail: trace.Clip([]byte(detail), estimator.MaxDetailBytes)}
}

// readShimLog reads what the shims noted; a line that makes no sense is left out.
func readShimLog(path string) []trace.Call {
	calls := []trace.Call{}
	f, err := os.Open(path)
	if err != nil {
		return calls
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, maxShimLogLineBytes)
	for scanner.Scan() && len(calls) < maxShimLogLines {
		var c sandbox.ShimCall
		if json.Unmarshal(scanner.Bytes(), &c) == nil && c.Name != "" {
			if len(c.Args) > 64 {
				c.Args = c.Args[:64]
			}
			call := trace.Call{Name: trace.Clip([]byte(c.Name), 64), Action: trace.Clip([]byte(c.Action), 64), Args: []string{}}
			for _, a := range c.Args {
				call.Args = append(call.Args, trace.Clip([]byte(a), 512))
			}
			calls = append(calls, call)
		}
	}
	return calls
}
