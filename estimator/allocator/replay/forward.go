package replay

import (
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
)

// forward turns entries into requests and answers.
type forward struct {
	program *Program
	blockAt map[uint64]int32
	pending map[uint64]pendingBlock
	// waiting are events seen before the request that caused them.
	waiting []allocator.Event
	streams uint64
}

type pendingBlock struct {
	stream uint64
	op     int
}

// firstPseudoStream begins the numbers of streams that stand for "whatever the freed block waits for".
const firstPseudoStream = 1 << 63

func (f *forward) block() int32 {
	f.program.Blocks++
	return int32(f.program.Blocks - 1)
}

func (f *forward) request(op Op, answer Answer) int {
	f.program.Ops = append(f.program.Ops, op)
	f.program.Answers = append(f.program.Answers, answer)
	return len(f.program.Ops) - 1
}

// free requests a free that completes later, at a moment that is not known yet.
func (f *forward) free(block int32, addr uint64, events []allocator.Event) {
	stream := firstPseudoStream + f.streams
	f.streams++
	op := f.request(Op{Kind: OpFree, Block: block, Stream: stream}, Answer{Events: events})
	f.pending[addr] = pendingBlock{stream, op}
	f.program.pendingUntil[stream] = maxOps
	delete(f.blockAt, addr)
}

func (f *forward) add(e *snapshot.Entry) error {
	if e.SizeBytes > 1<<48 {
		return fmt.Errorf("%v of %d bytes is impossible", e.Action, e.SizeBytes)
	}
	kind, ok := kindOf(e.Action)
	if !ok {
		return nil
	}
	event := allocator.Event{Kind: kind, Addr: e.Addr, SizeBytes: e.SizeBytes, Stream: e.Stream}
	switch e.Action {
	case snapshot.ActionAlloc, snapshot.ActionOOM:
		if e.Action == snapshot.ActionAlloc {
			f.splitRelease()
		}
		op := Op{Kind: OpAlloc, Block: f.block(), Bytes: e.SizeBytes, Stream: e.Stream}
		answer := Answer{Events: append(f.waiting, event)}
		f.waiting = nil
		if e.Action == snapshot.ActionOOM {
			answer.OOM = true
		} else {
			answer.HasAddr, answer.Addr = true, e.Addr
			if _, taken := f.blockAt[e.Addr]; taken {
				return fmt.Errorf("alloc at %#x: the block there is live", e.Addr)
			}
			f.blockAt[e.Addr] = op.Block
		}
		f.request(op, answer)
	case snapshot.ActionFreeRequested:
		block, live := f.blockAt[e.Addr]
		if !live {
			return fmt.Errorf("free_requested at %#x: no block is live there", e.Addr)
		}
		if len(f.waiting) > 0 {
			f.flush()
		}
		f.free(block, e.Addr, []allocator.Event{event})
	case snapshot.ActionFreeCompleted:
		p, waits := f.pending[e.Addr]
		if !waits {
			return fmt.Errorf("free_completed at %#x: it was not requested", e.Addr)
		}
		delete(f.pending, e.Addr)
		if p.op == len(f.program.Ops)-1 && len(f.waiting) == 0 {
			// The usual case: it completes at once. No other stream is involved.
			delete(f.program.pendingUntil, p.stream)
			f.program.Ops[p.op].Stream = 0
			f.program.Answers[p.op].Events = append(f.program.Answers[p.op].Events, event)
			return nil
		}
		f.program.pendingUntil[p.stream] = len(f.program.Ops)
		f.waiting = append(f.waiting, event)
	default:
		f.waiting = append(f.waiting, event)
	}
	return nil
}

// splitRelease ascribes segments that were given back, without a new one after them, to an empty_cache call before the allocation: an allocation that
// gives something back grows afterwards, or fails.
func (f *forward) splitRelease() {
	last := lastRelease(f.waiting)
	if last < 0 || slices.ContainsFunc(f.waiting[last:], func(e allocator.Event) bool {
		return e.Kind == allocator.EventSegmentAlloc || e.Kind == allocator.EventSegmentMap
	}) {
		return
	}
	rest := slices.Clone(f.waiting[last+1:])
	f.waiting = f.waiting[:last+1]
	f.flush()
	f.waiting = rest
}

// lastRelease is the index of the last event that gave memory back, or -1.
func lastRelease(events []allocator.Event) int {
	for i := len(events) - 1; i >= 0; i-- {
		if k := events[i].Kind; k == allocator.EventSegmentFree || k == allocator.EventSegmentUnmap {
			return i
		}
	}
	return -1
}

// flush ascribes events that no allocation explains to an empty_cache call: segments that are given back, with what was waiting.
func (f *forward) flush() {
	f.request(Op{Kind: OpEmptyCache}, Answer{Events: f.waiting})
	f.waiting = nil
}

func (f *forward) finish() {
	if len(f.waiting) > 0 {
		f.flush()
	}
}
