package planning

import (
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
)

// training is a program of steps over two parameters: each makes an activation with the first and one with the second, and goes back. In the step that was looked at, one
// more block is made. What its operators use is noted.
type training struct {
	p            *replay.Program
	allocs, free int64
	uses         []Use
	looking      bool
}

func (t *training) make(bytes uint64) int32 {
	block := int32(t.p.Blocks)
	// Memory is used again: a block of an activation lies where one of the step before did.
	address := uint64(bytes)<<20 | 1
	t.p.Ops = append(t.p.Ops, replay.Op{Kind: replay.OpAlloc, Block: block, Bytes: bytes})
	t.p.Answers = append(t.p.Answers, replay.Answer{HasAddr: true, Addr: address})
	t.p.Blocks++
	t.allocs++
	return block
}

func (t *training) end(block int32) {
	t.p.Ops = append(t.p.Ops, replay.Op{Kind: replay.OpFree, Block: block})
	t.p.Answers = append(t.p.Answers, replay.Answer{})
	t.free++
}

// operator makes a block of the size, where it is not 0, and uses it and others.
func (t *training) operator(bytes uint64, others ...uint64) (made int32) {
	from := Place{t.allocs, t.free}
	if bytes > 0 {
		made = t.make(bytes)
		others = append(others, bytes)
	}
	if t.looking {
		u := Use{From: from, To: Place{t.allocs, t.free}, Seconds: 1e-3}
		for _, size := range others {
			u.Addresses = append(u.Addresses, size<<20|1)
		}
		t.uses = append(t.uses, u)
	}
	return made
}

const first, second = 2 << 20, 3 << 20 // the parameters' sizes, which name them

func (t *training) step() {
	a := t.operator(5<<20, first)
	b := t.operator(6<<20, second, 5<<20)
	for range 10 {
		t.end(t.operator(7<<20, 6<<20))
	}
	if t.looking {
		t.end(t.operator(8 << 20))
	}
	t.operator(0, second, 6<<20)
	t.end(b)
	t.operator(0, first, 5<<20)
	t.end(a)
	t.p.Steps = append(t.p.Steps, len(t.p.Ops))
}

// trained has four steps, of which the third was looked at.
func trained() *training {
	t := &training{p: &replay.Program{Name: "training", Version: allocator.Newest}}
	t.make(first)
	t.make(second)
	t.p.Steps = append(t.p.Steps, len(t.p.Ops))
	for k := range 4 {
		t.looking = k == 2
		t.step()
	}
	return t
}

// TestUsesOfAllSteps: what one step was seen to use is found again in the others, for blocks of a step and for those that live on.
func TestUsesOfAllSteps(t *testing.T) {
	tr := trained()
	l, err := OfProgram(tr.p)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := l.See(tr.p, tr.uses)
	if err != nil || seen.Steps != 4 || !seen.Timed() {
		t.Fatalf("%+v, %v", seen, err)
	}
	job, err := l.Job(DefaultClock, nil, seen)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Check(); err != nil {
		t.Error(err)
	}
	for i, b := range l.Blocks {
		accesses := job.Accesses[i]
		switch b.SizeBytes {
		case first, second:
			// In each of four steps before and behind the request of its first operator, and by another one; and while the parameters were made.
			if n := len(accesses); n < 1+3*4 || n > 2+3*4 {
				t.Errorf("a parameter of %d bytes is used at %d", b.SizeBytes, accesses)
			}
		case 5 << 20: // by its operator, by the next one, and at the end
			if len(accesses) != 3 || int64(accesses[0]) != b.Start || int64(accesses[2]) < b.End-3 {
				t.Errorf("an activation that lives from %d to %d is used at %d", b.Start, b.End, accesses)
			}
		case 6 << 20: // by each of the operators behind it
			if len(accesses) < 11 {
				t.Errorf("an activation that lives from %d to %d is used at %d", b.Start, b.End, accesses)
			}
		}
	}
	total := int64(0)
	for _, n := range job.StepNanos {
		total += n
	}
	if want := int64(4 * 14e6); total < want || total > want+want/10 {
		t.Errorf("the steps take %d ns, the operators of four %d", total, want)
	}
	guess, err := l.Job(DefaultClock, nil, nil)
	if err != nil || len(guess.Accesses[0]) != 0 || slices.Equal(guess.StepNanos, job.StepNanos) {
		t.Errorf("without uses: %d, %v", guess.Accesses[0], err)
	}
}

// TestUsesOfOneStepOnly: a step that is not like the one that was looked at may use what lives on at any time.
func TestUsesOfOneStepOnly(t *testing.T) {
	tr := trained()
	for i := range tr.p.Steps[1] { // the first step has other sizes
		if op := &tr.p.Ops[i]; op.Kind == replay.OpAlloc && op.Bytes > second {
			op.Bytes += 512
		}
	}
	l, err := OfProgram(tr.p)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := l.See(tr.p, tr.uses)
	if err != nil || seen.Steps != 3 {
		t.Fatalf("%+v, %v", seen, err)
	}
	job, err := l.Job(DefaultClock, nil, seen)
	if err != nil {
		t.Fatal(err)
	}
	for step := int32(1); step <= int32(tr.p.Steps[1]); step++ {
		if !slices.Contains(job.Accesses[0], step) {
			t.Fatalf("a parameter is not used at step %d of a training step that is not known: %d", step, job.Accesses[0])
		}
	}
}

func TestBadUses(t *testing.T) {
	for says, change := range map[string]func(tr *training){
		"blocks handed out": func(tr *training) { tr.uses[0].From[0] = 1 << 40 },
		"before the one":    func(tr *training) { tr.uses[0], tr.uses[5] = tr.uses[5], tr.uses[0] },
		"of one step":       func(tr *training) { tr.uses[0].From, tr.uses[0].To = Place{1, 0}, Place{1, 0} },
		"more than 33554432": func(tr *training) {
			last := tr.uses[len(tr.uses)-1]
			for i := range tr.uses { // each is one of the whole step
				tr.uses[i] = Use{From: tr.uses[0].From, To: last.To, Addresses: []uint64{first<<20 | 1}}
			}
			tr.uses = slices.Repeat(tr.uses, 1<<16)
		},
		"100000 steps":         func(tr *training) { tr.p.Steps, tr.uses = make([]int, 100000), slices.Repeat(tr.uses, 30) },
		"no use":               func(tr *training) { tr.uses = nil },
		"begin with the first": func(tr *training) { tr.p.Start = []replay.StartSegment{{}} },
	} {
		tr := trained()
		l, err := OfProgram(tr.p)
		if err != nil {
			t.Fatal(err)
		}
		change(tr)
		if _, err := l.See(tr.p, tr.uses); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
