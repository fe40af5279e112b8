// Package events reads the history of an allocator that a probe recorded, PyTorch's or what XLA's was asked for: every request with its answer, what the
// program was doing meanwhile (marks), and what the memory was for (owners). It is the events.jsonl of a bundle's rank; docs/bundle.md describes the lines. They come
// from a user's process, and are read as a stranger's work.
package events

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
)

// MarkKind is what a Mark tells.
type MarkKind string

// The marks. Enter and Leave bracket the forward of a module; the last three of the others bracket themselves.
const (
	Enter        MarkKind = "enter"
	Leave        MarkKind = "leave"
	Backward     MarkKind = "backward"
	BackwardEnd  MarkKind = "backward_end"
	Optimizer    MarkKind = "optimizer"
	OptimizerEnd MarkKind = "optimizer_end"
	// Step ends a training step; its Value is the number of the step.
	Step MarkKind = "step"
)

// Mark is a place in the history.
type Mark struct {
	// At is the index of the entry that follows it; len(Entries) at the end.
	At   int
	Kind MarkKind
	// Name is the module's path of an Enter.
	Name string
	// Value is the number of a Step.
	Value int64
}

// Purpose is what an owner holds memory for.
type Purpose string

// The purposes that a process can name.
const (
	Parameter Purpose = "parameter"
	Gradient  Purpose = "gradient"
	State     Purpose = "optimizer"
	Buffer    Purpose = "buffer"
	// These are XLA's, which knows an array by its way through a computation.
	Argument  Purpose = "argument"
	Output    Purpose = "output"
	Temporary Purpose = "temporary"
)

// XLA is the Allocator of a history of arrays and temporaries of XLA.
const XLA = "xla"

// Owner says that, at a place in the history, an address belongs to something with a name.
type Owner struct {
	At      int
	Addr    uint64
	Purpose Purpose
	Name    string
}

// History is what one process did to the allocator of one card.
type History struct {
	Device int
	// Allocator is whose history it is: empty for PyTorch's, or XLA.
	Allocator string
	// AllocConf are the allocator's settings as PyTorch repeats them; ExpandableSegments may have been changed later.
	AllocConf          string
	ExpandableSegments bool
	// MemoryFraction is what the program allows itself of the card; 0 or 1 for all of it.
	MemoryFraction float64
	// TotalBytes is the card's memory, FreeBytes what of it was free before the first request; 0 when not recorded.
	TotalBytes, FreeBytes uint64
	// PrivatePools: some requests went to pools of CUDA graphs or of the program's own; the entries do not say which.
	PrivatePools bool
	// Lost counts requests that the recording had no room for; the history then begins in mid-run.
	Lost    uint64
	Entries []snapshot.Entry
	Marks   []Mark
	Owners  []Owner
}

const (
	maxAddr  = uint64(1) << 62
	maxBytes = uint64(1) << 48
	maxName  = 1024
)

// line is every form that a line may have.
type line struct {
	// An event.
	Action     string `json:"action"`
	Addr       uint64 `json:"addr"`
	DeviceFree uint64 `json:"device_free"`
	SizeBytes  uint64 `json:"size"`
	Stream     uint64 `json:"stream"`
	// The head of one card's history.
	History      int     `json:"history"`
	Device       float64 `json:"device"`
	Allocator    string  `json:"allocator"`
	Conf         string  `json:"conf"`
	Expandable   bool    `json:"expandable_segments"`
	Fraction     float64 `json:"fraction"`
	TotalBytes   uint64  `json:"total_bytes"`
	FreeBytes    uint64  `json:"free_bytes"`
	Allocations  uint64  `json:"allocations"`
	PrivatePools bool    `json:"private_pools"`
	// A mark, an owner.
	Mark  MarkKind `json:"mark"`
	Value int64    `json:"value"`
	Own   Purpose  `json:"own"`
	// Name is a number of the table of names; with Text, an entry of that table.
	Name *int    `json:"name"`
	Text *string `json:"text"`
}

// Read reads the events of a rank. A process that used several cards has a history for each; the first one stands for the rank. An error names the line.
func Read(data []byte) (*History, error) {
	r := reader{history: &History{Device: -1}}
	for number, text := range trace.Lines(data) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if err := r.add(&l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if r.otherDevice {
			break
		}
	}
	r.finish()
	return r.history, nil
}

type reader struct {
	history     *History
	names       []string
	headed      bool
	otherDevice bool
	wanted      uint64
}

func (r *reader) add(l *line) error {
	switch {
	case l.Text != nil:
		if l.Name == nil || *l.Name != len(r.names) {
			return fmt.Errorf("name: want the number %d", len(r.names))
		}
		if len(*l.Text) > maxName {
			return fmt.Errorf("text: %d bytes, at most %d", len(*l.Text), maxName)
		}
		r.names = append(r.names, *l.Text)
	case l.History != 0:
		return r.head(l)
	case l.Mark != "":
		return r.mark(l)
	case l.Own != "":
		return r.owner(l)
	default:
		return r.event(l)
	}
	return nil
}

func (r *reader) head(l *line) error {
	if l.History != 1 {
		return fmt.Errorf("history: version %d is not known", l.History)
	}
	if r.headed {
		r.otherDevice = true
		return nil
	}
	if l.Device != math.Trunc(l.Device) || l.Device < 0 || l.Device > math.MaxInt16 {
		return fmt.Errorf("device: %v is no number of a card", l.Device)
	}
	if math.IsNaN(l.Fraction) || l.Fraction < 0 || l.Fraction > 1 {
		return fmt.Errorf("fraction: %v, want 0 to 1", l.Fraction)
	}
	if l.TotalBytes > maxBytes || l.FreeBytes > l.TotalBytes {
		return fmt.Errorf("total_bytes %d, free_bytes %d: out of range", l.TotalBytes, l.FreeBytes)
	}
	if l.Allocator != "" && l.Allocator != XLA {
		return fmt.Errorf("allocator: %.40q is not known", l.Allocator)
	}
	h := r.history
	r.headed, r.wanted, h.Allocator = true, l.Allocations, l.Allocator
	h.Device, h.AllocConf, h.ExpandableSegments, h.MemoryFraction = int(l.Device), l.Conf, l.Expandable, l.Fraction
	h.TotalBytes, h.FreeBytes, h.PrivatePools = l.TotalBytes, l.FreeBytes, l.PrivatePools
	return nil
}

func (r *reader) name(l *line) (string, error) {
	if l.Name == nil || *l.Name < 0 || *l.Name >= len(r.names) {
		return "", fmt.Errorf("name: not a number of the table of %d names", len(r.names))
	}
	return r.names[*l.Name], nil
}

func (r *reader) mark(l *line) error {
	m := Mark{At: len(r.history.Entries), Kind: l.Mark}
	switch l.Mark {
	case Enter:
		if l.Value < 0 || l.Value >= int64(len(r.names)) {
			return fmt.Errorf("value: %d is not a number of the table of %d names", l.Value, len(r.names))
		}
		m.Name = r.names[l.Value]
	case Step:
		m.Value = l.Value
	case Leave, Backward, BackwardEnd, Optimizer, OptimizerEnd:
	default:
		return nil // a newer probe may mark more
	}
	r.history.Marks = append(r.history.Marks, m)
	return nil
}

func (r *reader) owner(l *line) error {
	switch l.Own {
	case Parameter, Gradient, State, Buffer, Argument, Output, Temporary:
	default:
		return nil
	}
	name, err := r.name(l)
	if err != nil {
		return err
	}
	if l.Addr > maxAddr {
		return fmt.Errorf("addr: %#x is impossible", l.Addr)
	}
	r.history.Owners = append(r.history.Owners, Owner{At: len(r.history.Entries), Addr: l.Addr, Purpose: l.Own, Name: name})
	return nil
}

func (r *reader) event(l *line) error {
	if l.Addr > maxAddr || l.SizeBytes > maxBytes {
		return fmt.Errorf("address %#x or size %d is impossible", l.Addr, l.SizeBytes)
	}
	e := snapshot.Entry{Action: snapshot.ParseAction(l.Action), Addr: l.Addr, SizeBytes: l.SizeBytes, Stream: l.Stream}
	if e.Action == snapshot.ActionOOM {
		e.Addr = l.DeviceFree
	}
	if e.Action == snapshot.ActionSegmentMap {
		r.history.ExpandableSegments = true
	}
	r.history.Entries = append(r.history.Entries, e)
	return nil
}

// finish counts what is missing: the allocator's own counter knows how many blocks were handed out.
func (r *reader) finish() {
	seen := uint64(0)
	for i := range r.history.Entries {
		if r.history.Entries[i].Action == snapshot.ActionAlloc {
			seen++
		}
	}
	if r.headed && r.wanted > seen {
		r.history.Lost = r.wanted - seen
	}
}
