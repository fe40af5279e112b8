package timeline

import "github.com/gresize/gresize/estimator/trace/events"

// scope follows the marks: which module's forward, backward pass or optimizer step the program is in.
type scope struct {
	modules  []module
	backward bool
	optimize bool
}

// module is a forward that has begun and not ended, with the blocks that were taken in it directly.
type module struct {
	path   string
	blocks []int
}

// maxDepth bounds the nesting: a program whose forwards never end, such as one that raises out of them, keeps no more.
const maxDepth = 4096

// guess says what a block is for that is taken now, before anything has been seen to own it.
func (s *scope) guess() (Category, string) {
	path := ""
	if n := len(s.modules); n > 0 {
		path = s.modules[n-1].path
	}
	switch {
	case s.backward:
		return BackwardTemporaries, path // a module whose forward is computed anew has its name
	case s.optimize:
		return Workspace, "optimizer step"
	case path != "":
		return Activations, path
	}
	return Other, ""
}

// took notes a block that is taken now.
func (s *scope) took(block int) {
	if n := len(s.modules); n > 0 {
		s.modules[n-1].blocks = append(s.modules[n-1].blocks, block)
	}
}

func (b *builder) mark(m *events.Mark) {
	s := &b.scope
	switch m.Kind {
	case events.Enter:
		if len(s.modules) < maxDepth {
			s.modules = append(s.modules, module{path: m.Name})
		}
	case events.Leave:
		if n := len(s.modules); n > 0 {
			b.leave(&s.modules[n-1])
			s.modules = s.modules[:n-1]
		}
	case events.Backward:
		s.backward = true
	case events.BackwardEnd:
		s.backward = false
	case events.Optimizer:
		s.optimize = true
	case events.OptimizerEnd:
		s.optimize = false
	case events.Step:
		// Whatever a forward that ended in an exception left open is over now.
		s.modules, s.backward, s.optimize = s.modules[:0], false, false
		b.timeline.Steps = append(b.timeline.Steps, Step{At: m.At, Number: m.Value})
	}
}

// leave ends a forward: what was taken in it and handed back before anything else was taken is the scratch of an operator, such as the workspace of a convolution. What
// lives longer, and ends within the forward too, is a tensor of the program's, such as the output of a relu between two layers.
func (b *builder) leave(m *module) {
	for _, n := range m.blocks {
		if block := &b.timeline.Blocks[n]; block.Category == Activations && b.scratch[n] {
			block.Category = Workspace
		}
	}
}

var categoryOf = map[events.Purpose]Category{events.Parameter: Parameters, events.Buffer: Parameters, events.Gradient: Gradients, events.State: OptimizerState,
	events.Argument: Arguments, events.Output: Outputs, events.Temporary: Temporaries}

// own gives the block at an address its owner. The first owner that is seen stays: a buffer that is also somebody's state is still one block.
func (b *builder) own(o *events.Owner) {
	n, ok := b.live[o.Addr]
	if !ok {
		return // not a block of this allocator, such as one of a pool that the program made
	}
	block := &b.timeline.Blocks[n]
	switch block.Category {
	case Parameters, Gradients, OptimizerState:
	default:
		block.Category, block.Owner = categoryOf[o.Purpose], o.Name
	}
}
