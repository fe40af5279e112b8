package vgpu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/manifest"
)

const schemaRank = "gresize.vgpu.rank/1"

// Coverage says how much of what a process asked was answered, and how.
type Coverage struct {
	// Torch is the release, and KnownRelease whether its symbols are in a manifest.
	Torch        string `json:"torch"`
	KnownRelease bool   `json:"known_release"`
	// Unanswered are symbols that got a zero because nobody knows better, with the number of calls.
	Unanswered map[string]int64 `json:"unanswered,omitempty"`
	// Bounded are kinds of sizes that are a model.
	Bounded map[string]Bound `json:"bounded,omitempty"`
	// ValuesReadBack counts small reads of what a kernel would have computed; ValuesPerStep is that of one step.
	ValuesReadBack int64   `json:"values_read_back"`
	ValuesPerStep  float64 `json:"values_per_step"`
	// Decisions counts comparisons of such values.
	Decisions int64 `json:"decisions"`
	// Values says how the process was answered where only a kernel could have known.
	Values ValuesSide `json:"values"`
	// LoadersUnread are data loaders that were made and not read; LargerLoaderUnread: one has a larger batch than all that were.
	LoadersUnread int `json:"loaders_unread,omitempty"`
	// EpochsCutShort: a data loader was ended early so that what follows an epoch, such as a validation, was seen.
	EpochsCutShort bool `json:"epochs_cut_short,omitempty"`
	// TimeLapse is how the program was followed after the first answer: to its own end, to that of the time for it, until nothing new
	// came, or to an error. Empty: it was not.
	TimeLapse          string `json:"time_lapse,omitempty"`
	LargerLoaderUnread bool   `json:"larger_loader_unread,omitempty"`
	// Ahead is what a later step, or the end of the program, may bring.
	Ahead
	// IdleOptimizer: an optimizer was made and hardly used. MemoryFraction: the program allows itself a part of the card.
	IdleOptimizer  bool `json:"idle_optimizer,omitempty"`
	MemoryFraction bool `json:"memory_fraction,omitempty"`
	// Tuning is what was chosen by times that nothing measured.
	Tuning Tuning `json:"tuning,omitzero"`
}

// rankReport is what one process left about one card: the report of a rank in the bundle.
type rankReport struct {
	Schema string `json:"schema"`
	Rank   int    `json:"rank"`
	PID    int    `json:"pid"`
	Device int    `json:"device"`
	// GlobalRank is the number that the launcher gave.
	GlobalRank *int `json:"global_rank,omitempty"`
	// WorldSize is the number of ranks of the job, where there are several.
	WorldSize          int            `json:"world_size,omitempty"`
	Node               int            `json:"node,omitempty"`
	Communicators      []Communicator `json:"communicators,omitempty"`
	Reason             string         `json:"reason"`
	PeakAllocatedBytes int64          `json:"peak_allocated_bytes"`
	PeakReservedBytes  int64          `json:"peak_reserved_bytes"`
	PeakDeviceBytes    int64          `json:"peak_device_bytes"`
	Segments           int64          `json:"segments"`
	Retries            int64          `json:"retries"`
	OOMs               int64          `json:"ooms"`
	Refused            int64          `json:"refused"`
	// PassedOver are those of the OOMs that PyTorch met by taking a convolution's next plan.
	PassedOver    int64    `json:"passed_over,omitempty"`
	Steps         int      `json:"steps"`
	BackwardCalls int      `json:"backward_calls"`
	Flat          bool     `json:"flat"`
	Libraries     []string `json:"libraries"`
	Coverage      Coverage `json:"coverage"`
	// Pool is what XLA's allocator had of the card; nil where JAX did not use it.
	Pool          *Pool   `json:"pool,omitempty"`
	HostPeakBytes int64   `json:"host_peak_bytes"`
	BeganUnix     float64 `json:"began_unix"`
	WallSeconds   float64 `json:"wall_seconds"`
	// Other is the other end of what the rank may need, where that depends on values.
	Other *OtherSide `json:"other_side,omitempty"`
	// Third is what one more run needed, where two were not enough to tell.
	Third *OtherSide `json:"third_side,omitempty"`

	events []byte
	parts  map[trace.Part][]byte
}

// newRankReports makes one report for each card that the process used.
func newRankReports(p *process) []rankReport {
	base := rankReport{Schema: schemaRank, PID: p.pid, Libraries: []string{}, events: p.events, parts: p.parts}
	devices := map[int]*rankReport{}
	at := func(index int) *rankReport {
		if devices[index] == nil {
			r := base
			r.Device = index
			if p.python != nil && index < len(p.python.Cards) {
				r.Device = p.python.Cards[index]
			} else if p.jax.onCard() && index < len(p.jax.Cards) {
				r.Device = p.jax.Cards[index]
			}
			devices[index] = &r
		}
		return devices[index]
	}
	if py := p.python; py != nil {
		base.Reason, base.Steps, base.BackwardCalls, base.Flat = py.Reason, py.steps(), py.BackwardCalls, py.Flat
		base.HostPeakBytes, base.BeganUnix, base.WallSeconds = py.HostPeakBytes, py.BeganUnix, py.WallSeconds
		base.Coverage.Torch, base.Coverage.KnownRelease = py.Torch, knownRelease(py.Torch)
		base.Coverage.ValuesReadBack, base.Coverage.ValuesPerStep = py.ValuesReadBack, py.valuesPerStep()
		base.Coverage.EpochsCutShort, base.Coverage.TimeLapse = py.EpochsCutShort, py.TimeLapse
		base.Coverage.Ahead = py.Ahead.cut()
		base.Coverage.Decisions, base.Coverage.LoadersUnread, base.Coverage.LargerLoaderUnread = py.Decisions, py.LoadersUnread, py.LargerLoaderUnread
		base.Coverage.Values = py.Values
		base.Coverage.IdleOptimizer, base.Coverage.MemoryFraction = py.IdleOptimizer, py.MemoryFraction
		base.Coverage.Tuning = py.Tuning
		base.GlobalRank, base.Node = py.Rank, py.Node
		if py.WorldSize != nil {
			base.WorldSize = *py.WorldSize
		}
	}
	if j := p.jax; j.onCard() {
		base.ofJAX(j)
	}
	if n := p.native; n != nil {
		base.Coverage.Bounded, base.Coverage.Unanswered, base.Communicators = n.Bounded, n.Unanswered, n.Communicators
		base.Coverage.ValuesReadBack = max(base.Coverage.ValuesReadBack, n.ValuesReadBack)
		for name := range n.Libraries {
			base.Libraries = append(base.Libraries, name)
		}
		slices.Sort(base.Libraries)
		for _, d := range n.Devices {
			if d.PeakBytes > 0 || d.Refused > 0 {
				r := at(d.Index)
				r.PeakDeviceBytes, r.Refused, r.PassedOver = d.PeakBytes, d.Refused, d.PassedOver
			}
		}
	}
	if py := p.python; py != nil {
		for _, d := range py.Devices {
			if d.PeakReservedBytes > 0 || d.OOMs > 0 {
				r := at(d.Index)
				r.PeakAllocatedBytes, r.PeakReservedBytes = d.PeakAllocatedBytes, d.PeakReservedBytes
				r.Segments, r.Retries, r.OOMs = d.Segments, d.Retries, d.OOMs
			}
		}
	}
	if j := p.jax; j.onCard() {
		for _, d := range j.Devices {
			if r := devices[d.Index]; r != nil {
				r.addPool(j, d, p.card(d.Index))
			}
		}
	}
	var list []rankReport
	for _, r := range devices {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b rankReport) int { return a.Device - b.Device })
	return list
}

// ofJAX is for a process that used the card by JAX: how far it came, which says nothing of PyTorch beside it.
func (r *rankReport) ofJAX(j *JAX) {
	r.Reason, r.Steps, r.Flat = j.Reason, j.Steps, j.Flat
	r.HostPeakBytes, r.BeganUnix, r.WallSeconds = j.HostPeakBytes, j.BeganUnix, j.WallSeconds
	r.Coverage.TimeLapse, r.Coverage.Ahead = j.TimeLapse, j.Ahead.cut()
	if j.Processes > 1 && j.Process != nil {
		r.GlobalRank, r.WorldSize, r.Node = j.Process, j.Processes, j.Node
	}
	if r.Coverage.Torch == "" {
		r.Coverage.KnownRelease, r.Coverage.Values = true, j.Values
	}
}

// card is what the native layer says of a card.
func (p *process) card(index int) *NativeDevice {
	if p.native == nil {
		return nil
	}
	for i := range p.native.Devices {
		if p.native.Devices[i].Index == index {
			return &p.native.Devices[i]
		}
	}
	return nil
}

func knownRelease(torch string) bool {
	all, err := manifest.All()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(m manifest.Manifest) bool {
		return torch == m.Torch || len(torch) > len(m.Torch) && torch[:len(m.Torch)+1] == m.Torch+"+"
	})
}

// compareRanks orders by the rank that the launcher gave, then by the work done, then by card and process.
func compareRanks(a, b rankReport) int {
	rankOf := func(r *rankReport) int {
		if r.GlobalRank == nil {
			return math.MaxInt
		}
		return *r.GlobalRank
	}
	return cmp.Or(cmp.Compare(rankOf(&a), rankOf(&b)), cmp.Compare(b.Steps, a.Steps), cmp.Compare(a.Device, b.Device), cmp.Compare(a.PID, b.PID))
}

// overlapping says that two processes used the same card at the same time. A rank from a launcher is no proof of a card of its own.
func overlapping(ranks []rankReport) bool {
	for i := range ranks {
		for k := i + 1; k < len(ranks); k++ {
			a, b := &ranks[i], &ranks[k]
			if a.PID == b.PID || a.Device != b.Device || a.Node != b.Node || a.BeganUnix == 0 || b.BeganUnix == 0 {
				continue
			}
			if a.BeganUnix < b.BeganUnix+b.WallSeconds && b.BeganUnix < a.BeganUnix+a.WallSeconds {
				return true
			}
		}
	}
	return false
}

// ProcessesAtOnce is how many processes of a bundle used a GPU at the same time, where that was most. One whose time is not known counts with every other.
func ProcessesAtOnce(b *trace.Bundle) int {
	var processes []rankReport
	for _, rank := range b.Ranks {
		r, err := parseRank(rank.Report)
		same := func(other rankReport) bool {
			return err == nil && other.PID == r.PID && other.Node == r.Node && other.BeganUnix == r.BeganUnix
		}
		if !slices.ContainsFunc(processes, same) {
			processes = append(processes, r)
		}
	}
	most := 0
	for i := range processes { // the most are there when one of them begins
		began, there := processes[i].BeganUnix, 0
		for k := range processes {
			if p := &processes[k]; began == 0 || p.BeganUnix == 0 || k == i || p.BeganUnix <= began && began < p.BeganUnix+p.WallSeconds {
				there++
			}
		}
		most = max(most, there)
	}
	return most
}

// parseRank reads the report of a rank from a bundle, which comes from a user's process.
func parseRank(data []byte) (rankReport, error) {
	var r rankReport
	if err := json.Unmarshal(data, &r); err != nil {
		return r, err
	}
	if r.Schema != schemaRank {
		return r, fmt.Errorf("schema: %q, want %q", r.Schema, schemaRank)
	}
	if len(r.Libraries) > maxDevicesInOne || len(r.Coverage.Unanswered) > maxUnanswered || len(r.Coverage.Bounded) > maxDevicesInOne {
		return r, fmt.Errorf("libraries, unanswered or bounded: too many entries")
	}
	sizes := []int64{r.Coverage.Tuning.WorkspaceBytes, r.PeakAllocatedBytes, r.PeakReservedBytes, r.PeakDeviceBytes, r.HostPeakBytes}
	counts := []int64{r.Coverage.Tuning.Lists, r.Coverage.Tuning.Candidates, r.Coverage.Tuning.Dropped, r.Segments, r.Retries, r.OOMs, r.Refused, r.PassedOver, int64(r.Steps), int64(r.BackwardCalls), r.Coverage.ValuesReadBack}
	if err := errors.Join(r.Coverage.Values.check(), r.Coverage.Ahead.check(), r.Other.check(), r.Third.check(), r.Pool.check()); err != nil {
		return r, err
	}
	for name, b := range r.Coverage.Bounded {
		if !trace.PlainName(name) {
			return r, fmt.Errorf("bounded: %.40q is no name", name)
		}
		sizes, counts = append(sizes, b.LargestBytes), append(counts, b.Calls)
	}
	for name, calls := range r.Coverage.Unanswered {
		if !trace.PlainName(name) {
			return r, fmt.Errorf("unanswered: %.40q is no name", name)
		}
		counts = append(counts, calls)
	}
	for _, name := range r.Libraries {
		if !trace.PlainName(name) {
			return r, fmt.Errorf("libraries: %.40q is no name", name)
		}
	}
	if v := r.Coverage.ValuesPerStep; math.IsNaN(v) || math.IsInf(v, 0) {
		return r, fmt.Errorf("values_per_step: %v", v)
	}
	if r.PeakAllocatedBytes > r.PeakReservedBytes {
		return r, fmt.Errorf("peak_allocated_bytes is larger than peak_reserved_bytes")
	}
	r.Coverage.Torch, r.Coverage.TimeLapse = clip(r.Coverage.Torch), clip(r.Coverage.TimeLapse)
	if err := errors.Join(checkPlace(r.GlobalRank, &r.WorldSize, r.Node), checkCommunicators(r.Communicators)); err != nil {
		return r, err
	}
	return r, checkNumbers(counts, sizes)
}

// outsideAllocator is device memory that somebody took past PyTorch's allocator: an extension, or another library of the program.
func (r *rankReport) outsideAllocator() int64 {
	held := r.PeakReservedBytes
	if r.Pool != nil {
		held += r.Pool.HeldBytes - r.Pool.NeededBytes
	}
	return max(r.PeakDeviceBytes-held, 0)
}

func (r *rankReport) estimate(number int, outside, outsideHigh int64) estimator.Rank {
	outside += r.outsideAllocator()
	comfortable := r.PeakReservedBytes + outside
	return estimator.Rank{
		Rank: number, PeakAllocatedBytes: r.PeakAllocatedBytes, PeakReservedBytes: r.PeakReservedBytes, OutsideBytes: outside,
		ComfortableBytes: comfortable, ComfortableHighBytes: r.PeakReservedBytes + r.outsideAllocator() + max(outsideHigh, outside-r.outsideAllocator()) + r.allowance(),
	}
}

// The Python layer names at most so many places ahead, each in one line; the report is written by the program's own process.
const (
	placesMost      = 8
	placeRunesLimit = 160
)

// placesAhead are the places of a report, cut down to what a reason may hold.
func placesAhead(reported []string) []string {
	var places []string
	for _, place := range reported[:min(len(reported), placesMost)] {
		line := []rune(strings.Join(strings.Fields(place), " "))
		places = append(places, string(line[:min(len(line), placeRunesLimit)]))
	}
	return places
}
