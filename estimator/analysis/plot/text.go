package plot

import (
	"fmt"
	"io"
	"strings"

	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// The size of the picture in a terminal, in characters.
const (
	textColumns = 72
	textRows    = 16
	textOwner   = 60
)

// Text writes the picture for a terminal: a letter for each category.
func Text(w io.Writer, f *Figure) error {
	var b strings.Builder
	t := f.Timeline
	fmt.Fprintf(&b, "%s\n%s\n\n", printable.Clip(f.Title, 100), printable.Clip(f.Subtitle, 140))
	samples := t.Samples(textColumns)
	most := max(f.highest(samples), 1)
	grid := make([][]rune, textRows)
	for row := range grid {
		grid[row] = []rune(strings.Repeat(" ", len(samples)))
	}
	for column := range samples {
		heights := f.heights(&samples[column])
		for row := range textRows {
			// The middle of the cell decides what it shows.
			level := (float64(row) + 0.5) / textRows * float64(most)
			sum := 0.0
			for _, n := range f.shown() {
				if sum += float64(heights[n]); level < sum {
					grid[row][column] = look(n).letter
					break
				}
			}
		}
	}
	for row := textRows - 1; row >= 0; row-- {
		label := ""
		if row == textRows-1 || row == textRows/2-1 {
			label = quantity.Size(uint64(float64(row+1) / textRows * float64(most)))
		}
		fmt.Fprintf(&b, "%10s |%s\n", label, strings.TrimRight(string(grid[row]), " "))
	}
	marks := []rune(strings.Repeat("-", len(samples)))
	for _, s := range t.Steps {
		marks[min(s.At*len(samples)/max(t.Entries, 1), len(samples)-1)] = '+'
	}
	fmt.Fprintf(&b, "%10s +%s\n%12s%s of the allocator; + ends a training step\n\n", "", string(marks), "", quantity.Count(t.Entries, "event"))
	var legend []string
	for _, n := range f.shown() {
		legend = append(legend, fmt.Sprintf("%c %s", look(n).letter, look(n).name))
	}
	fmt.Fprintf(&b, "%s\n\n", strings.Join(legend, "  "))
	owners := t.OwnersAtPeak()
	owners = owners[:min(len(owners), TopOwners)]
	fmt.Fprintf(&b, "at the peak %s are allocated; the %d largest owners:\n", quantity.Size(t.PeakAllocatedBytes), len(owners))
	for i := range owners {
		fmt.Fprintf(&b, "%12s  %s\n", quantity.Size(owners[i].SizeBytes), printable.Clip(ownerName(&owners[i]), textOwner))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
