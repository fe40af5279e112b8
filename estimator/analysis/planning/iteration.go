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

// stepThatRepeats is the training step that most others are like, and the last of those; nil where the record names no steps, or no two are alike. One that was
// looked at more closely asks for more blocks, and stands alone.
func (l *Lifetimes) stepThatRepeats() *Iteration {
	var best *Iteration
	for k := len(l.steps) - 2; k >= 0; k-- {
		step := l.tokens[l.steps[k]:l.steps[k+1]]
		if len(step) < minIterationTokens {
			continue
		}
		times := 0
		for i := range len(l.steps) - 1 {
			if other := l.tokens[l.steps[i]:l.steps[i+1]]; alike(step, other) {
				times++
			}
		}
		if times < 2 || best != nil && float64(times) <= best.Times {
			continue
		}
		best = &Iteration{First: int(l.requestOf[l.steps[k]]), Times: float64(times)}
		end := l.Requests
		if l.steps[k+1] < len(l.requestOf) {
			end = int(l.requestOf[l.steps[k+1]])
		}
		best.Requests = end - best.First
	}
	return best
}

// alike: as many requests, nearly all of them the same. What was made in the step before is freed at another distance where that one was longer.
func alike(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	differ := 0
	for i := range a {
		if a[i] != b[i] {
			differ++
		}
	}
	return differ*mismatchCost <= len(a)
}

// FindIteration looks for the iteration: the training step that repeats, where the record names steps; else the length after which the sequence of sizes and distances repeats over the longest stretch. Pointers do not
// appear in it. Lengths are proposed by pairs of equal stretches of a few requests, so that the work grows with the length of the trace only. It returns
// nil when nothing repeats.
func (l *Lifetimes) FindIteration() *Iteration {
	if it := l.stepThatRepeats(); it != nil {
		return it
	}
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
