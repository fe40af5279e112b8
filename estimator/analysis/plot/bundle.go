package plot

import (
	"fmt"
	"strings"

	"github.com/gresize/gresize/estimator/analysis/timeline"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/snapshot"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// OfBundle is the figure of one rank of a bundle; its title is the command that was run. name is for errors.
func OfBundle(b *trace.Bundle, rank int, name string) (*Figure, error) {
	t, err := timeline.Read(b, rank, name)
	if err != nil {
		return nil, err
	}
	m := &b.Manifest
	f := &Figure{Title: strings.Join(m.Command, " "), Timeline: t, CapacityBytes: uint64(m.GPU.CapacityBytes)}
	f.Subtitle = fmt.Sprintf("GPU %d on %s, PyTorch %s: %s allocated, %s reserved at most", rank, m.GPU.Name, m.Versions.Torch,
		quantity.Size(t.PeakAllocatedBytes), quantity.Size(t.PeakReservedBytes))
	// Without its profile, the picture is one of the allocator alone.
	if profile, err := gpu.Load(m.GPU.ID); err == nil {
		if e := vgpu.Estimate(b, profile); rank < len(e.Ranks) && t.XLA {
			f.Subtitle = fmt.Sprintf("GPU %d on %s, JAX %s: arrays and temporaries of %s at most; XLA's allocator, which gives back later, has %s", rank, m.GPU.Name,
				m.Versions.JAX, quantity.Size(t.PeakAllocatedBytes), quantity.Size(uint64(e.Ranks[rank].PeakAllocatedBytes)))
		} else if rank < len(e.Ranks) {
			f.OutsideBytes = uint64(e.Ranks[rank].OutsideBytes)
			f.Subtitle += fmt.Sprintf(", %s outside", quantity.Size(f.OutsideBytes))
		}
	}
	return f, nil
}

// OfSnapshot is the figure of one device of a PyTorch memory snapshot: its allocator alone, by size and time.
func OfSnapshot(s *snapshot.Snapshot, device int, name string) (*Figure, error) {
	t, err := timeline.OfSnapshot(s, device, name)
	if err != nil {
		return nil, err
	}
	f := &Figure{Title: name, Timeline: t}
	f.Subtitle = fmt.Sprintf("device %d of a memory snapshot: %s allocated, %s reserved at most", device, quantity.Size(t.PeakAllocatedBytes), quantity.Size(t.PeakReservedBytes))
	if s.Origin != nil {
		f.CapacityBytes = s.Origin.TotalBytes
	}
	return f, nil
}

// OwnerLine is one owner at the peak, in words.
type OwnerLine struct {
	Category, Name, Size string
	Blocks               int
	// Percent is of all that is allocated at the peak.
	Percent float64
}

// Owners are the largest owners at the peak, at most so many of them.
func (f *Figure) Owners(most int) []OwnerLine {
	owners := f.Timeline.OwnersAtPeak()
	lines := make([]OwnerLine, min(len(owners), most))
	for i := range lines {
		o := owners[i]
		lines[i] = OwnerLine{Category: o.Category.String(), Name: printable.Text(o.Name), Size: quantity.Size(o.SizeBytes), Blocks: o.Blocks,
			Percent: 100 * float64(o.SizeBytes) / float64(max(f.Timeline.PeakAllocatedBytes, 1))}
	}
	return lines
}

// Style is what a picture says of its own looks, for a policy that allows nothing else.
func Style() string { return style }
