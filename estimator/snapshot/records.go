package snapshot

import (
	"errors"
	"fmt"
	"math"
)

// finish turns complete dictionaries into records: an entry of a history, a block, a segment. Others stay as they are.
func (d *decoder) finish(items []value) {
	for i := range items {
		v := items[i]
		if v.kind != kindDict {
			continue
		}
		c := &d.containers[v.num]
		if c.kind != kindDict {
			items[i] = value{c.kind, uint64(c.index)}
			continue
		}
		k, index := d.record(c.items)
		if k == kindDict {
			continue
		}
		d.free = append(d.free, c.items[:0])
		*c = container{kind: k, index: index}
		items[i] = value{k, uint64(index)}
	}
}

// record makes a record of a dictionary that is one, by the key that only this kind has.
func (d *decoder) record(items []value) (kind, int32) {
	found := kindDict
	for i := 0; i+1 < len(items) && found == kindDict; i += 2 {
		if items[i].kind != kindString {
			continue
		}
		switch d.strings[items[i].num] {
		case "action":
			found = kindEntry
		case "state":
			found = kindBlock
		case "segment_type", "total_size":
			found = kindSegment
		}
	}
	var index int
	switch found {
	case kindEntry:
		index = len(d.entries)
		d.entries = append(d.entries, d.entry(items))
	case kindBlock:
		index = len(d.blocks)
		d.blocks = append(d.blocks, d.block(items))
	case kindSegment:
		index = len(d.segments)
		d.segments = append(d.segments, d.segment(items))
	}
	return found, int32(index)
}

func (d *decoder) text(v value) string {
	if v.kind == kindString {
		return d.strings[v.num]
	}
	return ""
}

func number(v value) uint64 {
	switch v.kind {
	case kindInt, kindBool:
		return v.num
	case kindFloat:
		if f := math.Float64frombits(v.num); f >= 0 && f < 1<<63 {
			return uint64(f)
		}
	}
	return 0
}

func (d *decoder) entry(items []value) Entry {
	e := Entry{Action: ActionOther}
	for i := 0; i+1 < len(items); i += 2 {
		v := items[i+1]
		switch d.text(items[i]) {
		case "action":
			e.Action = ParseAction(d.text(v))
		case "addr", "device_free":
			e.Addr = number(v)
		case "size":
			e.SizeBytes = number(v)
		case "stream":
			e.Stream = number(v)
		case "time_us":
			e.TimeMicros = int64(number(v))
		}
	}
	return e
}

// invalidState marks a block whose state is no known word; it is reported when its segment is read.
const invalidState State = 255

func (d *decoder) block(items []value) Block {
	var b Block
	requested := false
	for i := 0; i+1 < len(items); i += 2 {
		v := items[i+1]
		switch d.text(items[i]) {
		case "address":
			b.Addr = number(v)
		case "size":
			b.SizeBytes = number(v)
		case "requested_size":
			b.RequestedBytes = number(v)
			requested = true
		case "state":
			var ok bool
			if b.State, ok = parseState(d.text(v)); !ok {
				b.State = invalidState
			}
		}
	}
	if !requested {
		b.RequestedBytes = b.SizeBytes
	}
	return b
}

func (d *decoder) segment(items []value) Segment {
	var s Segment
	for i := 0; i+1 < len(items); i += 2 {
		v := items[i+1]
		switch d.text(items[i]) {
		case "device":
			s.Device = int(int64(number(v)))
		case "address":
			s.Addr = number(v)
		case "total_size":
			s.TotalBytes = number(v)
		case "stream":
			s.Stream = number(v)
		case "segment_type":
			s.Small = d.text(v) == "small"
		case "is_expandable":
			s.Expandable = number(v) != 0
		case "segment_pool_id":
			if v.kind == kindList {
				if pair := d.containers[v.num].items; len(pair) == 2 {
					s.PoolA, s.PoolB = int64(number(pair[0])), int64(number(pair[1]))
				}
			}
		case "blocks":
			if v.kind == kindList {
				for _, item := range d.containers[v.num].items {
					if item.kind == kindBlock {
						s.Blocks = append(s.Blocks, d.blocks[item.num])
					}
				}
			}
		}
	}
	return s
}

// snapshot reads the top of the pickle.
func (d *decoder) snapshot(top value) (*Snapshot, error) {
	if top.kind != kindDict {
		return nil, errors.New("not a memory snapshot: the pickle is not a dictionary with \"segments\" and \"device_traces\"")
	}
	s := &Snapshot{}
	items := d.containers[top.num].items
	seen := false
	for i := 0; i+1 < len(items); i += 2 {
		key, v := d.text(items[i]), items[i+1]
		switch key {
		case "segments":
			if v.kind != kindList {
				return nil, errors.New("segments is not a list")
			}
			seen = true
			for j, item := range d.containers[v.num].items {
				if item.kind != kindSegment {
					return nil, fmt.Errorf("segments[%d] is not a segment", j)
				}
				seg := d.segments[item.num]
				for k, b := range seg.Blocks {
					if b.State == invalidState {
						return nil, fmt.Errorf("segments[%d].blocks[%d]: unknown state", j, k)
					}
				}
				s.Segments = append(s.Segments, seg)
			}
		case "device_traces":
			if v.kind != kindList {
				return nil, errors.New("device_traces is not a list")
			}
			seen = true
			for j, list := range d.containers[v.num].items {
				if list.kind != kindList {
					return nil, fmt.Errorf("device_traces[%d] is not a list", j)
				}
				trace, err := d.trace(d.containers[list.num].items)
				if err != nil {
					return nil, fmt.Errorf("device_traces[%d]%w", j, err)
				}
				s.Traces = append(s.Traces, trace)
			}
		case "allocator_settings":
			if v.kind == kindDict {
				s.Settings = d.settings(d.containers[v.num].items)
			}
		case "gresize":
			if v.kind == kindDict {
				s.Origin = d.origin(d.containers[v.num].items)
			}
		}
	}
	if !seen {
		return nil, errors.New("not a memory snapshot: it has neither \"segments\" nor \"device_traces\"")
	}
	return s, nil
}

// trace collects the records of one history. They usually lie one after the other, and are then not copied.
func (d *decoder) trace(items []value) ([]Entry, error) {
	for i, item := range items {
		if item.kind != kindEntry {
			return nil, fmt.Errorf("[%d] is not a history entry", i)
		}
	}
	if n := len(items); n > 0 {
		first := items[0].num
		dense := true
		for i, item := range items {
			if item.num != first+uint64(i) {
				dense = false
				break
			}
		}
		if dense {
			return d.entries[first : first+uint64(n) : first+uint64(n)], nil
		}
	}
	trace := make([]Entry, len(items))
	for i, item := range items {
		trace[i] = d.entries[item.num]
	}
	return trace, nil
}

func (d *decoder) settings(items []value) *Settings {
	s := &Settings{MaxSplitBytes: -1}
	for i := 0; i+1 < len(items); i += 2 {
		v := items[i+1]
		switch d.text(items[i]) {
		case "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF":
			if text := d.text(v); text != "" {
				s.AllocConf = text
			}
		case "max_split_size":
			s.MaxSplitBytes = int64(number(v))
		case "garbage_collection_threshold":
			if v.kind == kindFloat {
				s.GCThreshold = math.Float64frombits(v.num)
			}
		case "expandable_segments":
			s.ExpandableSegments = number(v) != 0
		}
	}
	return s
}

func (d *decoder) origin(items []value) *Origin {
	o := &Origin{}
	for i := 0; i+1 < len(items); i += 2 {
		switch d.text(items[i]) {
		case "torch_version":
			o.TorchVersion = d.text(items[i+1])
		case "total_bytes":
			o.TotalBytes = number(items[i+1])
		case "memory_fraction":
			if items[i+1].kind == kindFloat {
				o.MemoryFraction = math.Float64frombits(items[i+1].num)
			}
		}
	}
	return o
}
