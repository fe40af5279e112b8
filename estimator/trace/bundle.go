// Package trace owns the trace bundle: the one file in which a probe hands over
// what it saw. It writes bundles and reads them as a stranger's work, since
// they come from a user's process. What a report means is the estimator's
// matter; this package only carries it. docs/bundle.md describes the format.
package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"unicode/utf8"

	"github.com/gresize/gresize/estimator"
)

// Schema names the form of the manifest. It changes when a key changes its meaning.
const Schema = "gresize.bundle/1"

// Limits on a bundle. A reader refuses more, a writer does not make more.
const (
	// MaxBundleBytes is the size of the file.
	MaxBundleBytes = 64 << 20
	// MaxUnpackedBytes is the sum of all entries, unpacked.
	MaxUnpackedBytes = 128 << 20
	// MaxManifestBytes and MaxReportBytes are sizes of single entries, unpacked.
	MaxManifestBytes = 4 << 20
	MaxReportBytes   = 16 << 20
	// MaxProfileBytes is the size of a rank's profile, which stays packed by gzip.
	MaxProfileBytes = 48 << 20
	// MaxRanks is the number of ranks.
	MaxRanks = estimator.MaxRanks
	// MaxJSONDepth is the nesting of any JSON inside.
	MaxJSONDepth = 32

	maxArguments      = 4096
	maxArgumentsBytes = 1 << 20
	maxSymbols        = 4096
	maxNotes          = 256
	maxTextBytes      = 4096
	maxOutputBytes    = 64 << 10
	maxSteps          = 1 << 30
	maxSeconds        = 30 * 24 * 3600
)

// Outcome says how the run of the command ended.
type Outcome string

// The outcomes. Only Stopped and Completed lead to an estimate that may be acted upon.
const (
	// Stopped: the wanted number of steps was seen, and the run was ended on purpose.
	Stopped Outcome = "stopped"
	// Completed: the command ended by itself with status 0 after at least one step.
	Completed Outcome = "completed"
	// Crashed: the command ended by itself with another status.
	Crashed Outcome = "crashed"
	// Timeout: the budget was spent before the run was done.
	Timeout Outcome = "timeout"
	// NoStep: the command ended with status 0 and no training step was seen.
	NoStep Outcome = "no_step"
	// OutOfMemory: the modelled card was too small.
	OutOfMemory Outcome = "out_of_memory"
	// NoTorch: no process of the command used PyTorch.
	NoTorch Outcome = "no_torch"
	// CPUOnlyTorch: PyTorch was used, but its build knows no CUDA.
	CPUOnlyTorch Outcome = "cpu_only_torch"
	// NotRun: the command was not started.
	NotRun Outcome = "not_run"
)

var outcomes = map[Outcome]bool{Stopped: true, Completed: true, Crashed: true, Timeout: true, NoStep: true, OutOfMemory: true,
	NoTorch: true, CPUOnlyTorch: true, NotRun: true}

// Bundle is everything that a probe hands over.
type Bundle struct {
	Manifest Manifest
	// Ranks are in order of their number, which begins at 0.
	Ranks []Rank
}

// GPU names the profile on which the run was made.
type GPU struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// CapacityBytes is the memory of the modelled card, which may be less than the model's.
	CapacityBytes int64 `json:"capacity_bytes"`
	Devices       int   `json:"devices"`
}

// Symbol is a function of a replaced library that had no answer of its own.
type Symbol struct {
	Library string `json:"library"`
	Name    string `json:"name"`
	Calls   int64  `json:"calls"`
}

// Timings are wall-clock times in milliseconds.
type Timings struct {
	SandboxMillis float64 `json:"sandbox_ms"`
	RunMillis     float64 `json:"run_ms"`
}

// Call is something that the command asked of the cluster or of the network and did not get as usual.
type Call struct {
	Name   string   `json:"name"`
	Action string   `json:"action"`
	Args   []string `json:"args"`
}

// Manifest says what was run, on what, and how it ended.
type Manifest struct {
	Schema   string             `json:"schema"`
	Versions estimator.Versions `json:"versions"`
	GPU      GPU                `json:"gpu"`
	// Command holds the arguments only; the environment is not recorded, since it may hold secrets.
	Command   []string `json:"command"`
	RankCount int      `json:"ranks"`
	Steps     int      `json:"steps"`
	// Mode is how the command was run; empty: on the virtual GPU.
	Mode       Mode    `json:"mode,omitempty"`
	Outcome    Outcome `json:"outcome"`
	ExitStatus int     `json:"exit_status"`
	Signal     int     `json:"signal,omitempty"`
	// Libraries are the replaced libraries that the command used, such as cublas and cudnn.
	Libraries         []string           `json:"libraries"`
	UnansweredSymbols []Symbol           `json:"unanswered_symbols"`
	ValuesReadBack    int64              `json:"values_read_back"`
	HostPeakBytes     int64              `json:"host_peak_bytes"`
	Timings           Timings            `json:"timings"`
	Reasons           []estimator.Reason `json:"reasons"`
	// Sandboxed is false only where a person ran a command of his own without one.
	Sandboxed bool     `json:"sandboxed"`
	Notes     []string `json:"notes"`
	Calls     []Call   `json:"calls"`
	// OutputTail is the end of what the command printed; it is kept when the run failed.
	OutputTail string `json:"output_tail,omitempty"`
}

// Rank is what one process that used a GPU left.
type Rank struct {
	// Report is the estimator's own JSON object.
	Report json.RawMessage
	// Events are the recorded events of the allocator, in the form that EventsFormat names; none when empty.
	Events       []byte
	EventsFormat EventsFormat
	// Profile is the trace of PyTorch's profiler, JSON packed by gzip; none when empty.
	Profile []byte
	// Parts are what the run recorded besides; none of them must be there.
	Parts map[Part][]byte
}

// EventsFormat is the form of the recorded events, and the extension of their entry.
type EventsFormat string

// The two forms.
const (
	EventsBinary EventsFormat = "bin"
	EventsJSON   EventsFormat = "jsonl"
)

var reasonCode = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// Validate returns the first fault, with the name of the field.
func (b *Bundle) Validate() error {
	m := &b.Manifest
	if m.Schema != Schema {
		return fmt.Errorf("schema: %q, want %q", m.Schema, Schema)
	}
	if !outcomes[m.Outcome] {
		return fmt.Errorf("outcome: %q is not known", m.Outcome)
	}
	if err := m.validateMode(); err != nil {
		return err
	}
	if m.RankCount != len(b.Ranks) || len(b.Ranks) > MaxRanks {
		return fmt.Errorf("ranks: the manifest says %d, the bundle holds %d, at most %d are allowed", m.RankCount, len(b.Ranks), MaxRanks)
	}
	if m.Steps < 0 || m.Steps > maxSteps {
		return fmt.Errorf("steps: %d is out of range", m.Steps)
	}
	if m.ExitStatus < 0 || m.ExitStatus > 255 || m.Signal < 0 || m.Signal > 127 {
		return fmt.Errorf("exit_status or signal: %d, %d", m.ExitStatus, m.Signal)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"gpu.capacity_bytes", m.GPU.CapacityBytes}, {"host_peak_bytes", m.HostPeakBytes}} {
		if f.value < 0 || f.value > estimator.MaxBytes {
			return fmt.Errorf("%s: %d is out of range", f.name, f.value)
		}
	}
	if m.GPU.Devices < 0 || m.GPU.Devices > MaxRanks || m.ValuesReadBack < 0 {
		return errors.New("gpu.devices or values_read_back: out of range")
	}
	for _, v := range []float64{m.Timings.SandboxMillis, m.Timings.RunMillis} {
		if math.IsNaN(v) || v < 0 || v > maxSeconds*1000 {
			return errors.New("timings: out of range")
		}
	}
	if err := m.validateLists(); err != nil {
		return err
	}
	return b.validateRanks()
}

func (m *Manifest) validateLists() error {
	if len(m.Command) > maxArguments {
		return fmt.Errorf("command: %d arguments, at most %d", len(m.Command), maxArguments)
	}
	sum := 0
	for _, a := range m.Command {
		sum += len(a)
	}
	if sum > maxArgumentsBytes {
		return fmt.Errorf("command: %d bytes, at most %d", sum, maxArgumentsBytes)
	}
	if len(m.UnansweredSymbols) > maxSymbols {
		return fmt.Errorf("unanswered_symbols: %d, at most %d", len(m.UnansweredSymbols), maxSymbols)
	}
	if len(m.Reasons) > estimator.MaxReasons {
		return fmt.Errorf("reasons: %d, at most %d", len(m.Reasons), estimator.MaxReasons)
	}
	for i, r := range m.Reasons {
		if !reasonCode.MatchString(r.Code) {
			return fmt.Errorf("reasons[%d].code: %q is no code", i, r.Code)
		}
		if len(r.Detail) > estimator.MaxDetailBytes {
			return fmt.Errorf("reasons[%d].detail: %d bytes, at most %d", i, len(r.Detail), estimator.MaxDetailBytes)
		}
	}
	if len(m.Notes) > maxNotes || len(m.Calls) > maxNotes || len(m.Libraries) > maxNotes {
		return fmt.Errorf("notes, calls or libraries: more than %d", maxNotes)
	}
	if len(m.OutputTail) > maxOutputBytes {
		return fmt.Errorf("output_tail: %d bytes, at most %d", len(m.OutputTail), maxOutputBytes)
	}
	texts := append([]string{m.GPU.ID, m.GPU.Name, m.Versions.Gresize, m.Versions.Python, m.Versions.Torch, m.Versions.JAX, m.Versions.CUDA,
		m.Versions.CuDNN, m.Versions.Driver}, m.Notes...)
	texts = append(texts, m.Libraries...)
	for _, s := range m.UnansweredSymbols {
		texts = append(texts, s.Library, s.Name)
	}
	for _, c := range m.Calls {
		texts = append(append(texts, c.Name, c.Action), c.Args...)
	}
	for _, s := range texts {
		if len(s) > maxTextBytes {
			return fmt.Errorf("a text of %d bytes, at most %d: %.40q", len(s), maxTextBytes, s)
		}
	}
	return nil
}

func (b *Bundle) validateRanks() error {
	for i, r := range b.Ranks {
		if len(r.Report) == 0 || len(r.Report) > MaxReportBytes {
			return fmt.Errorf("ranks/%d/report.json: %d bytes, want 1 to %d", i, len(r.Report), MaxReportBytes)
		}
		if !json.Valid(r.Report) || !shallow(r.Report) {
			return fmt.Errorf("ranks/%d/report.json: not JSON, or nested more than %d deep", i, MaxJSONDepth)
		}
		if len(r.Events) > 0 && r.EventsFormat != EventsBinary && r.EventsFormat != EventsJSON {
			return fmt.Errorf("ranks/%d: events in the unknown form %q", i, r.EventsFormat)
		}
		if len(r.Profile) > MaxProfileBytes {
			return fmt.Errorf("ranks/%d/profile.json.gz: %d bytes, at most %d", i, len(r.Profile), MaxProfileBytes)
		}
		for p, data := range r.Parts {
			if len(data) == 0 || int64(len(data)) > p.MaxBytes() {
				return fmt.Errorf("ranks/%d/%s: %d bytes, want 1 to %d", i, p.entry(), len(data), p.MaxBytes())
			}
		}
	}
	return nil
}

// shallow reports whether the nesting of JSON text stays within the limit,
// without building anything from it.
func shallow(data []byte) bool {
	depth, inString, escaped := 0, false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case inString && c == '\\':
			escaped = true
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxJSONDepth {
				return false
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return true
}

// Clip makes text fit for a manifest: valid UTF-8 and no longer than limit
// bytes, of which the end is kept, since the end tells why a run failed.
func Clip(text []byte, limit int) string {
	if len(text) > limit {
		text = text[len(text)-limit:]
		for len(text) > 0 && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
	}
	s := string(text)
	if !utf8.ValidString(s) {
		out := make([]rune, 0, len(s))
		for _, r := range s { // each wrong byte becomes one replacement character
			out = append(out, r)
		}
		if s = string(out); len(s) > limit {
			return Clip([]byte(s), limit)
		}
	}
	return s
}

// ClipCommand makes a command fit for a manifest: of one with too many arguments or bytes, the first are kept, and the last says how many are left out.
func ClipCommand(command []string) []string {
	sum := 0
	for i, a := range command {
		if sum += len(a); sum > maxArgumentsBytes || i == maxArguments {
			const room = 64
			kept := min(i, maxArguments-1)
			for bytes := sum - len(a); kept > 0 && bytes > maxArgumentsBytes-room; kept-- {
				bytes -= len(command[kept-1])
			}
			return append(slices.Clone(command[:kept]), fmt.Sprintf("... and %d arguments more", len(command)-kept))
		}
	}
	return command
}

// ClipOutput is Clip with the limit of Manifest.OutputTail.
func ClipOutput(text []byte) string { return Clip(text, maxOutputBytes) }
