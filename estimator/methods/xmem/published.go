package xmem

import (
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/methods/cpuprofile/rebuilt"
)

// The published program looks for conversions by the numbers of two types, and takes either for four bytes.
const (
	float32Code           = "6"
	int64Code             = "4"
	publishedElementBytes = 4
)

// publishedForeachStride is how many of the optimizer's blocks the published program passes over for each one that it adds as a temporary of an
// optimizer that works through lists: it takes every second one of every second one.
const publishedForeachStride = 4

// program follows the published program, faults included. Times are nanoseconds of the trace.
type program struct {
	*rebuilt.Profile
	// end is where the table of blocks ends: what is freed later lives for ever.
	end int64
	// owner maps the nodes of the graph to the leaf module whose call made them, lastEnd a leaf to the end of the last operator of its nodes.
	owner   map[int64]int32
	lastEnd map[int32]int64
	out     []rebuilt.Request
}

// published takes the first two recorded iterations. Only what leaf modules made is there; what was freed before a module's call or its backward
// operators ended is not; parameters of a CNN are the gradients that are left at the end; the state of an optimizer is whatever has the size of a
// parameter in its step.
func published(p *rebuilt.Profile) []rebuilt.Request {
	w := &program{Profile: p, end: p.Layout.Iterations[1].EndNanos, owner: map[int64]int32{}, lastEnd: map[int32]int64{}}
	w.findOwners()
	gradients := w.modules()
	sizes := w.parameters(gradients)
	for i := range 2 {
		w.batch(i)
	}
	w.optimizer(sizes)
	return w.out
}

// findOwners links operators of the forward pass to leaf modules, and the backward pass to them.
func (w *program) findOwners() {
	t := w.Trace
	leaves := w.Trace.LeafCalls()
	next := 0
	for i := range t.Ops {
		op := &t.Ops[i]
		for next < len(leaves) && t.Modules[leaves[next]].EndNanos < op.BeginNanos {
			next++
		}
		if next == len(leaves) {
			break
		}
		if m := &t.Modules[leaves[next]]; op.Sequence >= 0 && op.Thread == m.Thread && op.BeginNanos >= m.BeginNanos {
			w.owner[op.Sequence] = leaves[next]
		}
	}
	for i := range t.Ops {
		op := &t.Ops[i]
		if leaf, ok := w.owner[op.Sequence]; ok {
			w.lastEnd[leaf] = max(w.lastEnd[leaf], op.EndNanos)
		}
	}
}

func (w *program) iterationOf(nanos int64) int {
	for i, window := range w.Layout.Iterations[:2] {
		if nanos >= window.BeginNanos && nanos <= window.EndNanos {
			return i
		}
	}
	return -1
}

// died is the death of a block as the table has it.
func (w *program) died(b *cpuprofile.Block) int64 {
	if b.DiedNanos > w.end {
		return cpuprofile.Never
	}
	return b.DiedNanos
}

// modules adds the blocks of the leaf modules and returns the sizes of the gradients that live on after the second iteration, in their order.
func (w *program) modules() (gradients []int64) {
	zeroGrad := w.nextZeroGrad()
	for i := range w.Blocks {
		b, at := &w.Blocks[i], &w.Places[i]
		iteration := w.iterationOf(b.BornNanos)
		if iteration < 0 || at.Kind == cpuprofile.OptimizerStep {
			continue
		}
		leaf, forward := at.Leaf, true
		if leaf < 0 {
			owner, ok := w.owner[at.Node]
			if at.Node < 0 || !ok {
				continue
			}
			leaf, forward = owner, false
		}
		m := &w.Trace.Modules[leaf]
		if w.iterationOf(m.BeginNanos) != iteration {
			continue
		}
		died := w.died(b)
		ends := m.EndNanos
		if !forward {
			ends = w.lastEnd[leaf]
		}
		if name := strings.ToLower(w.Trace.Name(m)); died <= ends && !strings.Contains(name, "loss") && !strings.Contains(name, "cross") {
			continue
		}
		if !forward && died == cpuprofile.Never {
			if iteration == 1 {
				gradients = append(gradients, b.Bytes)
			} else {
				died = zeroGrad
			}
		}
		w.out = append(w.out, rebuilt.Request{Bytes: b.Bytes, Born: b.BornNanos, Died: died})
	}
	return gradients
}

// nextZeroGrad is where gradients of the first iteration end that the trace did not free: at the zero_grad of the second one, if it comes before the
// optimizer's step.
func (w *program) nextZeroGrad() int64 {
	second := w.Layout.Iterations[1]
	for _, z := range w.Layout.ZeroGrads {
		if z.BeginNanos < second.BeginNanos || z.BeginNanos > second.EndNanos {
			continue
		}
		if slices.ContainsFunc(w.Layout.Steps, func(s cpuprofile.Window) bool {
			return s.BeginNanos >= second.BeginNanos && s.BeginNanos < z.BeginNanos
		}) {
			return cpuprofile.Never
		}
		return z.BeginNanos
	}
	return cpuprofile.Never
}

// parameters puts the parameters before all else and returns their sizes: those of a transformer from the model, those of any other program from the
// gradients, the last one first.
func (w *program) parameters(gradients []int64) map[int64]bool {
	list := gradients
	if w.Trace.Transformers {
		list = nil
		for _, buffers := range []bool{false, true} {
			for _, weight := range w.Report.Weights {
				if weight.Bytes() > 0 && (weight.Kind() == cpuprofile.Buffer) == buffers {
					list = append(list, weight.Bytes())
				}
			}
		}
	}
	sizes := map[int64]bool{}
	for i, bytes := range slices.Backward(list) {
		sizes[bytes] = true
		w.out = append(w.out, rebuilt.Request{Bytes: bytes, Born: int64(-1 - i), Died: cpuprofile.Never})
	}
	return sizes
}

// batch adds what was converted outside of all modules, but for the last one, until the next iteration begins.
func (w *program) batch(iteration int) {
	window := w.Layout.Iterations[iteration]
	var found []rebuilt.Request
	for _, c := range w.Trace.Conversions {
		if c.AtNanos < window.BeginNanos || c.AtNanos > window.EndNanos || c.TypeCode != float32Code && c.TypeCode != int64Code || cpuprofile.At(w.Layout.ModuleCalls, c.AtNanos) >= 0 {
			continue
		}
		r := rebuilt.Request{Bytes: c.Elements * publishedElementBytes, Born: c.AtNanos, Died: cpuprofile.Never}
		if iteration == 0 {
			r.Died = w.Layout.Iterations[1].BeginNanos
		}
		found = append(found, r)
	}
	if len(found) > 0 {
		w.out = append(w.out, found[:len(found)-1]...)
	}
}

// optimizer adds what has the size of a parameter in the first step, for ever, and in each step a part of it once more, from its begin to its end.
func (w *program) optimizer(sizes map[int64]bool) {
	for iteration := range 2 {
		count := 0
		for i := range w.Blocks {
			b, at := &w.Blocks[i], &w.Places[i]
			if at.Kind != cpuprofile.OptimizerStep || w.iterationOf(b.BornNanos) != iteration || !sizes[b.Bytes] {
				continue
			}
			if iteration == 0 {
				w.out = append(w.out, rebuilt.Request{Bytes: b.Bytes, Born: b.BornNanos, Died: cpuprofile.Never})
			}
			if count%publishedForeachStride == 0 {
				step := w.Layout.Steps[cpuprofile.At(w.Layout.Steps, b.BornNanos)]
				w.out = append(w.out, rebuilt.Request{Bytes: b.Bytes, Born: b.BornNanos, Died: step.EndNanos})
			}
			count++
		}
	}
}
