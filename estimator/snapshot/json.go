package snapshot

import (
	"encoding/json"
	"fmt"
	"io"
)

// The reduced JSON form keeps the numbers of a snapshot and nothing else: blocks are [size, requested, state], history entries
// [action, address, size, stream].
type jsonSnapshot struct {
	Segments []struct {
		Device      int         `json:"device"`
		Address     uint64      `json:"address"`
		TotalSize   uint64      `json:"total_size"`
		Stream      uint64      `json:"stream"`
		SegmentType string      `json:"segment_type"`
		Expandable  bool        `json:"is_expandable"`
		Blocks      []jsonBlock `json:"blocks"`
	} `json:"segments"`
	DeviceTraces [][]jsonEntry `json:"device_traces"`
	Settings     *struct {
		AllocConf  string  `json:"PYTORCH_CUDA_ALLOC_CONF"`
		MaxSplit   int64   `json:"max_split_size"`
		GC         float64 `json:"garbage_collection_threshold"`
		Expandable bool    `json:"expandable_segments"`
	} `json:"allocator_settings"`
}

type jsonBlock Block

// UnmarshalJSON reads [size, requested, state].
func (b *jsonBlock) UnmarshalJSON(data []byte) error {
	var state string
	fields := []any{&b.SizeBytes, &b.RequestedBytes, &state}
	if err := unmarshalTuple(data, fields); err != nil {
		return fmt.Errorf("block: %w", err)
	}
	var ok bool
	if b.State, ok = parseState(state); !ok {
		return fmt.Errorf("block: unknown state %q", state)
	}
	return nil
}

type jsonEntry Entry

// UnmarshalJSON reads [action, address, size, stream].
func (e *jsonEntry) UnmarshalJSON(data []byte) error {
	var action string
	if err := unmarshalTuple(data, []any{&action, &e.Addr, &e.SizeBytes, &e.Stream}); err != nil {
		return fmt.Errorf("history entry: %w", err)
	}
	e.Action = ParseAction(action)
	return nil
}

func unmarshalTuple(data []byte, fields []any) error {
	want := len(fields)
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	if len(fields) != want {
		return fmt.Errorf("want %d values, got %d", want, len(fields))
	}
	return nil
}

func readJSON(in io.Reader, limits Limits) (*Snapshot, error) {
	var j jsonSnapshot
	limited := &io.LimitedReader{R: in, N: limits.FileBytes + 1}
	err := json.NewDecoder(limited).Decode(&j)
	if limited.N <= 0 {
		return nil, fmt.Errorf("the file is larger than %d bytes", limits.FileBytes)
	}
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	for i, seg := range j.Segments {
		if seg.SegmentType != "small" && seg.SegmentType != "large" {
			return nil, fmt.Errorf("segments[%d]: segment_type %q is neither small nor large", i, seg.SegmentType)
		}
		out := Segment{Device: seg.Device, Addr: seg.Address, TotalBytes: seg.TotalSize, Stream: seg.Stream, Small: seg.SegmentType == "small", Expandable: seg.Expandable}
		for _, b := range seg.Blocks {
			out.Blocks = append(out.Blocks, Block(b))
		}
		s.Segments = append(s.Segments, out)
	}
	for _, trace := range j.DeviceTraces {
		out := make([]Entry, len(trace))
		for i, e := range trace {
			out[i] = Entry(e)
		}
		s.Traces = append(s.Traces, out)
	}
	if j.Settings != nil {
		s.Settings = &Settings{AllocConf: j.Settings.AllocConf, MaxSplitBytes: j.Settings.MaxSplit, GCThreshold: j.Settings.GC, ExpandableSegments: j.Settings.Expandable}
	}
	return s, nil
}
