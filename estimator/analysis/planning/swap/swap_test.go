package swap

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"pgregory.net/rapid"
)

const mib = 1 << 20

// slowLink moves 1 MiB in 1,000 ns, so that numbers are easy.
var slowLink = Link{OutBytesPerSecond: mib * 1e6, InBytesPerSecond: mib * 1e6}

// training is a job with the shape of a training step: activations are made on the way forward and used again, the last first, on the way back.
func training(layers int, mibEach uint64, stepNanos int64) *Job {
	j := &Job{StepNanos: make([]int64, 2*layers+1)}
	for i := range j.StepNanos {
		j.StepNanos[i] = stepNanos
	}
	for i := range layers {
		back := 2*layers - 1 - i
		j.Blocks = append(j.Blocks, layout.Block{Start: int64(i), End: int64(back) + 1, SizeBytes: mibEach * mib})
		accesses := []int32{int32(i)}
		if back > i {
			accesses = append(accesses, int32(back))
		}
		j.Accesses = append(j.Accesses, accesses)
	}
	return j
}

func TestSlowStepsHideTheTransfers(t *testing.T) {
	j := training(10, 1, 10_000)
	p, outcomes, err := Make(t.Context(), j, 6*mib, slowLink, 0)
	if err != nil {
		t.Fatal(err, outcomes)
	}
	if p.StallNanos() != 0 || len(p.Moves) < 4 || p.PeakBytes > 6*mib {
		t.Errorf("stall %d, %d moves, peak %d MiB, by %s: %+v", p.StallNanos(), len(p.Moves), p.PeakBytes/mib, p.Policy, outcomes)
	}
}

func TestFastStepsWait(t *testing.T) {
	j := training(10, 1, 100)
	p, _, err := Make(t.Context(), j, 6*mib, slowLink, 0)
	if err != nil {
		t.Fatal(err)
	}
	var stalls int64
	for _, m := range p.Moves {
		stalls += m.StallNanos
	}
	// Four blocks go out and come back one at a time, 1,000 ns each; the way forward can only hide 100 ns of each.
	if p.StallNanos() < 2000 || stalls != p.StallNanos() {
		t.Errorf("the job waits %d ns, the moves say %d", p.StallNanos(), stalls)
	}
}

func TestNothingMovesWhenAllFits(t *testing.T) {
	p, _, err := Make(t.Context(), training(10, 1, 100), 10*mib, slowLink, 0)
	if err != nil || len(p.Moves) != 0 || p.StallNanos() != 0 || p.PoolBytes != 10*mib {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestWhatCannotFitIsNamed(t *testing.T) {
	j := training(10, 1, 100)
	j.Accesses[0], j.Accesses[1] = nil, nil // never moved
	_, _, err := Make(t.Context(), j, 2*mib, slowLink, 0)
	var need *NeedError
	if !errors.As(err, &need) || need.Step != 2 || need.NeedBytes != 3*mib {
		t.Errorf("%v", err)
	}
}

func TestBadJobsAreRefused(t *testing.T) {
	ok := func() *Job { return training(3, 1, 100) }
	for name, spoil := range map[string]func(j *Job){
		"negative time":     func(j *Job) { j.StepNanos[2] = -1 },
		"no time":           func(j *Job) { j.StepNanos[2] = 0 },
		"enormous time":     func(j *Job) { j.StepNanos[2] = 1 << 62 },
		"negative step":     func(j *Job) { j.Blocks[0].Start = -1 },
		"after the end":     func(j *Job) { j.Blocks[0].End = 100 },
		"out of order":      func(j *Job) { j.Accesses[0] = []int32{5, 0} },
		"used before made":  func(j *Job) { j.Accesses[2] = []int32{0} },
		"used after freed":  func(j *Job) { j.Accesses[2] = []int32{6} },
		"accesses missing":  func(j *Job) { j.Accesses = j.Accesses[:1] },
		"enormous block":    func(j *Job) { j.Blocks[0].SizeBytes = 1 << 63 },
		"more ends, no use": func(j *Job) { j.Blocks[0].End = j.Blocks[0].Start },
	} {
		j := ok()
		spoil(j)
		if _, _, err := Make(t.Context(), j, 8*mib, slowLink, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, link := range []Link{{}, {OutBytesPerSecond: -1, InBytesPerSecond: 1}, {OutBytesPerSecond: 1, InBytesPerSecond: 1, InLatencyNanos: -1}} {
		if _, _, err := Make(t.Context(), ok(), 8*mib, link, 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", link, err)
		}
	}
}

// TestPlansHold checks any plan: what is on the card at any time is never more than the target, addresses do not overlap, every block is there whenever it is
// used, transfers of one direction follow each other, and time never goes backwards.
func TestPlansHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		bound := layout.LiveBound(j.Blocks)
		target := bound * rapid.Uint64Range(30, 110).Draw(t, "percent") / 100
		p, _, err := Make(t.Context(), j, target, slowLink, 500)
		if err != nil {
			var need *NeedError
			if errors.As(err, &need) && (need.NeedBytes <= target && need.TargetBytes == target || bound <= target) {
				t.Fatalf("%v, live bound %d", err, bound)
			}
			if smallest, ok := Smallest(t.Context(), j, target, slowLink, 500); ok {
				if p, _, err := Make(t.Context(), j, smallest, slowLink, 500); err != nil || smallest <= target {
					t.Fatalf("%d, above %d, is said to work: %v", smallest, target, err)
				} else {
					hold(t, j, p, smallest)
				}
			} else if target > 0 && bound <= 2*target {
				t.Fatalf("no target above %d is found, the live bound is %d", target, bound)
			}
			return
		}
		hold(t, j, p, target)
	})
}

// TestAPlanForLessIsAPlanForMore: where a target has a plan, each larger one has.
func TestAPlanForLessIsAPlanForMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		bound := layout.LiveBound(j.Blocks)
		planned := uint64(0)
		for percent := uint64(40); percent <= 110; percent += 10 {
			target := bound * percent / 100
			p, _, err := Make(t.Context(), j, target, slowLink, -1)
			switch {
			case err == nil:
				hold(t, j, p, target)
				planned = cmp.Or(planned, target)
			case planned > 0:
				t.Fatalf("%d has a plan, %d has none: %v", planned, target, err)
			}
		}
	})
}

// TestChosenAsByLookingAtAll: the trees choose what is chosen by looking at each absence, each time.
func TestChosenAsByLookingAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawn(t)
		target := layout.LiveBound(j.Blocks) * rapid.Uint64Range(30, 100).Draw(t, "percent") / 100
		all := j.absences()
		for name, score := range map[string]func(s *situation) func(a Absence) float64{
			"DOA": func(s *situation) func(a Absence) float64 { return s.duration },
			"SWDOA": func(s *situation) func(a Absence) float64 {
				return s.weight
			},
			"relief": func(s *situation) func(a Absence) float64 {
				return func(a Absence) float64 {
					return relief(a, s.weight(a), s.duration(a), float64(j.Blocks[a.Block].SizeBytes))
				}
			},
		} {
			var want []Absence
			taken := make([]bool, len(all))
			s := look(newCourse(j), target, slowLink)
			for {
				peak := 0
				for i, l := range s.load {
					if l > s.load[peak] {
						peak = i
					}
				}
				for i, n := range j.StepNanos {
					s.over[i+1] = s.over[i] + float64(max(s.load[i]-s.target, 0))*float64(n)
				}
				best := -1
				for i, a := range all {
					if !taken[i] && int(a.From) < peak && peak < int(a.To) && (best < 0 || score(s)(a) > score(s)(all[best])) {
						best = i
					}
				}
				if s.load[peak] <= s.target || best < 0 {
					break
				}
				taken[best] = true
				want = append(want, all[best])
				for i := all[best].From + 1; i < all[best].To; i++ {
					s.load[i] -= int64(j.Blocks[all[best].Block].SizeBytes)
				}
			}
			policy := Policies[slices.IndexFunc(Policies, func(p Policy) bool { return p.Name == name })]
			if got := policy.choose(t.Context(), look(newCourse(j), target, slowLink)); !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", name, got, want)
			}
		}
	})
}

// drawn is a random job.
func drawn(t *rapid.T) *Job {
	steps := rapid.IntRange(2, 30).Draw(t, "steps")
	j := &Job{}
	for range steps {
		j.StepNanos = append(j.StepNanos, rapid.Int64Range(1, 3000).Draw(t, "nanos"))
	}
	for range rapid.IntRange(1, 25).Draw(t, "blocks") {
		start := rapid.IntRange(0, steps-1).Draw(t, "start")
		end := rapid.IntRange(start+1, steps).Draw(t, "end")
		j.Blocks = append(j.Blocks, layout.Block{Start: int64(start), End: int64(end), SizeBytes: rapid.Uint64Range(0, 4).Draw(t, "mib") * mib})
		var accesses []int32
		for s := start; s < end; s++ {
			if rapid.IntRange(0, 3).Draw(t, "use") == 0 {
				accesses = append(accesses, int32(s))
			}
		}
		j.Accesses = append(j.Accesses, accesses)
	}
	return j
}

// failer is what a test and a property have in common.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func hold(t failer, j *Job, p *Plan, target uint64) {
	blocks := make([]layout.Block, len(p.Pieces))
	l := layout.Layout{HeightBytes: target}
	stays := map[int32][]Piece{}
	for i, piece := range p.Pieces {
		blocks[i] = layout.Block{Start: piece.From, End: piece.To, SizeBytes: j.Blocks[piece.Block].SizeBytes}
		l.Offsets = append(l.Offsets, piece.Address)
		stays[piece.Block] = append(stays[piece.Block], piece)
	}
	if err := l.Verify(blocks); err != nil {
		t.Fatal(err)
	}
	if p.PeakBytes > target || layout.LiveBound(blocks) > p.PeakBytes {
		t.Fatalf("target %d, peak %d, live on the card %d", target, p.PeakBytes, layout.LiveBound(blocks))
	}
	if p.TotalNanos < p.BaseNanos {
		t.Fatalf("it ends before it can: %d, %d", p.TotalNanos, p.BaseNanos)
	}
	var stalls, lastOut int64
	ins := map[int64]bool{}
	for _, m := range p.Moves {
		stalls += m.StallNanos
		if m.OutStart < lastOut || m.OutEnd < m.OutStart || m.InStart < m.OutEnd || m.InEnd < m.InStart || m.InEnd > p.TotalNanos || m.StallNanos < 0 {
			t.Fatalf("time goes backwards: %+v after %d of %d", m, lastOut, p.TotalNanos)
		}
		lastOut = m.OutEnd
		ins[m.InStart] = true
		for at := m.OutEnd; at < m.InStart; at += max((m.InStart-m.OutEnd)/3, 1) {
			for _, s := range stays[m.Block] {
				if s.From <= at && at < s.To && s.From >= m.OutEnd && s.To <= m.InStart {
					t.Fatalf("block %d is on the card at %d: %+v, %+v", m.Block, at, m, s)
				}
			}
		}
	}
	if stalls != p.StallNanos() {
		t.Fatalf("the moves wait %d ns, the job %d", stalls, p.StallNanos())
	}
	if len(p.Moves) == 0 && len(p.Pieces) != len(j.Blocks) {
		t.Fatalf("%d pieces of %d blocks", len(p.Pieces), len(j.Blocks))
	}
	if len(p.Pieces) != len(j.Blocks)+len(p.Moves) {
		t.Fatalf("%d pieces, %d blocks, %d moves", len(p.Pieces), len(j.Blocks), len(p.Moves))
	}
}

// TestAPlanThatCannotGetBetterIsTaken: no effort is spent on other addresses for the same choice.
func TestAPlanThatCannotGetBetterIsTaken(t *testing.T) {
	j := training(300, 1, 10_000)
	for i := range j.Blocks { // sizes that no pool holds without gaps, so that a search would not end
		j.Blocks[i].SizeBytes += uint64(i*i*7919) % (3 * mib)
	}
	for _, target := range []uint64{1 << 40, 400 * mib} {
		p, _, err := Make(t.Context(), j, target, slowLink, 1<<60)
		if err != nil || p.tightened {
			t.Errorf("%v, %+v", err, p)
		}
	}
}

// TestLeast: what is found keeps to the slowdown, and more time allows less memory.
func TestLeast(t *testing.T) {
	j := training(20, 1, 300)
	var before uint64 = 1 << 60
	for _, slowdown := range []float64{1, 1.1, 1.5, 3} {
		target, ok, err := Least(t.Context(), j, slowdown, slowLink)
		if err != nil || !ok || target > before {
			t.Fatalf("%g: %d after %d, %v", slowdown, target, before, err)
		}
		before = target
		if p, _, err := Make(t.Context(), j, target, slowLink, -1); err != nil || float64(p.TotalNanos) > slowdown*float64(p.BaseNanos) {
			t.Errorf("%g: %+v, %v", slowdown, p, err)
		}
	}
	if before >= 20*mib {
		t.Errorf("nothing was saved: %d", before)
	}
	if _, ok, err := Least(t.Context(), j, 0.5, slowLink); ok || err != nil {
		t.Errorf("faster than without: %v", err)
	}
}

// TestTheEndOfTheContext: what was found by then is placed or refused, and nothing is called impossible for want of time.
func TestTheEndOfTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if p, _, err := Make(ctx, training(10, 1, 100), 6*mib, slowLink, 0); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", p, err)
	}
	if n, ok := Smallest(ctx, training(10, 1, 100), 2*mib, slowLink, 0); ok {
		t.Errorf("a smallest target of %d without any time", n)
	}
}
