package replay

import (
	"fmt"
	"slices"
	"sort"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace/events"
)

// FromSnapshot makes a program of the history that a snapshot holds for one device, with the recorded answers. A history that starts in the middle of a
// run is undone from the final state backwards to find the state it started from. version is the PyTorch release of the snapshot, which does not say
// itself; the zero value means the one that gresize wrote into it, or the newest known.
func FromSnapshot(s *snapshot.Snapshot, device int, version allocator.Version, name string) (*Program, error) {
	total := uint64(unknownCardBytes)
	if s.Origin != nil {
		if v, err := allocator.ParseVersion(s.Origin.TorchVersion); err == nil && version == (allocator.Version{}) {
			version = v
		}
		if s.Origin.TotalBytes != 0 {
			total = min(s.Origin.TotalBytes, Unlimited)
		}
	}
	if version != (allocator.Version{}) {
		return fromSnapshot(s, device, version, total, name)
	}
	// The snapshot does not say which release wrote it: of those whose histories differ, the newest that agrees best with the record.
	var best *Program
	least := 0
	for _, version := range allocator.Differing(true) {
		p, err := fromSnapshot(s, device, version, total, name)
		if err != nil {
			if best == nil {
				return nil, err
			}
			continue
		}
		res, err := p.Check()
		if err != nil && best == nil {
			return nil, err
		}
		if err == nil && (best == nil || res.Differences < least) {
			best, least = p, res.Differences
		}
		if least == 0 {
			break
		}
	}
	return best, nil
}

func fromSnapshot(s *snapshot.Snapshot, device int, version allocator.Version, total uint64, name string) (*Program, error) {
	p := &Program{Name: name, Version: version, fed: true, pendingUntil: map[uint64]int{}, Answers: []Answer{}}
	var trace []snapshot.Entry
	if device < len(s.Traces) {
		trace = s.Traces[device]
	}
	if s.Settings == nil { // PyTorch 2.1 does not write them down: what was done shows one of them
		p.Config.ExpandableSegments = slices.ContainsFunc(trace, func(e snapshot.Entry) bool { return e.Action == snapshot.ActionSegmentMap })
	} else {
		p.ConfText = s.Settings.AllocConf
		config, _, err := allocator.ParseConfig(p.ConfText, version)
		if err != nil {
			return nil, fmt.Errorf("%s: allocator settings %q: %w", name, p.ConfText, err)
		}
		config.ExpandableSegments = s.Settings.ExpandableSegments
		p.Config = config
	}
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device == device && (seg.PoolA != 0 || seg.PoolB != 0) {
			return nil, fmt.Errorf("%s: segments[%d] belongs to a private pool (CUDA graphs or MemPool): the history does not say which requests went there", name, i)
		}
	}
	if s.Origin != nil && s.Origin.MemoryFraction > 0 {
		p.Config.MemoryFraction = s.Origin.MemoryFraction
	}
	return p.build(s, device, trace, true, total)
}

// FromHistory makes a program of a history that began with an empty allocator, and whose final state was not recorded.
func FromHistory(h *events.History, version allocator.Version, name string) (*Program, error) {
	if h.Lost > 0 {
		return nil, fmt.Errorf("%s: the recording had no room for %d requests: it begins in mid-run and cannot be simulated", name, h.Lost)
	}
	if h.PrivatePools {
		return nil, fmt.Errorf("%s: some requests went to a private pool (CUDA graphs or MemPool): the history does not say which", name)
	}
	config, _, err := allocator.ParseConfig(h.AllocConf, version)
	if err != nil {
		return nil, fmt.Errorf("%s: allocator settings %q: %w", name, h.AllocConf, err)
	}
	config.ExpandableSegments = h.ExpandableSegments
	if h.MemoryFraction > 0 && h.MemoryFraction < 1 {
		config.MemoryFraction = h.MemoryFraction
	}
	p := &Program{Name: name, Version: version, ConfText: h.AllocConf, Config: config, fed: true, pendingUntil: map[uint64]int{}, Answers: []Answer{}}
	total := uint64(unknownCardBytes)
	if h.TotalBytes != 0 {
		total = min(h.TotalBytes, Unlimited)
	}
	if h.FreeBytes != 0 && config.MemoryFraction == 0 { // a fraction is one of the whole card
		total = h.FreeBytes
	}
	for _, m := range h.Marks {
		if m.Kind == events.Step {
			p.Steps = append(p.Steps, m.At) // entries, which build turns into requests
		}
	}
	return p.build(nil, 0, h.Entries, false, total)
}

// build fills in the requests and the answers.
func (p *Program) build(s *snapshot.Snapshot, device int, trace []snapshot.Entry, stateful bool, total uint64) (*Program, error) {
	name, version := p.Name, p.Version
	f := forward{program: p, blockAt: map[uint64]int32{}, pending: map[uint64]pendingBlock{}}
	if stateful {
		if err := p.rewindAll(s, device, trace, version, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.Final = finalSegments(s, device)
	}
	marked := 0
	for i := range trace {
		for ; marked < len(p.Steps) && p.Steps[marked] <= i; marked++ {
			p.Steps[marked] = len(p.Ops)
		}
		if err := f.add(&trace[i]); err != nil {
			return nil, fmt.Errorf("%s: device_traces[%d][%d]: %w", name, device, i, err)
		}
	}
	f.finish()
	for ; marked < len(p.Steps); marked++ {
		p.Steps[marked] = len(p.Ops)
	}
	p.TotalBytes = total
	if err := p.resolveReleases(); err != nil {
		return nil, err
	}
	p.TotalKnown = total != unknownCardBytes
	return p, nil
}

func (p *Program) rewindAll(s *snapshot.Snapshot, device int, trace []snapshot.Entry, version allocator.Version, f *forward) error {
	r := rewind{segments: map[uint64]*pastSegment{}, live: map[uint64]*pastBlock{}, config: p.Config, version: version}
	if err := r.final(s, device); err != nil {
		return err
	}
	for i := len(trace) - 1; i >= 0; i-- {
		if err := r.back(&trace[i]); err != nil {
			return fmt.Errorf("device_traces[%d][%d]: %w", device, i, err)
		}
	}
	r.start(f)
	return nil
}

// unknownCardBytes stands for the card of a snapshot, which does not name it. It sets the length of address ranges only.
const unknownCardBytes = 1 << 40

func kindOf(a snapshot.Action) (allocator.EventKind, bool) {
	for kind, action := range actionOf {
		if action == a {
			return kind, true
		}
	}
	return 0, false
}

// finalSegments is the recorded state at the end, in the words of the simulator.
func finalSegments(s *snapshot.Snapshot, device int) []allocator.SegmentState {
	final := []allocator.SegmentState{}
	for i := range s.Segments {
		seg := &s.Segments[i]
		if seg.Device != device {
			continue
		}
		out := allocator.SegmentState{Addr: seg.Addr, SizeBytes: seg.TotalBytes, Stream: seg.Stream, Small: seg.Small, Expandable: seg.Expandable}
		for _, b := range seg.Blocks {
			state := allocator.BlockState{Addr: b.Addr, SizeBytes: b.SizeBytes, Live: b.State == snapshot.ActiveAllocated, Pending: b.State == snapshot.ActivePendingFree}
			if b.State != snapshot.Inactive { // a free block repeats the last request that it served
				state.RequestedBytes = b.RequestedBytes
			}
			out.Blocks = append(out.Blocks, state)
		}
		final = append(final, out)
	}
	sort.Slice(final, func(i, j int) bool { return final[i].Addr < final[j].Addr })
	return final
}
