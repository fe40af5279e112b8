package main

import (
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/bundled"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/timeline"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/utilization"
	"github.com/gresize/gresize/estimator/vgpu"
)

// The status words and what they mean for the exit code.
const (
	statusFits       = "fits"
	statusDoesNotFit = "does not fit"
	statusUnknown    = "unknown"
	statusFailed     = "command failed"
)

var exitOf = map[string]int{statusFits: exitOK, statusDoesNotFit: exitDoesNotFit, statusUnknown: exitUnknown, statusFailed: exitFailed}

// reading is what one person reads of a run: the estimate, the word for it, and how much room is left. It is also what
// --json prints; docs/estimate.schema.json describes it.
type reading struct {
	estimator.Estimate
	Status   string `json:"status"`
	ExitCode int    `json:"exit_code"`
	GPUName  string `json:"gpu_name"`
	// CapacityBytes is the memory of the modelled card.
	CapacityBytes int64 `json:"capacity_bytes"`
	// HostDriverHighBytes is the most that NVIDIA's libraries may take of the host's memory beside HostPeakBytes.
	HostDriverHighBytes int64 `json:"host_driver_high_bytes,omitempty"`
	// Headroom is there when the estimate has figures and the card was not too small.
	Headroom *headroom `json:"headroom,omitempty"`
	WouldFit []string  `json:"would_fit"`
	// Owners are the largest holders of what PyTorch had allocated at the peak, on the GPU that needs the most; empty where no
	// history was recorded.
	Owners []owner `json:"owners"`
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
	Hints []string `json:"hints"`
	// devices is how many GPUs the command saw.
	devices int
	// asked is a digest of what the command asked the allocator for.
	asked      string
	OutputTail string `json:"output_tail,omitempty"`
}

// owner is who holds memory at the peak.
type owner struct {
	// Purpose is the name of a timeline.Category.
	Purpose string `json:"purpose"`
	// Name is the path of a parameter or of the module in whose forward the memory was taken.
	Name  string `json:"name,omitempty"`
	Bytes int64  `json:"bytes"`
	// Percent is the share of all that was allocated at the peak.
	Percent float64 `json:"percent"`
}

// headroom is what the largest rank leaves free on the card, counted from the upper end of its interval. It is negative
// where that end lies beyond the card.
type headroom struct {
	Bytes   int64   `json:"bytes"`
	Percent float64 `json:"percent"`
}

// newReading sums a run up for a person. The card is the profile's, whatever was tried on it.
func newReading(result *probe.Result, p *gpu.Profile) reading {
	m := &result.Bundle.Manifest
	r := reading{
		Estimate: result.Estimate, Status: statusOf(&result.Estimate, m, p), GPUName: p.Name, CapacityBytes: p.Total.Bytes,
		WouldFit: []string{}, Owners: []owner{}, PeakByPurpose: map[string]int64{}, Outcome: m.Outcome, CommandExitStatus: m.ExitStatus, Command: m.Command, Notes: slices.Clone(m.Notes), OutputTail: m.OutputTail,
	}
	r.ExitCode, r.devices = exitOf[r.Status], m.GPU.Devices
	if r.HostPeakBytes > 0 {
		r.HostDriverHighBytes = int64(min(len(r.Ranks), max(1, vgpu.ProcessesAtOnce(result.Bundle)))) * estimator.DriverHostHighBytes
	}
	if r.Estimator == bundled.Default { // what the virtual GPU saw is no part of another estimator's answer
		r.readOwners(result.Bundle)
	}
	for _, c := range m.Calls {
		if c.Action == "refused" {
			r.Notes = append(r.Notes, c.Name+" was not run")
		}
	}
	if r.Hints = hints(m); r.Hints == nil {
		r.Hints = []string{}
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
	r.Headroom = &headroom{Bytes: left, Percent: float64(left*1000/p.Total.Bytes) / 10}
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
func (r *reading) readOwners(b *trace.Bundle) {
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
		if i < shownOwners {
			name := trace.Clip([]byte(o.Name), shownNameBytes)
			percent := float64(o.SizeBytes*1000/line.PeakAllocatedBytes) / 10
			r.Owners = append(r.Owners, owner{Purpose: o.Category.String(), Name: name, Bytes: int64(o.SizeBytes), Percent: percent})
		}
	}
}

// statusOf is careful: what might not fit is not called fitting, and what may be gresize's own fault is not called the command's.
func statusOf(e *estimator.Estimate, m *trace.Manifest, p *gpu.Profile) string {
	largest, ok := e.Largest()
	full := slices.ContainsFunc(e.Reasons, func(r estimator.Reason) bool { return r.Code == estimator.CodeOutOfMemory })
	ours := slices.ContainsFunc(e.Reasons, func(r estimator.Reason) bool { return estimator.Ours(r.Code) })
	switch {
	case m.Outcome == trace.Crashed && !ours:
		return statusFailed
	case !e.Fits && ok && full && !ours:
		return statusDoesNotFit // how much is needed is not known, but that it is more is
	case e.Confidence == estimator.Unknown || e.Confidence == estimator.Low || !e.Fits:
		return statusUnknown
	case !ok || largest.ComfortableHighBytes > p.Total.Bytes:
		return statusUnknown
	}
	return statusFits
}

// wasFullOnce says that the run met the end of the card and went on without the allocator's cache.
func (r *reading) wasFullOnce() bool {
	return !r.Fits && slices.ContainsFunc(r.Reasons, func(x estimator.Reason) bool { return x.Code == estimator.CodeNearCapacity })
}

// tooClose says that the answer is unknown for one cause alone: the interval reaches over the end of the card.
func (r *reading) tooClose() bool {
	return r.Status == statusUnknown && r.Headroom != nil && r.Headroom.Bytes < 0 && r.Confidence != estimator.Low
}
