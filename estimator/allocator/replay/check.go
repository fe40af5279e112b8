package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator/allocator"
)

// Difference is the first place where the simulator and the record disagree.
type Difference struct {
	Op       int
	What     string
	Recorded string
	Computed string
}

// String shows both sides.
func (d *Difference) String() string {
	return fmt.Sprintf("request %d: %s\n  recorded: %s\n  computed: %s", d.Op, d.What, d.Recorded, d.Computed)
}

// CheckResult says how the simulator compares with the record.
type CheckResult struct {
	// Events is the number of recorded events compared; Answers counts addresses, failures and statistics compared besides.
	Events, Answers int
	Differences     int
	First           *Difference
}

// ErrNotRecorded is returned for a program that holds requests only.
var ErrNotRecorded = errors.New("the file holds requests without recorded answers: there is nothing to compare")

// Check runs the program as it was recorded and compares every answer.
func (p *Program) Check() (*CheckResult, error) {
	if p.Answers == nil {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNotRecorded)
	}
	c := checker{program: p, runner: runner{program: p}}
	var device allocator.Device
	if p.fed {
		c.fed = &fedDevice{check: &c, total: p.TotalBytes, used: p.startBytes()}
		device = c.fed
	} else {
		total := p.TotalBytes
		if total == 0 {
			total = Unlimited
		}
		card, err := allocator.NewCard(total, allocator.Ascending)
		if err != nil {
			return nil, err
		}
		c.card = card
		device = card
	}
	if err := c.runner.open(RunOptions{}, device, func(e allocator.Event) { c.events = append(c.events, e) }); err != nil {
		return nil, err
	}
	if err := c.runner.adopt(); err != nil {
		return nil, err
	}
	for i := range p.Ops {
		if err := c.step(i); err != nil {
			return nil, fmt.Errorf("%s: request %d: %w", p.Name, i, err)
		}
	}
	return &c.result, nil
}

type checker struct {
	program *Program
	runner  runner
	card    *allocator.Card
	fed     *fedDevice
	events  []allocator.Event
	result  CheckResult
}

func (c *checker) differ(op int, what, recorded, computed string) {
	c.result.Differences++
	if c.result.First == nil {
		c.result.First = &Difference{op, what, recorded, computed}
	}
}

func (c *checker) step(i int) error {
	op, want := &c.program.Ops[i], &c.program.Answers[i]
	c.events = c.events[:0]
	c.runner.op = i
	addr, err := c.runner.step(op)
	var oom *allocator.OOMError
	if err != nil && !errors.As(err, &oom) {
		return err
	}
	c.compareEvents(i, want.Events)
	if op.Kind == OpAlloc && (want.HasAddr || want.OOM) {
		c.result.Answers++
		switch {
		case want.OOM != (oom != nil):
			c.differ(i, "outcome", outcome(want.OOM, want.Addr), outcome(oom != nil, addr))
		case want.HasAddr && want.Addr != addr:
			c.differ(i, "address", outcome(false, want.Addr), outcome(false, addr))
		}
	}
	for _, line := range want.Stats {
		c.result.Answers++
		if got := c.statsLine(); got != line {
			c.differ(i, "statistics", line, got)
		}
	}
	return nil
}

func outcome(oom bool, addr uint64) string {
	if oom {
		return "out of memory"
	}
	return fmt.Sprintf("address %#x", addr)
}

func (c *checker) compareEvents(op int, want []allocator.Event) {
	got := c.events
	c.result.Events += len(want)
	// Frees of several streams that complete together come in hash order: compare each run of them as a set.
	sortCompleted(got)
	want = slices.Clone(want)
	sortCompleted(want)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(want):
			c.differ(op, fmt.Sprintf("event %d", i), "no event", got[i].String())
		case i >= len(got):
			c.differ(op, fmt.Sprintf("event %d", i), want[i].String(), "no event")
		case got[i] != want[i]:
			c.differ(op, fmt.Sprintf("event %d", i), want[i].String(), got[i].String())
		}
	}
}

func sortCompleted(events []allocator.Event) {
	for i := 0; i < len(events); {
		j := i
		for j < len(events) && events[j].Kind == allocator.EventFreeCompleted {
			j++
		}
		if j-i > 1 {
			slices.SortFunc(events[i:j], func(x, y allocator.Event) int {
				if x.Addr != y.Addr {
					if x.Addr < y.Addr {
						return -1
					}
					return 1
				}
				return 0
			})
		}
		i = max(j, i+1)
	}
}

func (c *checker) statsLine() string {
	s := c.runner.a.Stats()
	var used uint64
	if c.card != nil {
		used = c.card.UsedBytes()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "S alloc=%d/%d active=%d/%d resv=%d/%d isplit=%d/%d nseg=%d retries=%d ooms=%d req=%d dev=%d syncs=%d dalloc=%d dfree=%d",
		s.AllocatedBytes.All.Current, s.AllocatedBytes.All.Peak, s.ActiveBytes.All.Current, s.ActiveBytes.All.Peak,
		s.ReservedBytes.All.Current, s.ReservedBytes.All.Peak, s.InactiveSplitBytes.All.Current, s.InactiveSplitBytes.All.Peak,
		s.Segment.All.Current, s.Retries, s.OOMs, s.RequestedBytes.All.Current, used, s.SyncAllStreams, s.DeviceAllocs, s.DeviceFrees)
	return b.String()
}

// fedDevice answers driver calls as the record says: the next recorded event of the running request decides.
type fedDevice struct {
	check       *checker
	total, used uint64
}

// next is the recorded event that is due now.
func (d *fedDevice) next() *allocator.Event {
	want := d.check.program.Answers[d.check.runner.op].Events
	if i := len(d.check.events); i < len(want) {
		return &want[i]
	}
	return nil
}

// Malloc implements allocator.Device.
func (d *fedDevice) Malloc(bytes uint64) (uint64, bool) {
	e := d.next()
	if e == nil || e.Kind != allocator.EventSegmentAlloc {
		return 0, false
	}
	d.used += bytes
	return e.Addr, true
}

// Release implements allocator.Device.
func (d *fedDevice) Release(_, bytes uint64) { d.used -= bytes }

// ReserveRange implements allocator.Device: the next mapping begins at the start of the new range.
func (d *fedDevice) ReserveRange(uint64) (uint64, bool) {
	e := d.next()
	if e == nil || e.Kind != allocator.EventSegmentMap {
		return 0, false
	}
	return e.Addr, true
}

// ReleaseRange implements allocator.Device.
func (d *fedDevice) ReleaseRange(_, _ uint64) {}

// Commit implements allocator.Device.
func (d *fedDevice) Commit(_, bytes, _ uint64) bool {
	e := d.next()
	if e == nil || e.Kind != allocator.EventSegmentMap {
		return false
	}
	d.used += bytes
	return true
}

// Decommit implements allocator.Device.
func (d *fedDevice) Decommit(_, bytes uint64) { d.used -= bytes }

// TotalBytes implements allocator.Device.
func (d *fedDevice) TotalBytes() uint64 { return d.total }

// FreeBytes implements allocator.Device: an out of memory was recorded together with what was free.
func (d *fedDevice) FreeBytes() uint64 {
	if e := d.next(); e != nil && e.Kind == allocator.EventOOM {
		return e.Addr
	}
	return d.total - min(d.used, d.total)
}
