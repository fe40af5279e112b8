package events

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator/snapshot"
)

// The purposes that are told from when a block was handed out, where no owner is named.
const (
	// Activation is memory that was handed out in the forward of a module.
	Activation Purpose = "activation"
	// InBackward and InOptimizer were handed out in a backward pass and in a step of an optimizer and have no name.
	InBackward  Purpose = "backward"
	InOptimizer Purpose = "optimizer temporary"
	// Elsewhere is the rest, such as batches and losses.
	Elsewhere Purpose = "other"
)

// Holding is the memory that one owner has at the peak.
type Holding struct {
	Purpose Purpose
	// Name is the path of the parameter or of the module; empty where neither is known.
	Name   string
	Bytes  int64
	Blocks int
}

// holder is whom a block belongs to.
type holder struct {
	purpose Purpose
	name    string
}

type heldBlock struct {
	bytes int64
	holder
}

// Holdings returns what was allocated when most was, by owner, the largest first, and the sum of all. Equal entries come in the order of their names.
func (h *History) Holdings() ([]Holding, int64) {
	blocks, peakAt, peakBytes := h.blocks()
	live := map[uint64]int{}
	for i := 0; i <= peakAt && i < len(h.Entries); i++ {
		switch e := &h.Entries[i]; e.Action {
		case snapshot.ActionAlloc:
			live[e.Addr] = i
		case snapshot.ActionFreeRequested, snapshot.ActionFreeCompleted:
			delete(live, e.Addr)
		}
	}
	sums := map[holder]*Holding{}
	for _, i := range live {
		b := blocks[i]
		s := sums[b.holder]
		if s == nil {
			s = &Holding{Purpose: b.purpose, Name: b.name}
			sums[b.holder] = s
		}
		s.Bytes += b.bytes
		s.Blocks++
	}
	list := make([]Holding, 0, len(sums))
	for _, s := range sums {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(string(a.Purpose), string(b.Purpose)), strings.Compare(a.Name, b.Name))
	})
	return list, peakBytes
}

// blocks finds whom each block belongs to, by the index of its entry, and the entry after which most is allocated. An owner
// is often named after the peak, so the whole history is read first.
func (h *History) blocks() (blocks map[int]heldBlock, peakAt int, peakBytes int64) {
	blocks, peakAt = map[int]heldBlock{}, -1
	live := map[uint64]int{}
	var now int64
	marks, owners := h.Marks, h.Owners
	var where place
	for i := 0; i <= len(h.Entries); i++ {
		for len(marks) > 0 && marks[0].At <= i {
			where.pass(&marks[0])
			marks = marks[1:]
		}
		for ; len(owners) > 0 && owners[0].At <= i; owners = owners[1:] {
			if k, ok := live[owners[0].Addr]; ok {
				b := blocks[k]
				b.holder = holder{owners[0].Purpose, owners[0].Name}
				blocks[k] = b
			}
		}
		if i == len(h.Entries) {
			break
		}
		switch e := &h.Entries[i]; e.Action {
		case snapshot.ActionAlloc:
			blocks[i] = heldBlock{int64(e.SizeBytes), where.holder()}
			live[e.Addr] = i
			if now += int64(e.SizeBytes); now > peakBytes {
				peakAt, peakBytes = i, now
			}
		case snapshot.ActionFreeRequested, snapshot.ActionFreeCompleted:
			if k, ok := live[e.Addr]; ok {
				now -= blocks[k].bytes
				delete(live, e.Addr)
			}
		}
	}
	return blocks, peakAt, peakBytes
}

// place is where in the program an entry stands.
type place struct {
	modules             []string
	backward, optimizer int
}

const maxDepth = 1 << 10

func (p *place) pass(m *Mark) {
	switch m.Kind {
	case Enter:
		if len(p.modules) < maxDepth {
			p.modules = append(p.modules, m.Name)
		}
	case Leave:
		p.modules = p.modules[:max(0, len(p.modules)-1)]
	case Backward:
		p.backward++
	case BackwardEnd:
		p.backward = max(0, p.backward-1)
	case Optimizer:
		p.optimizer++
	case OptimizerEnd:
		p.optimizer = max(0, p.optimizer-1)
	case Step:
		// A forward that was left by an exception has no end of its own.
		*p = place{}
	}
}

func (p *place) holder() holder {
	switch {
	case p.optimizer > 0:
		return holder{purpose: InOptimizer}
	case len(p.modules) > 0:
		return holder{Activation, p.modules[len(p.modules)-1]}
	case p.backward > 0:
		return holder{purpose: InBackward}
	}
	return holder{purpose: Elsewhere}
}
