package planning

import (
	"fmt"
	"sort"

	"github.com/gresize/gresize/estimator/allocator/replay"
)

// Place is a moment of a run as the Python layer notes it: how many blocks the allocator had handed out, and had got back.
type Place [2]int64

// Places finds the requests of places in a program that was recorded from its first request on.
type Places struct {
	afterAlloc []int32 // by blocks handed out: how many requests come before
	frees      []int32 // by request: blocks given back before it
	requests   int
}

// NewPlaces reads a program.
func NewPlaces(p *replay.Program) *Places {
	s := &Places{afterAlloc: []int32{0}, frees: make([]int32, len(p.Ops)+1), requests: len(p.Ops)}
	for i := range p.Ops {
		s.frees[i+1] = s.frees[i]
		switch op := &p.Ops[i]; {
		case op.Kind == replay.OpAlloc && !(i < len(p.Answers) && p.Answers[i].OOM):
			s.afterAlloc = append(s.afterAlloc, int32(i)+1)
		case op.Kind == replay.OpFree:
			s.frees[i+1]++
		}
	}
	return s
}

// Request is how many requests were made before a place.
func (s *Places) Request(at Place) (int, error) {
	if at[0] < 0 || at[0] >= int64(len(s.afterAlloc)) {
		return 0, fmt.Errorf("%w: %d blocks handed out, the allocator's record has %d", ErrInvalid, at[0], len(s.afterAlloc)-1)
	}
	from, to := int(s.afterAlloc[at[0]]), s.requests
	if at[0]+1 < int64(len(s.afterAlloc)) {
		to = int(s.afterAlloc[at[0]+1]) - 1
	}
	return from + sort.Search(to-from, func(i int) bool { return int64(s.frees[from+i]) >= at[1] }), nil
}
