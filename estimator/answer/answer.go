// Package answer holds what one person reads of a run: the estimate, the word for it, how much room is left and whose the memory was.
package answer

import (
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/timeline"
	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// The status words, in docs/estimate.schema.json as well.
const (
	Fits       = "fits"
	DoesNotFit = "does not fit"
	Unknown    = "unknown"
	Failed     = "command failed"
)

// What a program exits with whose answer is one.
const (
	ExitFits       = 0
	ExitDoesNotFit = 3
	ExitUnknown    = 4
	ExitFailed     = 5
)

// ExitCode belongs to a status word.
func ExitCode(status string) int {
	switch status {
	case Fits:
		return ExitFits
	case DoesNotFit:
		return ExitDoesNotFit
	case Failed:
		return ExitFailed
	}
	return ExitUnknown
}

const (
	shownSmallest = 4
	// MostOwners are listed at the most.
	MostOwners     = 10
	shownNameBytes = 200
)

// Answer is what one person reads of a run. It is also what --json prints; docs/estimate.schema.json describes it.
type Answer struct {
	estimator.Estimate
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	GPUName  string `json:"gpu_name"`
	// CapacityBytes is the memory of the modelled card.
	CapacityBytes int64 `json:"capacity_bytes"`
	// HostDriverHighBytes is the most that NVIDIA's libraries may take of the host's memory beside HostPeakBytes.
	HostDriverHighBytes int64 `json:"host_driver_high_bytes,omitempty"`
	// Headroom is there when the estimate has figures and the card was not too small.
	Headroom *Headroom `json:"headroom,omitempty"`
	WouldFit []string  `json:"would_fit"`
	// Owners are the largest holders of what PyTorch had allocated at the peak, on the GPU that needs the most; empty where no
	// history was recorded.
	Owners []Owner `json:"owners"`
	// PeakByPurpose sums up all that was allocated then.
	PeakByPurpose map[string]int64 `json:"peak_by_purpose"`
	// Utilization is advice that was asked for, by its own schema.
	Utilization *utilization.Advice `json:"utilization,omitempty"`
	Outcome     trace.Outcome       `json:"outcome"`
	// CommandExitStatus is that of the command, 128 + the signal when one ended it.
	CommandExitStatus int      `json:"command_exit_status"`
	Command           []string `json:"command"`
	Notes             []string `json:"notes"`
	// Hints are ways out of a command's own failure, the likeliest first.
	Hints      []string `json:"hints"`
	OutputTail string   `json:"output_tail,omitempty"`
	// Devices is how many GPUs the command saw.
	Devices int `json:"-"`
}

// Owner is who holds memory at the peak.
type Owner struct {
	// Purpose is the name of a timeline.Category.
	Purpose string `json:"purpose"`
	// Name is the path of a parameter or of the module in whose forward the memory was taken.
	Name  string `json:"name,omitempty"`
	Bytes int64  `json:"bytes"`
	// Percent is the share of all that was allocated at the peak.
	Percent float64 `json:"percent"`
}

// Headroom is what the largest rank leaves free on the card, counted from the upper end of its interval. It is negative
// where that end lies beyond the card.
type Headroom struct {
	Bytes   int64   `json:"bytes"`
	Percent float64 `json:"percent"`
}

// Of sums a run up for a person. The card is the profile's, whatever was tried on it.
func Of(e *estimator.Estimate, b *trace.Bundle, p *gpu.Profile) Answer {
	m := &b.Manifest
	r := Answer{
		Estimate: *e, Status: statusOf(e, m, p), GPUName: p.Name, CapacityBytes: p.Total.Bytes,
		WouldFit: []string{}, Hints: []string{}, Owners: []Owner{}, PeakByPurpose: map[string]int64{}, Outcome: m.Outcome, CommandExitStatus: m.ExitStatus, Command: m.Command, Notes: slices.Clone(m.Notes), OutputTail: m.OutputTail,
	}
	r.ExitCode, r.Devices = ExitCode(r.Status), m.GPU.Devices
	if r.HostPeakBytes > 0 {
		r.HostDriverHighBytes = int64(min(len(r.Ranks), max(1, vgpu.ProcessesAtOnce(b)))) * estimator.DriverHostHighBytes
	}
	if r.Estimator == bundled.Default { // what the virtual GPU saw is no part of another estimator's answer
		r.readOwners(b)
	}
	for _, c := range m.Calls {
		if c.Action == "refused" {
			r.Notes = append(r.Notes, c.Name+" was not run")
		}
	}
	if r.Notes == nil {
		r.Notes = []string{}
	}
	if r.Command == nil {
		r.Command = []string{}
	}
	largest, ok := r.Largest()
	if !ok || !r.Fits || r.Confidence == estimator.Unknown {
		return r
	}
	left := p.Total.Bytes - largest.ComfortableHighBytes
	r.Headroom = &Headroom{Bytes: left, Percent: float64(left*1000/p.Total.Bytes) / 10}
	if r.Confidence == estimator.Low {
		return r // what could not be relied on is no promise for other cards
	}
	for _, c := range gpu.SmallestFor(largest.ComfortableHighBytes) {
		if r.WouldFit = append(r.WouldFit, c.ID); len(r.WouldFit) == shownSmallest {
			break
		}
	}
	return r
}

// readOwners reads the history of the rank that needs the most, as `gresize plot` draws it. One that is missing or cannot be
// replayed costs the list only.
func (r *Answer) readOwners(b *trace.Bundle) {
	largest, ok := r.Largest()
	if !ok || largest.Rank >= len(b.Ranks) || b.Ranks[largest.Rank].EventsFormat != trace.EventsJSON {
		return
	}
	line, err := timeline.Read(b, largest.Rank, "the run")
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("whose memory it was is not known: %v", err))
		return
	}
	for i, o := range line.OwnersAtPeak() {
		r.PeakByPurpose[o.Category.String()] += int64(o.SizeBytes)
		if i < MostOwners {
			name := trace.Clip([]byte(o.Name), shownNameBytes)
			percent := float64(o.SizeBytes*1000/line.PeakAllocatedBytes) / 10
			r.Owners = append(r.Owners, Owner{Purpose: o.Category.String(), Name: name, Bytes: int64(o.SizeBytes), Percent: percent})
		}
	}
}

// statusOf is careful: what might not fit is not called fitting, and what may be gresize's own fault is not called the command's.
func statusOf(e *estimator.Estimate, m *trace.Manifest, p *gpu.Profile) string {
	largest, ok := e.Largest()
	ours := slices.ContainsFunc(e.Reasons, func(r estimator.Reason) bool { return estimator.Ours(r.Code) })
	switch {
	case m.Outcome == trace.Crashed && !ours:
		return Failed
	case !e.Fits && ok && e.HasReason(estimator.CodeOutOfMemory) && !ours:
		return DoesNotFit // how much is needed is not known, but that it is more is
	case e.Confidence == estimator.Unknown || e.Confidence == estimator.Low || !e.Fits:
		return Unknown
	case !ok || largest.ComfortableHighBytes > p.Total.Bytes:
		return Unknown
	}
	return Fits
}

// WasFullOnce says that the run met the end of the card and continued without the allocator's cache.
func (r *Answer) WasFullOnce() bool {
	return !r.Fits && r.HasReason(estimator.CodeNearCapacity)
}

// TooClose says that the answer is unknown for one cause alone: the interval reaches over the end of the card.
func (r *Answer) TooClose() bool {
	return r.Status == Unknown && r.Headroom != nil && r.Headroom.Bytes < 0 && r.Confidence != estimator.Low
}
