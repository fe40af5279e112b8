package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Mode is how the probe ran the command of a bundle.
type Mode string

// The modes.
const (
	// ModeVGPU is the virtual GPU, and what a bundle means that names no mode.
	ModeVGPU Mode = "vgpu"
	// ModeProfile is the CPU, under PyTorch's profiler.
	ModeProfile Mode = "profile"
	// ModeFake is FakeTensorMode: tensors without memory.
	ModeFake Mode = "fake"
)

// Valid reports whether m is one of the modes.
func (m Mode) Valid() bool { return slices.Contains([]Mode{ModeVGPU, ModeProfile, ModeFake}, m) }

// Part is an optional part of a bundle, which is recorded only where it is asked for.
type Part string

// The optional parts.
const (
	// PartModules is the table of modules: layers, parameters, activations, FLOPs.
	PartModules Part = "modules"
	// PartOperators is the stream of operators of one training step.
	PartOperators Part = "operators"
	// PartSaved is the sequence of tensors that autograd saved and took back, and what became of a plan that was carried out.
	PartSaved Part = "saved"
	// PartPublished asks for a profile as xMem's published program records it: without the first step, and with optimizers that take one
	// parameter after the other.
	PartPublished Part = "published"
)

// maxPartBytes is the size of each part in a rank, unpacked.
var maxPartBytes = map[Part]int64{PartModules: 8 << 20, PartOperators: 16 << 20, PartSaved: 64 << 20}

// Parts are the names of all parts that a rank may have.
func Parts() []Part { return slices.Sorted(maps.Keys(maxPartBytes)) }

// MaxBytes is the size that a part of a rank may have, unpacked; 0 when there is no such part.
func (p Part) MaxBytes() int64 { return maxPartBytes[p] }

// entry is the name of a part among the entries of its rank.
func (p Part) entry() string { return string(p) + ".jsonl" }

// Recording is how a command has to be run, and what to be recorded of it. The zero value is a run on the virtual GPU
// without optional parts.
type Recording struct {
	Mode  Mode
	Parts []Part
}

// RunMode is the mode, ModeVGPU where none is named.
func (r Recording) RunMode() Mode {
	if r.Mode == "" {
		return ModeVGPU
	}
	return r.Mode
}

// With is one recording that serves both; ok is false where the modes differ, or where one of two profiles is to be the published kind.
func (r Recording) With(other Recording) (both Recording, ok bool) {
	both = Recording{Mode: r.RunMode(), Parts: slices.Concat(r.Parts, other.Parts)}
	slices.Sort(both.Parts)
	both.Parts = slices.Compact(both.Parts)
	return both, r.RunMode() == other.RunMode() && slices.Contains(r.Parts, PartPublished) == slices.Contains(other.Parts, PartPublished)
}

// Environment is the recording as the variables, KEY=VALUE, that tell the Python layer; none for the zero value.
func (r Recording) Environment() []string {
	var env []string
	if mode := r.RunMode(); mode != ModeVGPU {
		env = append(env, "GRESIZE_PROBE_MODE="+string(mode))
	}
	if len(r.Parts) > 0 {
		names := make([]string, 0, len(r.Parts))
		for _, p := range r.Parts {
			names = append(names, string(p))
		}
		env = append(env, "GRESIZE_PROBE_PARTS="+strings.Join(names, ","))
	}
	return env
}

// RunMode is the mode in which the command was run.
func (m *Manifest) RunMode() Mode { return Recording{Mode: m.Mode}.RunMode() }

func (m *Manifest) validateMode() error {
	if m.Mode != "" && !m.Mode.Valid() {
		return fmt.Errorf("mode: %q is not known", m.Mode)
	}
	return nil
}
