package replay

import (
	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/snapshot"
)

// Snapshot runs the program and returns the history and the final state as PyTorch would have dumped them.
func (p *Program) Snapshot(o RunOptions) (*snapshot.Snapshot, *RunResult, error) {
	var trace []snapshot.Entry
	o.OnEvent = func(_ int, e allocator.Event) {
		// The kinds of both packages have the same names and the same order; actionOf keeps that in one place.
		trace = append(trace, snapshot.Entry{Action: actionOf[e.Kind], Addr: e.Addr, SizeBytes: e.SizeBytes, Stream: e.Stream})
	}
	res, err := p.Run(o)
	if err != nil {
		return nil, nil, err
	}
	config := p.Config
	text := p.ConfText
	if o.Config != nil {
		config = *o.Config
		text = ""
	}
	s := &snapshot.Snapshot{Traces: [][]snapshot.Entry{trace}, Settings: &snapshot.Settings{
		AllocConf: text, MaxSplitBytes: -1, GCThreshold: config.GCThreshold, ExpandableSegments: config.ExpandableSegments,
	}}
	if config.MaxSplitBytes != 0 && config.MaxSplitBytes < 1<<62 {
		s.Settings.MaxSplitBytes = int64(config.MaxSplitBytes)
	}
	version := p.Version
	if o.Version != (allocator.Version{}) {
		version = o.Version
	}
	s.Origin = &snapshot.Origin{TorchVersion: version.String(), TotalBytes: res.Card.TotalBytes(), MemoryFraction: config.MemoryFraction}
	s.Segments = snapshotSegments(res.Allocator.Segments())
	return s, res, nil
}

var actionOf = map[allocator.EventKind]snapshot.Action{
	allocator.EventAlloc: snapshot.ActionAlloc, allocator.EventFreeRequested: snapshot.ActionFreeRequested,
	allocator.EventFreeCompleted: snapshot.ActionFreeCompleted, allocator.EventSegmentAlloc: snapshot.ActionSegmentAlloc,
	allocator.EventSegmentFree: snapshot.ActionSegmentFree, allocator.EventSegmentMap: snapshot.ActionSegmentMap,
	allocator.EventSegmentUnmap: snapshot.ActionSegmentUnmap, allocator.EventOOM: snapshot.ActionOOM,
}

func snapshotSegments(states []allocator.SegmentState) []snapshot.Segment {
	segments := make([]snapshot.Segment, 0, len(states))
	for _, s := range states {
		seg := snapshot.Segment{Addr: s.Addr, TotalBytes: s.SizeBytes, Stream: s.Stream, Small: s.Small, Expandable: s.Expandable, PoolB: s.PoolID}
		for _, b := range s.Blocks {
			state := snapshot.Inactive
			switch {
			case b.Live:
				state = snapshot.ActiveAllocated
			case b.Pending:
				state = snapshot.ActivePendingFree
			}
			seg.Blocks = append(seg.Blocks, snapshot.Block{Addr: b.Addr, SizeBytes: b.SizeBytes, RequestedBytes: b.RequestedBytes, State: state})
		}
		segments = append(segments, seg)
	}
	return segments
}
