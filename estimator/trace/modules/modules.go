// Package modules reads the table of modules that a probe recorded: the networks of a process, layer by layer, and its optimizers. It is the
// modules.jsonl of a bundle's rank; docs/bundle.md describes the lines. They come from a user's process, and are read as a stranger's work.
package modules

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// Kind is what sort of layer a module is.
type Kind string

// The kinds that a probe knows; a module of another class has none.
const (
	Linear     Kind = "linear"
	Conv       Kind = "conv"
	Norm       Kind = "norm"
	Dropout    Kind = "dropout"
	Embedding  Kind = "embedding"
	Attention  Kind = "attention"
	Recurrent  Kind = "recurrent"
	Activation Kind = "activation"
	Pool       Kind = "pool"
	Loss       Kind = "loss"
)

// Limits on a table.
const (
	MaxRows       = 20000
	MaxNetworks   = 256
	MaxOptimizers = 64
	maxNameBytes  = 1024
	maxTensors    = 8
	maxDimensions = 12
	maxDimension  = int64(1) << 40
	// maxCount bounds elements, bytes and calls so that sums over a table stay within 63 bits.
	maxCount = estimator.MaxBytes >> 4
	// maxFLOPs bounds the work of one call; sums of FLOPs are in floating point.
	maxFLOPs = int64(1) << 62
)

// ErrInvalid wraps every fault that Read finds.
var ErrInvalid = errors.New("invalid table of modules")

// Tensors are the tensors that went into a module, or came out of it, in the forward that is described.
type Tensors struct {
	// Inputs and Outputs are shapes. Of very many tensors only the first are named.
	Inputs  [][]int64 `json:"inputs"`
	Outputs [][]int64 `json:"outputs"`
	// OutputElements and OutputBytes are sums over all outputs, named or not.
	OutputElements int64  `json:"output_elements"`
	OutputBytes    int64  `json:"output_bytes"`
	OutputType     string `json:"output_dtype"`
	// FLOPs are those of one call; 0 where no simple rule holds.
	FLOPs int64 `json:"flops"`
}

// Holdings are what a module holds itself, or a network with all its parts. Sizes are bytes, the others are elements.
type Holdings struct {
	Parameters     int64 `json:"parameters"`
	ParameterBytes int64 `json:"parameter_bytes"`
	// Trainable are the elements of parameters that get a gradient.
	Trainable   int64 `json:"trainable"`
	Buffers     int64 `json:"buffers"`
	BufferBytes int64 `json:"buffer_bytes"`
}

// Module is one part of a network: a leaf, or a module that holds parameters or buffers of its own.
type Module struct {
	// Path is the name of the module within its network.
	Path  string `json:"module"`
	Class string `json:"class"`
	Kind  Kind   `json:"kind"`
	Leaf  bool   `json:"leaf"`
	// InPlace says that the output lies where the input lay.
	InPlace bool `json:"inplace"`
	Holdings
	// TiedParameters are elements of parameters that a module before this one holds, too.
	TiedParameters int64 `json:"tied_parameters"`
	// ParameterType is the type of the parameters, such as float32.
	ParameterType string `json:"dtype"`
	Tensors
	// CallsOnce are the calls in one forward of the network, Calls those of the whole run.
	CallsOnce int64 `json:"calls_once"`
	Calls     int64 `json:"calls"`
}

// Network is a module that the program itself called, with all its parts. A loss is one, too.
type Network struct {
	Class string `json:"class"`
	Calls int64  `json:"calls"`
	// WithGradient says that a forward was seen whose gradient could be taken; what is described is the first such forward, else the first.
	WithGradient bool `json:"with_grad"`
	Training     bool `json:"training"`
	// Batch is the number of samples in that forward as far as shapes tell; 0 when they do not.
	Batch int64 `json:"batch"`
	Holdings
	Tensors
	Modules []Module `json:"-"`
}

// Optimizer is an optimizer after its first step.
type Optimizer struct {
	Class          string `json:"optimizer"`
	Parameters     int64  `json:"parameters"`
	ParameterBytes int64  `json:"parameter_bytes"`
	GradientBytes  int64  `json:"gradient_bytes"`
	// StateBytes are what it keeps beside the parameters; States the names of what it keeps.
	StateBytes int64    `json:"state_bytes"`
	States     []string `json:"states"`
}

// StateMultiplier is how many times the bytes of its parameters an optimizer keeps as state: 2 for Adam.
func (o *Optimizer) StateMultiplier() float64 {
	if o.ParameterBytes == 0 {
		return 0
	}
	return float64(o.StateBytes) / float64(o.ParameterBytes)
}

// Table is what one process recorded.
type Table struct {
	Steps int
	// Compiled says that the program called torch.compile; from then on no shapes and no calls were seen.
	Compiled bool
	// LeftOut counts what there was no room for.
	LeftOut    int64
	Networks   []Network
	Optimizers []Optimizer
}

// head is the first line.
type head struct {
	Version  int   `json:"modules"`
	Steps    int   `json:"steps"`
	Compiled bool  `json:"compiled"`
	LeftOut  int64 `json:"left_out"`
}

// Read reads a table. An error names the line.
func Read(data []byte) (*Table, error) {
	t := new(Table)
	headed, rows := false, 0
	for number, text := range trace.Lines(data) {
		var err error
		if !headed {
			headed = true
			err = t.readHead(text)
		} else {
			err = t.add(text, &rows)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrInvalid, number, err)
		}
	}
	if !headed {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	return t, nil
}

func (t *Table) readHead(text []byte) error {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return err
	}
	if h.Version != 1 {
		return fmt.Errorf("modules: version %d is not known, want 1", h.Version)
	}
	if h.Steps < 0 || h.Steps > math.MaxInt32 {
		return fmt.Errorf("steps: %d is out of range", h.Steps)
	}
	t.Steps, t.Compiled, t.LeftOut = h.Steps, h.Compiled, h.LeftOut
	return inRange("left_out", h.LeftOut)
}

func (t *Table) add(text []byte, rows *int) error {
	var is struct {
		Root      *int    `json:"root"`
		Of        *int    `json:"of"`
		Optimizer *string `json:"optimizer"`
	}
	if err := json.Unmarshal(text, &is); err != nil {
		return err
	}
	switch {
	case is.Root != nil:
		if *is.Root != len(t.Networks) || *is.Root >= MaxNetworks {
			return fmt.Errorf("root: %d, want %d, at most %d", *is.Root, len(t.Networks), MaxNetworks-1)
		}
		var n Network
		if err := json.Unmarshal(text, &n); err != nil {
			return err
		}
		t.Networks = append(t.Networks, n)
		return n.check()
	case is.Of != nil:
		if *is.Of < 0 || *is.Of >= len(t.Networks) {
			return fmt.Errorf("of: %d is none of the %d networks before", *is.Of, len(t.Networks))
		}
		if *rows++; *rows > MaxRows {
			return fmt.Errorf("more than %d modules", MaxRows)
		}
		var m Module
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		n := &t.Networks[*is.Of]
		n.Modules = append(n.Modules, m)
		return m.check()
	case is.Optimizer != nil:
		if len(t.Optimizers) >= MaxOptimizers {
			return fmt.Errorf("more than %d optimizers", MaxOptimizers)
		}
		var o Optimizer
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		t.Optimizers = append(t.Optimizers, o)
		return o.check()
	}
	return nil // a newer probe may say more
}

func (n *Network) check() error {
	return errors.Join(name("class", n.Class), inRange("calls", n.Calls), inRange("batch", n.Batch), n.Holdings.check(), n.Tensors.check())
}

func (m *Module) check() error {
	if m.CallsOnce > m.Calls {
		return fmt.Errorf("calls_once: %d, but calls: %d", m.CallsOnce, m.Calls)
	}
	return errors.Join(name("module", m.Path), name("class", m.Class), name("kind", string(m.Kind)), name("dtype", m.ParameterType),
		inRange("tied_parameters", m.TiedParameters), inRange("calls_once", m.CallsOnce), inRange("calls", m.Calls), m.Holdings.check(), m.Tensors.check())
}

func (o *Optimizer) check() error {
	if len(o.States) > maxTensors {
		return fmt.Errorf("states: %d, at most %d", len(o.States), maxTensors)
	}
	for _, s := range o.States {
		if err := name("states", s); err != nil {
			return err
		}
	}
	return errors.Join(name("optimizer", o.Class), inRange("parameters", o.Parameters), inRange("parameter_bytes", o.ParameterBytes),
		inRange("gradient_bytes", o.GradientBytes), inRange("state_bytes", o.StateBytes))
}

func (h *Holdings) check() error {
	if h.Trainable > h.Parameters {
		return fmt.Errorf("trainable: %d of %d parameters", h.Trainable, h.Parameters)
	}
	return errors.Join(inRange("parameters", h.Parameters), inRange("parameter_bytes", h.ParameterBytes), inRange("trainable", h.Trainable),
		inRange("buffers", h.Buffers), inRange("buffer_bytes", h.BufferBytes))
}

func (t *Tensors) check() error {
	for what, shapes := range map[string][][]int64{"inputs": t.Inputs, "outputs": t.Outputs} {
		if len(shapes) > maxTensors {
			return fmt.Errorf("%s: %d shapes, at most %d", what, len(shapes), maxTensors)
		}
		for _, shape := range shapes {
			if len(shape) > maxDimensions {
				return fmt.Errorf("%s: %d dimensions, at most %d", what, len(shape), maxDimensions)
			}
			for _, n := range shape {
				if n < 0 || n > maxDimension {
					return fmt.Errorf("%s: a dimension of %d", what, n)
				}
			}
		}
	}
	if t.FLOPs < 0 || t.FLOPs > maxFLOPs {
		return fmt.Errorf("flops: %d is out of range", t.FLOPs)
	}
	return errors.Join(inRange("output_elements", t.OutputElements), inRange("output_bytes", t.OutputBytes), name("output_dtype", t.OutputType))
}

func inRange(field string, n int64) error {
	if n < 0 || n > maxCount {
		return fmt.Errorf("%s: %d is out of range", field, n)
	}
	return nil
}

func name(field, s string) error {
	if len(s) > maxNameBytes {
		return fmt.Errorf("%s: %d bytes, at most %d", field, len(s), maxNameBytes)
	}
	return nil
}
