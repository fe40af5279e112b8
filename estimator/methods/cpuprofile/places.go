package cpuprofile

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Kind is what a block was allocated for.
type Kind uint8

// The kinds of blocks.
const (
	// Host is what no part of the training made: a data loader's batches, and what a GPU run would keep on the host, too.
	Host Kind = iota
	// Moved is a copy that the program made to the GPU, or what it made there outside of the training proper: a buffer, a mask, an average of the weights.
	Moved
	// Forward was made in a module's call, or by an operator outside of all modules that the backward pass went through, such as a loss.
	Forward
	// Backward was made in a backward pass.
	Backward
	// OptimizerStep was made in an optimizer's step.
	OptimizerStep
)

// Place is where in the program a block was born.
type Place struct {
	Kind Kind
	// Iteration counts from 0; -1 is outside of all.
	Iteration int32
	// Op is the operator that needed the block, as an index of Trace.Ops: the innermost one but for those that only allocate. -1: none.
	Op int32
	// Leaf is the innermost module whose call the block was born in, as an index of Trace.Modules, where that module has no module inside. -1: none.
	Leaf int32
	// Node is autograd's number of the node of the graph that the outermost operator with one belongs to; -1: none.
	Node int64
	// Scratch says that the block was freed before the operator ended: the kernel of a GPU has scratch of its own, or none.
	Scratch bool
}

// Window is a time from Begin to End, both in it.
type Window struct{ BeginNanos, EndNanos int64 }

// Layout is the course of a training in a trace.
type Layout struct {
	// Iterations are those that were recorded to their end.
	Iterations []Window
	Steps      []Window
	ZeroGrads  []Window
	Backwards  []Window
	Moves      []Window
	// ModuleCalls are the calls of modules that no other module's call contains.
	ModuleCalls []Window
	// MainThread is the thread of the iterations.
	MainThread int32
	// OnDevice has, by address, the times at which the program had something of its own on the GPU there, in order.
	OnDevice map[uint64][]int64
	// InGraph has the numbers of autograd that a backward pass went through.
	InGraph map[int64]bool
	// Convolutions says that the program convolves; Attention that it attends or looks up embeddings.
	Convolutions, Attention bool
}

// Layout finds the course of the training.
func (t *Trace) Layout() *Layout {
	l := &Layout{InGraph: map[int64]bool{}, OnDevice: map[uint64][]int64{}, MainThread: -1}
	for i := range t.Annotations {
		a := &t.Annotations[i]
		name, w := t.Name(a), Window{a.BeginNanos, a.EndNanos}
		switch {
		case strings.HasPrefix(name, IterationPrefix):
			l.Iterations, l.MainThread = append(l.Iterations, w), a.Thread
		case strings.HasPrefix(name, OptimizerPrefix):
			l.Steps = append(l.Steps, w)
		case strings.HasPrefix(name, ZeroGradPrefix):
			l.ZeroGrads = append(l.ZeroGrads, w)
		case name == BackwardMark:
			l.Backwards = append(l.Backwards, w)
		case name == ToDeviceMark:
			l.Moves = append(l.Moves, w)
		case strings.HasPrefix(name, OnDevicePrefix):
			if addr, err := strconv.ParseUint(name[len(OnDevicePrefix):], 16, 64); err == nil {
				l.OnDevice[addr] = append(l.OnDevice[addr], a.BeginNanos)
			}
		}
	}
	for i := range t.Modules {
		l.ModuleCalls = append(l.ModuleCalls, Window{t.Modules[i].BeginNanos, t.Modules[i].EndNanos})
	}
	l.ModuleCalls = outermost(l.ModuleCalls)
	marked := len(l.Backwards) > 0
	for i := range t.Ops {
		op := &t.Ops[i]
		name := t.Name(op)
		switch {
		case strings.HasPrefix(name, NodePrefix):
			if op.Sequence >= 0 {
				l.InGraph[op.Sequence] = true
			}
			if !marked {
				l.Backwards = append(l.Backwards, Window{op.BeginNanos, op.EndNanos})
			}
		case name == "aten::convolution":
			l.Convolutions = true
		case name == "aten::scaled_dot_product_attention", name == "aten::embedding", name == "aten::bmm":
			l.Attention = true
		}
	}
	l.Steps, l.ZeroGrads, l.Backwards, l.Moves = outermost(l.Steps), outermost(l.ZeroGrads), outermost(l.Backwards), outermost(l.Moves)
	// An iteration without a step at its end is one that was cut short.
	l.Iterations = slices.DeleteFunc(l.Iterations, func(w Window) bool { return within(l.Steps, w) < 0 })
	return l
}

// outermost drops windows that begin inside of another one. They are in the order of time.
func outermost(windows []Window) []Window {
	kept := windows[:0]
	for _, w := range windows {
		if n := len(kept); n == 0 || w.BeginNanos > kept[n-1].EndNanos {
			kept = append(kept, w)
		}
	}
	return kept
}

// At is the index of the window that a time is in, -1 if there is none. The windows do not overlap.
func At(windows []Window, nanos int64) int {
	i := sort.Search(len(windows), func(i int) bool { return windows[i].EndNanos >= nanos })
	if i < len(windows) && windows[i].BeginNanos <= nanos {
		return i
	}
	return -1
}

// within is the index of the first window that begins inside of w.
func within(windows []Window, w Window) int {
	i := sort.Search(len(windows), func(i int) bool { return windows[i].BeginNanos >= w.BeginNanos })
	if i < len(windows) && windows[i].BeginNanos <= w.EndNanos {
		return i
	}
	return -1
}

// maxNesting is how deep spans are followed into each other: no program's are deeper, and a hostile trace shall not cost more.
const maxNesting = 512

// nest follows the spans of one thread through time and knows which are open.
type nest struct {
	spans []Span
	order []int32
	next  int
	open  []int32
}

// at opens and closes spans up to a time.
func (n *nest) at(nanos int64) {
	for n.next < len(n.order) && n.spans[n.order[n.next]].BeginNanos <= nanos {
		n.close(n.spans[n.order[n.next]].BeginNanos)
		if len(n.open) < maxNesting {
			n.open = append(n.open, n.order[n.next])
		}
		n.next++
	}
	n.close(nanos)
}

func (n *nest) close(nanos int64) {
	for len(n.open) > 0 && n.spans[n.open[len(n.open)-1]].EndNanos < nanos {
		n.open = n.open[:len(n.open)-1]
	}
}

func nestsOf(spans []Span) map[int32]*nest {
	nests := map[int32]*nest{}
	for i := range spans {
		n := nests[spans[i].Thread]
		if n == nil {
			n = &nest{spans: spans}
			nests[spans[i].Thread] = n
		}
		n.order = append(n.order, int32(i))
	}
	return nests
}

// allocates has the operators that do nothing but make a tensor for someone else.
var allocates = map[string]bool{
	"aten::empty": true, "aten::empty_like": true, "aten::empty_strided": true, "aten::empty_permuted": true, "aten::new_empty": true, "aten::new_empty_strided": true,
	"aten::resize_": true, "aten::resize_as_": true, "aten::_resize_output_": true, "aten::zeros": true, "aten::zeros_like": true, "aten::new_zeros": true,
	"aten::ones": true, "aten::ones_like": true, "aten::full": true, "aten::full_like": true,
}

const foreachPrefix = "aten::_foreach_"

// HostScalarBytes is the size up to which a tensor that an optimizer makes is its count of steps, which stays on the host.
const HostScalarBytes = 8

// Places says for each block where it was born.
func (t *Trace) Places(l *Layout, blocks []Block) []Place {
	allocating, lists := make([]bool, len(t.Names)), make([]bool, len(t.Names))
	for i, name := range t.Names {
		allocating[i], lists[i] = allocates[name], strings.HasPrefix(name, foreachPrefix)
	}
	hasChild := t.modulesWithChildren()
	ops, modules := nestsOf(t.Ops), nestsOf(t.Modules)
	places := make([]Place, len(blocks))
	for i := range blocks {
		b, p := &blocks[i], &places[i]
		m := &t.Memory[b.Birth]
		*p = Place{Iteration: int32(At(l.Iterations, b.BornNanos)), Op: -1, Leaf: -1, Node: -1}
		inModule, inGraph := false, false
		if n := modules[m.Thread]; n != nil {
			n.at(b.BornNanos)
			if k := len(n.open); k > 0 {
				inModule = true
				if inner := n.open[k-1]; !hasChild[inner] {
					p.Leaf = inner
				}
			}
		}
		if n := ops[m.Thread]; n != nil {
			n.at(b.BornNanos)
			for k := len(n.open) - 1; k >= 0; k-- {
				op := &t.Ops[n.open[k]]
				if l.InGraph[op.Sequence] {
					inGraph, p.Node = true, op.Sequence
				}
				if lists[op.Name] || p.Op < 0 && !allocating[op.Name] {
					p.Op = n.open[k] // what works through a list is one kernel on a GPU
				}
			}
		}
		p.Scratch = p.Op >= 0 && b.DiedNanos <= t.Ops[p.Op].EndNanos
		p.Kind = l.kindOf(b, m, inModule, inGraph)
	}
	return places
}

func (l *Layout) kindOf(b *Block, m *MemoryEvent, inModule, inGraph bool) Kind {
	switch {
	case At(l.Steps, b.BornNanos) >= 0:
		if b.Bytes <= HostScalarBytes {
			return Host
		}
		return OptimizerStep
	case At(l.Backwards, b.BornNanos) >= 0:
		return Backward
	case At(l.Moves, b.BornNanos) >= 0:
		return Moved
	case inModule, inGraph && m.Thread == l.MainThread:
		return Forward
	case l.seenOnDevice(b, m.Addr):
		return Moved
	}
	return Host
}

// seenOnDevice says whether the program had the block on the GPU at some time of its life.
func (l *Layout) seenOnDevice(b *Block, addr uint64) bool {
	times := l.OnDevice[addr]
	i, _ := slices.BinarySearch(times, b.BornNanos)
	return i < len(times) && (b.Alive() || times[i] <= b.DiedNanos)
}

// modulesWithChildren says which calls have another module's call inside.
func (t *Trace) modulesWithChildren() []bool {
	has := make([]bool, len(t.Modules))
	for _, n := range nestsOf(t.Modules) {
		for _, i := range n.order {
			n.at(t.Modules[i].BeginNanos)
			if k := len(n.open); k > 1 {
				has[n.open[k-2]] = true
			}
		}
	}
	return has
}

// LeafCalls are the calls of modules that have no other module inside, as indices of Trace.Modules in the order of time.
func (t *Trace) LeafCalls() []int32 {
	var leaves []int32
	for i, has := range t.modulesWithChildren() {
		if !has {
			leaves = append(leaves, int32(i))
		}
	}
	return leaves
}
