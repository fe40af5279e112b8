// Package plot draws where the memory of a recorded run went: over time by category, at the peak by owner, and at the peak by address. It writes SVG, a
// page of HTML, and text for a terminal. Categories differ by pattern as well as by colour, so that a picture in black and white says the same.
package plot

import (
	"fmt"
	"math"

	"github.com/gresize/gresize/estimator/analysis/timeline"
)

// Figure is what is drawn.
type Figure struct {
	// Title and Subtitle stand above the picture, such as the command and the card.
	Title, Subtitle string
	Timeline        *timeline.Timeline
	// OutsideBytes lies outside of PyTorch's allocator; CapacityBytes is the card's memory, 0 for none to compare with.
	OutsideBytes, CapacityBytes uint64
}

// TopOwners is how many owners are named at the peak.
const TopOwners = 10

// band is one layer of the stack, from the bottom up.
type band struct {
	name, explain string
	// letter stands for it in a terminal.
	letter rune
	// colour is the ground, pattern what is drawn over it.
	colour, ink string
	pattern     string
}

const (
	bandCached  = timeline.Categories
	bandOutside = timeline.Categories + 1
	bands       = timeline.Categories + 2
)

// The grounds get lighter and darker in turn, so that neighbours differ without colour; so do the patterns.
var looks = [bands]band{
	timeline.Parameters:          {letter: 'P', colour: "#1f4e79", ink: "#1f4e79", pattern: "plain"},
	timeline.OptimizerState:      {letter: 'O', colour: "#9dc3e6", ink: "#1f4e79", pattern: "rising"},
	timeline.Gradients:           {letter: 'G', colour: "#c55a11", ink: "#7a3205", pattern: "falling"},
	timeline.Activations:         {letter: 'a', colour: "#ffe699", ink: "#ffe699", pattern: "plain"},
	timeline.BackwardTemporaries: {letter: 'b', colour: "#a9d18e", ink: "#38571a", pattern: "dots"},
	timeline.Workspace:           {letter: 'w', colour: "#7f6084", ink: "#e6d9e8", pattern: "cross"},
	timeline.Other:               {letter: 'x', colour: "#d9d9d9", ink: "#404040", pattern: "level"},
	timeline.Arguments:           {letter: 'i', colour: "#ffe699", ink: "#ffe699", pattern: "plain"},
	timeline.Outputs:             {letter: 'u', colour: "#c55a11", ink: "#7a3205", pattern: "falling"},
	timeline.Temporaries:         {letter: 't', colour: "#a9d18e", ink: "#38571a", pattern: "dots"},
	bandCached:                   {name: "cached", explain: "held by PyTorch's allocator and free", letter: '.', colour: "#ffffff", ink: "#808080", pattern: "thin"},
	bandOutside:                  {name: "outside", explain: "context, modules and handles: outside of PyTorch's allocator", letter: '#', colour: "#808080", ink: "#303030", pattern: "upright"},
}

func look(n int) band {
	l := looks[n]
	if n < timeline.Categories {
		l.name, l.explain = timeline.Category(n).String(), timeline.Category(n).Explain()
	}
	return l
}

// The bands of PyTorch's allocator and of XLA's, from the bottom up. What XLA's allocator holds of a card, and what is outside of it, follows from the share
// that it allows itself, and says nothing of the program.
var (
	torchBands = []int{
		int(timeline.Parameters), int(timeline.OptimizerState), int(timeline.Gradients), int(timeline.Activations), int(timeline.BackwardTemporaries),
		int(timeline.Workspace), int(timeline.Other), bandCached, bandOutside,
	}
	xlaBands = []int{
		int(timeline.Parameters), int(timeline.OptimizerState), int(timeline.Arguments), int(timeline.Outputs), int(timeline.Temporaries), int(timeline.Other),
	}
)

// shown are the bands of the figure.
func (f *Figure) shown() []int {
	if f.Timeline.XLA {
		return xlaBands
	}
	return torchBands
}

// heights returns the bytes of each band of a sample.
func (f *Figure) heights(s *timeline.Sample) (h [bands]uint64) {
	copy(h[:], s.Bytes[:])
	h[bandCached] = s.ReservedBytes - min(s.ReservedBytes, s.AllocatedBytes())
	h[bandOutside] = f.OutsideBytes
	return h
}

// highest is the most that is in use at any of the samples.
func (f *Figure) highest(samples []timeline.Sample) (most uint64) {
	for i := range samples {
		sum := uint64(0)
		for _, n := range f.heights(&samples[i]) {
			sum += n
		}
		most = max(most, sum)
	}
	return most
}

// ticks returns round values in bytes from 0 up to most, four to eight of them, and how to write them.
func ticks(most uint64) ([]uint64, func(uint64) string) {
	unit, name := uint64(1<<20), "MiB"
	if most >= 2<<30 {
		unit, name = 1<<30, "GiB"
	}
	span := float64(most) / float64(unit)
	step := math.Pow(10, math.Floor(math.Log10(max(span, 1e-6)/4)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if span/(step*factor) <= 8 {
			step *= factor
			break
		}
	}
	var at []uint64
	for v := 0.0; v <= span*1.0001; v += step {
		at = append(at, uint64(v*float64(unit)))
	}
	digits := max(0, int(-math.Floor(math.Log10(step))))
	return at, func(b uint64) string { return fmt.Sprintf("%.*f %s", digits, float64(b)/float64(unit), name) }
}

// ownerName is an owner for people.
func ownerName(o *timeline.Owner) string {
	if o.Name == "" {
		return o.Category.String()
	}
	return fmt.Sprintf("%s: %s", o.Category, o.Name)
}
