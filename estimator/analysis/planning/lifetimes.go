// Package planning turns recorded allocator requests into blocks with lifetimes, and finds the iteration that a training program repeats.
package planning

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// ErrInvalid is returned for requests that no run of a program can make. The text names the request.
var ErrInvalid = errors.New("invalid trace")

// Lifetimes are the blocks of a program. Time counts requests: a block made by request i lives from i+1, before the first request it is 0; one freed by
// request i lives until before i+1. What is never freed lives until the end.
type Lifetimes struct {
	Blocks []layout.Block
	// Permanent tells, by block, that it is never freed in the trace.
	Permanent []bool
	// Requests is the number of requests; no block ends after Requests+1.
	Requests int
	// tokens hold, by allocation and free, what does not change from iteration to iteration.
	tokens []int64
	// requestOf is the request of each token.
	requestOf []int32
	// steps are how many tokens come before the end of each training step, where the record says.
	steps []int
}

// MadeBy is, by request, 1 more than the block that it made; 0 where it made none.
func (l *Lifetimes) MadeBy() []int32 {
	made := make([]int32, l.Requests)
	for i, b := range l.Blocks {
		if b.Start > 0 {
			made[b.Start-1] = int32(i) + 1
		}
	}
	return made
}

const maxRequestBytes = 1 << 48

// OfProgram reads the lifetimes of a program. Sizes are those of the allocator's blocks: requests rounded up as its settings say. A block that waits for
// another stream after it was freed counts as free.
func OfProgram(p *replay.Program) (*Lifetimes, error) {
	l := &Lifetimes{Requests: len(p.Ops)}
	of := make([]int32, p.Blocks) // 1 more than the index into l.Blocks; 0 is not live
	madeAt := make([]int32, p.Blocks)
	begin := func(number int32, start int64, size uint64) error {
		switch {
		case number < 0 || int(number) >= len(of):
			return fmt.Errorf("block %d of %d", number, len(of))
		case of[number] != 0:
			return fmt.Errorf("block %d is live already", number)
		case size > maxRequestBytes:
			return fmt.Errorf("%d bytes are impossible", size)
		}
		l.Blocks = append(l.Blocks, layout.Block{Start: start, End: int64(len(p.Ops)) + 1, SizeBytes: size})
		l.Permanent = append(l.Permanent, true)
		of[number] = int32(len(l.Blocks))
		return nil
	}
	for _, s := range p.Start {
		for _, b := range s.Blocks {
			if b.Pending {
				continue
			}
			if err := begin(b.Block, 0, b.SizeBytes); err != nil {
				return nil, fmt.Errorf("%s: start state: %w: %w", p.Name, ErrInvalid, err)
			}
		}
	}
	config := p.Config
	ends := p.Steps
	for i := range p.Ops {
		for ; len(ends) > 0 && ends[0] <= i; ends = ends[1:] {
			l.steps = append(l.steps, len(l.tokens))
		}
		switch op := &p.Ops[i]; op.Kind {
		case replay.OpAlloc:
			if op.Bytes == 0 || i < len(p.Answers) && p.Answers[i].OOM {
				continue
			}
			if op.Bytes > maxRequestBytes {
				return nil, fmt.Errorf("%s: request %d: %w: %d bytes are impossible", p.Name, i, ErrInvalid, op.Bytes)
			}
			if err := begin(op.Block, int64(i)+1, config.RoundSize(op.Bytes, p.Version)); err != nil {
				return nil, fmt.Errorf("%s: request %d: %w: %w", p.Name, i, ErrInvalid, err)
			}
			madeAt[op.Block] = int32(len(l.tokens))
			l.tokens, l.requestOf = append(l.tokens, int64(op.Bytes)), append(l.requestOf, int32(i))
		case replay.OpFree:
			if op.Block < 0 || int(op.Block) >= len(of) {
				return nil, fmt.Errorf("%s: request %d: %w: block %d of %d", p.Name, i, ErrInvalid, op.Block, len(of))
			}
			number := of[op.Block]
			if number == 0 {
				continue // of size 0, refused, or pending at the start
			}
			of[op.Block] = 0
			b := &l.Blocks[number-1]
			b.End = int64(i) + 1
			l.Permanent[number-1] = false
			distance := int64(0)
			if b.Start > 0 {
				distance = int64(len(l.tokens)) - int64(madeAt[op.Block])
			}
			l.tokens, l.requestOf = append(l.tokens, -1-distance), append(l.requestOf, int32(i))
		}
	}
	for range ends {
		l.steps = append(l.steps, len(l.tokens))
	}
	if err := layout.Check(l.Blocks); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", p.Name, ErrInvalid, err)
	}
	return l, nil
}
