package replay

import (
	"errors"
	"fmt"
	"slices"
	"sort"
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
func (p *Program) Check() (*CheckResult, error) { return p.check(nil) }

// check calls before, when given, ahead of every request.
func (p *Program) check(before func(c *checker, op int)) (*CheckResult, error) {
	if p.Answers == nil {
		return nil, fmt.Errorf("%s: %w", p.Name, ErrNotRecorded)
	}
	c := checker{program: p, runner: runner{program: p}}
	var device allocator.Device
	if p.fed {
		device = newFedDevice(&c)
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
	if err := c.runner.adopt(p.Start); err != nil {
		return nil, err
	}
	for i := range p.Ops {
		c.events = c.events[:0]
		c.runner.op = i
		if before != nil {
			before(&c, i)
		}
		if err := c.step(i); err != nil {
			return nil, fmt.Errorf("%s: request %d: %w", p.Name, i, err)
		}
	}
	if p.Final != nil {
		c.compareFinal()
	}
	return &c.result, nil
}

// compareFinal compares every segment and every block of the final state.
func (c *checker) compareFinal() {
	got, want := c.runner.a.Segments(), c.program.Final
	op := len(c.program.Ops)
	for i := range max(len(got), len(want)) {
		c.result.Answers++
		if i >= len(got) || i >= len(want) {
			c.differ(op, "number of segments at the end", fmt.Sprint(len(want)), fmt.Sprint(len(got)))
			return
		}
		g, w := got[i], want[i]
		if g.Addr != w.Addr || g.SizeBytes != w.SizeBytes || g.Stream != w.Stream || g.Small != w.Small || g.Expandable != w.Expandable {
			g.Blocks, w.Blocks = nil, nil
			c.differ(op, fmt.Sprintf("segment %d at the end", i), fmt.Sprintf("%+v", w), fmt.Sprintf("%+v", g))
			continue
		}
		if !slices.Equal(g.Blocks, w.Blocks) {
			c.differ(op, fmt.Sprintf("blocks of segment %#x at the end", w.Addr), fmt.Sprintf("%+v", w.Blocks), fmt.Sprintf("%+v", g.Blocks))
		}
	}
}

type checker struct {
	program *Program
	runner  runner
	card    *allocator.Card
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
	// spans is the memory that is out now, by start address: a record that hands out memory twice is refused.
	spans []feedSpan
	// mappings is made when a range is first reserved that the running request could not map.
	mappings map[mappingKey][]mapping
	// lookahead is how many mappings may still be looked at, so that no record can make the comparison take for ever.
	lookahead int
	// unseen counts the ranges in which nothing is ever mapped.
	unseen uint64
}

type feedSpan struct{ start, end uint64 }

// mappingKey tells the address ranges of one process apart.
type mappingKey struct {
	stream uint64
	small  bool
}

// mapping is a recorded segment_map of the request op.
type mapping struct {
	op   int
	addr uint64
}

const maxLookahead = 50_000_000

func newFedDevice(c *checker) *fedDevice {
	d := &fedDevice{check: c, total: c.program.TotalBytes, lookahead: maxLookahead}
	for _, s := range c.program.Start {
		d.take(s.Addr, s.SizeBytes)
	}
	return d
}

func (d *fedDevice) find(addr uint64) int {
	return sort.Search(len(d.spans), func(i int) bool { return d.spans[i].end > addr })
}

// take hands out memory, unless some of it is out already.
func (d *fedDevice) take(addr, bytes uint64) bool {
	if addr > 1<<62 {
		return false
	}
	i := d.find(addr)
	if i < len(d.spans) && d.spans[i].start < addr+bytes {
		return false
	}
	d.spans = slices.Insert(d.spans, i, feedSpan{addr, addr + bytes})
	d.used += bytes
	return true
}

// give takes memory back, which may be a part of what take handed out or reach over several of them.
func (d *fedDevice) give(addr, bytes uint64) {
	d.used -= bytes
	end := addr + bytes
	i := d.find(addr)
	for i < len(d.spans) && d.spans[i].start < end {
		s := d.spans[i]
		d.spans = slices.Delete(d.spans, i, i+1)
		if s.start < addr {
			d.spans = slices.Insert(d.spans, i, feedSpan{s.start, addr})
			i++
		}
		if s.end > end {
			d.spans = slices.Insert(d.spans, i, feedSpan{end, s.end})
			i++
		}
	}
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
	if e == nil || e.Kind != allocator.EventSegmentAlloc || !d.take(e.Addr, bytes) {
		return 0, false
	}
	return e.Addr, true
}

// Release implements allocator.Device.
func (d *fedDevice) Release(addr, bytes uint64) { d.give(addr, bytes) }

// ReserveRange implements allocator.Device. A record does not say where a range begins, but its first mapping begins there. Usually that is the next
// event. Where the card was too full for it, the range stays reserved all the same, and some later request maps its beginning.
func (d *fedDevice) ReserveRange(bytes uint64) (uint64, bool) {
	if e := d.next(); e != nil && e.Kind == allocator.EventSegmentMap {
		return e.Addr, e.Addr <= 1<<62
	}
	if addr, ok := d.firstMapping(); ok {
		return addr, true
	}
	// Nothing is ever mapped there. Lower ranges are filled first, so that the highest place changes no answer.
	d.unseen++
	return 1<<62 + d.unseen*(bytes+allocator.Page), bytes < 1<<56 && d.unseen < 64
}

// firstMapping finds the next mapping for the pool and stream of the running request that lies in no range yet.
func (d *fedDevice) firstMapping() (uint64, bool) {
	op := &d.check.program.Ops[d.check.runner.op]
	if d.mappings == nil {
		d.indexMappings()
	}
	mappings := d.mappings[mappingKey{op.Stream, d.check.program.Version.IsSmall(op.Bytes)}]
	first := sort.Search(len(mappings), func(i int) bool { return mappings[i].op > d.check.runner.op })
	for _, m := range mappings[first:] {
		if d.lookahead--; d.lookahead < 0 {
			return 0, false
		}
		if m.addr <= 1<<62 && !d.check.runner.a.Reserved(m.addr) {
			return m.addr, true
		}
	}
	return 0, false
}

// indexMappings lists the recorded mappings by who asked for them.
func (d *fedDevice) indexMappings() {
	d.mappings = map[mappingKey][]mapping{}
	for i := range d.check.program.Answers {
		for _, e := range d.check.program.Answers[i].Events {
			if op := &d.check.program.Ops[i]; e.Kind == allocator.EventSegmentMap && op.Kind == OpAlloc {
				key := mappingKey{op.Stream, d.check.program.Version.IsSmall(op.Bytes)}
				d.mappings[key] = append(d.mappings[key], mapping{i, e.Addr})
			}
		}
	}
}

// ReleaseRange implements allocator.Device.
func (d *fedDevice) ReleaseRange(_, _ uint64) {}

// Commit implements allocator.Device.
func (d *fedDevice) Commit(addr, bytes, _ uint64) bool {
	e := d.next()
	return e != nil && e.Kind == allocator.EventSegmentMap && d.take(addr, bytes)
}

// Decommit implements allocator.Device.
func (d *fedDevice) Decommit(addr, bytes uint64) { d.give(addr, bytes) }

// TotalBytes implements allocator.Device.
func (d *fedDevice) TotalBytes() uint64 { return d.total }

// FreeBytes implements allocator.Device: an out of memory was recorded together with what was free.
func (d *fedDevice) FreeBytes() uint64 {
	if e := d.next(); e != nil && e.Kind == allocator.EventOOM {
		return e.Addr
	}
	return d.total - min(d.used, d.total)
}
