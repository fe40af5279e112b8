package swap

import (
	"context"

	"github.com/gresize/gresize/estimator/analysis/planning/layout"
)

// Policy chooses absences for a target.
type Policy struct {
	Name   string
	choose func(ctx context.Context, s *situation) []Absence
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
	{"on demand", func(context.Context, *situation) []Absence { return nil }},
}

// situation is what a score may look at.
type situation struct {
	*course
	link   Link
	target int64
	// over is, summed up to each step, how far the load is over the target, times the time it lasts.
	over []float64
}

func look(c *course, target uint64, link Link) *situation {
	s := &situation{course: c, link: link, target: int64(target), over: make([]float64, len(c.job.StepNanos)+1)}
	for i, n := range c.job.StepNanos {
		s.over[i+1] = s.over[i] + float64(max(s.load[i]-s.target, 0))*float64(n)
	}
	return s
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
	for _, scores := range [][]float64{durations(s, all), areas(s, all), weights(s, all)} {
		for i := range scores {
			scores[i] = -scores[i]
		}
		for place, i := range layout.ByFalling(scores) {
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

// static takes absences in the order of a score that is worked out once.
func static(score func(s *situation, all []Absence) []float64) func(context.Context, *situation) []Absence {
	return func(ctx context.Context, s *situation) []Absence {
		return newChooser(s, score(s, s.absences)).take(ctx, s, nil)
	}
}

// submodular works the score out again after every choice, with the load that is left: it can only have fallen, so that only those that come first by what they
// were are looked at.
func submodular(score func(a Absence, weight, duration, size float64) float64) func(context.Context, *situation) []Absence {
	return func(ctx context.Context, s *situation) []Absence {
		rescore := func(a Absence, weight float64) float64 {
			return score(a, weight, s.duration(a), float64(s.job.Blocks[a.Block].SizeBytes))
		}
		scores := each(s.absences, func(a Absence) float64 { return rescore(a, s.weight(a)) })
		return newChooser(s, scores).take(ctx, s, rescore)
	}
}
