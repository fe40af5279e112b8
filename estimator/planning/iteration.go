package planning

import (
	"cmp"
	"slices"
)

// Iteration is what a program repeats.
type Iteration struct {
	// First is the request with which the first full repetition begins; Requests is the length of one, and Times how often it was seen, the last one
	// perhaps in part.
	First, Requests int
	Times           float64
}

const (
	// minIterationTokens is the shortest sequence of allocations and frees that counts as an iteration: a loop over parameters is none.
	minIterationTokens = 20
	// maxPeriods bounds how many lengths are tried.
	maxPeriods = 48
	gram       = 6
	// mismatchCost is how many requests that repeat outweigh one that does not: SmartPool's detection breaks at a single one.
	mismatchCost = 10
)

// FindIteration looks for the iteration: the length after which the sequence of sizes and distances repeats over the longest stretch. Pointers do not
// appear in it. Lengths are proposed by pairs of equal stretches of a few requests, so that the work grows with the length of the trace only. It returns
// nil when nothing repeats.
func (l *Lifetimes) FindIteration() *Iteration {
	t := l.tokens
	if len(t) < 2*minIterationTokens {
		return nil
	}
	votes := map[int32]int32{}
	last := make(map[uint64]int32, len(t)/4)
	for i := 0; i+gram <= len(t); i++ {
		h := uint64(14695981039346656037)
		for _, v := range t[i : i+gram] {
			h = (h ^ uint64(v)) * 1099511628211
			h ^= h >> 29
		}
		if before, ok := last[h]; ok && int32(i)-before >= minIterationTokens {
			votes[int32(i)-before]++
		}
		last[h] = int32(i)
	}
	type proposal struct{ period, votes int32 }
	proposals := make([]proposal, 0, len(votes))
	for p, n := range votes {
		proposals = append(proposals, proposal{p, n})
	}
	slices.SortFunc(proposals, func(a, b proposal) int {
		return cmp.Or(cmp.Compare(b.votes, a.votes), cmp.Compare(a.period, b.period))
	})
	type seen struct{ period, at, cover int }
	var repeats []seen
	widest := 0
	for _, p := range proposals[:min(maxPeriods, len(proposals))] {
		period := int(p.period)
		// The stretch with the most agreement; a request that is not the same costs, and does not end it.
		run, longest, begin, at := 0, 0, period, 0
		for i := period; i < len(t); i++ {
			if t[i] == t[i-period] {
				run++
			} else if run -= mismatchCost; run <= 0 {
				run, begin = 0, i+1
			}
			if run > longest {
				longest, at = run, begin-period
			}
		}
		if longest >= period {
			repeats = append(repeats, seen{period, at, longest + period})
			widest = max(widest, longest+period)
		}
	}
	// A multiple of the iteration repeats over the same stretch: the shortest length that covers nearly as much as the best is taken.
	repeats = slices.DeleteFunc(repeats, func(s seen) bool { return s.cover < widest-widest/20 })
	if len(repeats) == 0 {
		return nil
	}
	best := slices.MinFunc(repeats, func(a, b seen) int { return cmp.Compare(a.period, b.period) })
	it := &Iteration{First: int(l.requestOf[best.at]), Times: float64(best.cover) / float64(best.period)}
	it.Requests = int(l.requestOf[best.at+best.period]) - it.First
	return it
}
