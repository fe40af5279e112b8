package swap

import (
	"cmp"
	"context"
	"slices"
)

// Policy chooses absences for a target.
type Policy struct {
	Name   string
	choose func(ctx context.Context, j *Job, target uint64, link Link) []Absence
}

// Policies are the four published scores, their sum of ranks, a score that buys relief at the least traffic, and no choice beforehand: then what is used
// farthest ahead leaves when room is needed.
var Policies = []Policy{
	{"DOA", static(durations)},
	{"AOA", static(areas)},
	{"WDOA", static(weights)},
	{"SWDOA", submodular(func(_ Absence, weight, _, _ float64) float64 { return weight })},
	{"ranks", static(ranks)},
	{"relief", submodular(relief)},
	{"on demand", func(context.Context, *Job, uint64, Link) []Absence { return nil }},
}

// situation is what a score may look at.
type situation struct {
	job    *Job
	link   Link
	target int64
	load   []int64
	// began is when each step begins without swapping.
	began []int64
	// over is, summed up to each step, how far the load is over the target, times the time it lasts.
	over []float64
}

func look(j *Job, target uint64, link Link) *situation {
	s := &situation{job: j, link: link, target: int64(target), load: j.load(), began: make([]int64, len(j.StepNanos)+1), over: make([]float64, len(j.StepNanos)+1)}
	for i, n := range j.StepNanos {
		s.began[i+1] = s.began[i] + n
	}
	s.weigh()
	return s
}

func (s *situation) weigh() {
	for i, n := range s.job.StepNanos {
		s.over[i+1] = s.over[i] + float64(max(s.load[i]-s.target, 0))*float64(n)
	}
}

// duration of absence: from the end of one access to the begin of the next, less the transfers.
func (s *situation) duration(a Absence) float64 {
	size := s.job.Blocks[a.Block].SizeBytes
	return float64(s.began[a.To] - s.began[a.From+1] - s.link.outNanos(size) - s.link.inNanos(size))
}

func (s *situation) weight(a Absence) float64 { return s.over[a.To] - s.over[a.From+1] }

func durations(s *situation, all []Absence) []float64 {
	return each(all, s.duration)
}

func areas(s *situation, all []Absence) []float64 {
	return each(all, func(a Absence) float64 {
		size := float64(s.job.Blocks[a.Block].SizeBytes)
		if d := s.duration(a); d < 0 {
			return d / size
		} else {
			return d * size
		}
	})
}

func weights(s *situation, all []Absence) []float64 {
	return each(all, s.weight)
}

// ranks adds the places that the other three give.
func ranks(s *situation, all []Absence) []float64 {
	sum := make([]float64, len(all))
	order := make([]int, len(all))
	for _, scores := range [][]float64{durations(s, all), areas(s, all), weights(s, all)} {
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
		for place, i := range order {
			sum[i] += float64(place)
		}
	}
	return sum
}

func each(all []Absence, score func(Absence) float64) []float64 {
	scores := make([]float64, len(all))
	for i, a := range all {
		scores[i] = score(a)
	}
	return scores
}

// relief is the weight bought by each byte moved; what cannot be hidden behind the job's own time comes last.
func relief(_ Absence, weight, duration, size float64) float64 {
	if duration < 0 {
		return duration / size * 1e-9
	}
	return weight / size
}

// static takes absences in the order of a score that is worked out once: at the highest load, the best of those that lower it, until all is below.
func static(score func(s *situation, all []Absence) []float64) func(context.Context, *Job, uint64, Link) []Absence {
	return func(ctx context.Context, j *Job, target uint64, link Link) []Absence {
		s := look(j, target, link)
		all := j.absences()
		scores := score(s, all)
		return s.take(ctx, all, func() func(i int) float64 { return func(i int) float64 { return scores[i] } })
	}
}

// submodular works the score out again after every choice, with the load that is left.
func submodular(score func(a Absence, weight, duration, size float64) float64) func(context.Context, *Job, uint64, Link) []Absence {
	return func(ctx context.Context, j *Job, target uint64, link Link) []Absence {
		s := look(j, target, link)
		all := j.absences()
		return s.take(ctx, all, func() func(i int) float64 {
			s.weigh()
			return func(i int) float64 {
				a := all[i]
				return score(a, s.weight(a), s.duration(a), float64(j.Blocks[a.Block].SizeBytes))
			}
		})
	}
}

// maxScored bounds the work of choosing: absences looked at.
const maxScored = 1 << 28

// take chooses until the load is nowhere above the target, nothing lowers its peak, or ctx ends.
func (s *situation) take(ctx context.Context, all []Absence, rescore func() func(i int) float64) (chosen []Absence) {
	taken := make([]bool, len(all))
	for work := 0; work < maxScored && ctx.Err() == nil; work += len(all) + 2*len(s.load) {
		peak := int32(0)
		for i, l := range s.load {
			if l > s.load[peak] {
				peak = int32(i)
			}
		}
		if len(s.load) == 0 || s.load[peak] <= s.target {
			break
		}
		score := rescore()
		best := -1
		var bestScore float64
		for i, a := range all {
			if taken[i] || a.From >= peak || a.To <= peak {
				continue
			}
			if v := score(i); best < 0 || v > bestScore {
				best, bestScore = i, v
			}
		}
		if best < 0 {
			break
		}
		taken[best] = true
		a := all[best]
		chosen = append(chosen, a)
		for i := a.From + 1; i < a.To; i++ {
			s.load[i] -= int64(s.job.Blocks[a.Block].SizeBytes)
		}
	}
	return chosen
}
