package replay

import (
	"slices"

	"github.com/gresize/gresize/estimator/allocator"
)

// A history does not say why memory was given back, nor whether a delayed free completed by itself or was waited for. reading is how one request is read.
type reading uint8

const (
	asRequested   reading = iota // the request gave back, and frees had completed by themselves
	waitedFor                    // the request waited for the frees, after its search had failed
	afterEmptying                // an empty_cache call came before the request
	undecided
)

// maxReadings bounds how often a history is read again.
const maxReadings = 64

// resolveReleases chooses the reading of each ambiguous request under which the simulator agrees with the record, and writes it into the program.
func (p *Program) resolveReleases() error {
	readings := map[int]reading{}
	for range maxReadings {
		restore := p.delay(readings)
		var emptied []int // in this pass, because the request would have fitted
		res, err := p.check(func(c *checker, i int) {
			op := &p.Ops[i]
			if op.Kind != OpAlloc || lastRelease(p.Answers[i].Events) < 0 || readings[i] == waitedFor {
				return
			}
			// What fits without the frees that complete now would have been served: then the cache was emptied before.
			if readings[i] != afterEmptying && c.runner.a.Fits(op.Bytes, op.Stream) {
				readings[i] = afterEmptying
				emptied = append(emptied, i)
			}
			if readings[i] == afterEmptying {
				c.runner.a.EmptyCache()
			}
		})
		if err != nil {
			return err
		}
		if res.First == nil || res.First.Op >= len(p.Ops) {
			break
		}
		i := res.First.Op
		// Past the first difference the simulator is in another state than the real allocator was: what fits there says nothing.
		for _, later := range emptied {
			if later > i {
				delete(readings, later)
			}
		}
		next := readings[i] + 1
		if next == waitedFor && !slices.ContainsFunc(p.Answers[i].Events, func(e allocator.Event) bool { return e.Kind == allocator.EventFreeCompleted }) {
			next++
		}
		if next == afterEmptying && lastRelease(p.Answers[i].Events) < 0 {
			next++
		}
		restore()
		if p.Ops[i].Kind != OpAlloc || next >= undecided && !p.reopenFree(i) {
			break // no reading agrees: the difference stands
		}
		if next >= undecided {
			next = waitedFor
		}
		readings[i] = next
	}
	var before []int
	for i, r := range readings {
		if r == afterEmptying {
			before = append(before, i)
		}
	}
	if len(before) > 0 {
		slices.Sort(before)
		p.insertEmptyCache(before)
	}
	return nil
}

// delay makes frees that were waited for complete only when they are waited for. The returned function takes that back.
func (p *Program) delay(readings map[int]reading) func() {
	old := map[uint64]int{}
	for stream, until := range p.pendingUntil {
		if readings[until] == waitedFor {
			old[stream] = until
			p.pendingUntil[stream] = maxOps
		}
	}
	return func() {
		for stream, until := range old {
			p.pendingUntil[stream] = until
		}
	}
}

// reopenFree takes the completion of a free away from it and gives it to the request that follows at once: its search came first, and it then waited.
func (p *Program) reopenFree(i int) bool {
	if i == 0 || p.Ops[i-1].Kind != OpFree || p.Ops[i-1].Stream != 0 || len(p.Answers[i-1].Events) != 2 {
		return false
	}
	stream := uint64(firstPseudoStream + 1<<62 + uint64(i))
	p.Ops[i-1].Stream = stream
	p.pendingUntil[stream] = i
	completed := p.Answers[i-1].Events[1]
	p.Answers[i-1].Events = p.Answers[i-1].Events[:1:1]
	p.Answers[i].Events = append([]allocator.Event{completed}, p.Answers[i].Events...)
	return true
}

func (p *Program) insertEmptyCache(before []int) {
	ops := make([]Op, 0, len(p.Ops)+len(before))
	answers := make([]Answer, 0, len(p.Ops)+len(before))
	moved := make([]int, len(p.Ops)+1)
	for i, op := range p.Ops {
		moved[i] = len(ops)
		answer := p.Answers[i]
		if len(before) > 0 && before[0] == i {
			before = before[1:]
			last := lastRelease(answer.Events)
			ops = append(ops, Op{Kind: OpEmptyCache})
			answers = append(answers, Answer{Events: answer.Events[:last+1]})
			answer.Events = answer.Events[last+1:]
		}
		ops = append(ops, op)
		answers = append(answers, answer)
	}
	moved[len(p.Ops)] = len(ops)
	for stream, until := range p.pendingUntil {
		if until <= len(p.Ops) {
			p.pendingUntil[stream] = moved[until]
		}
	}
	p.Ops, p.Answers = ops, answers
}
