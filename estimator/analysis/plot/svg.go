package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator/analysis/timeline"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
)

// The layout, in pixels.
const (
	pictureWidth = 1040
	marginLeft   = 90
	marginRight  = 30
	plotWidth    = pictureWidth - marginLeft - marginRight
	timeTop      = 90
	timeHeight   = 330
	legendHeight = 56
	barHeight    = 22
	mapRows      = 16
	mapRowHeight = 14
	mapRowGap    = 3
	timeSamples  = 450
	shownSteps   = 24
	longestOwner = 56
)

// SVG writes the picture.
func SVG(w io.Writer, f *Figure) error {
	p := painter{figure: f}
	p.draw()
	_, err := p.out.WriteTo(w)
	return err
}

type painter struct {
	figure *Figure
	out    bytes.Buffer
	height int
}

func (p *painter) add(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

// escaped makes a name safe inside markup; what a user's program is called is a stranger's text.
func escaped(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(printable.Text(s))); err != nil {
		return "" // a strings.Builder does not fail
	}
	return b.String()
}

func (p *painter) text(x, y float64, class, s string) {
	p.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, escaped(s))
}

const ownersTop = timeTop + timeHeight + 50 + legendHeight + 40

func mapTopBelow(owners int) int { return ownersTop + owners*barHeight + 70 }

func heightFor(mapTop int) int { return mapTop + mapRows*(mapRowHeight+mapRowGap) + 50 }

// Height is that of the picture in pixels, where its width is 1040.
func (f *Figure) Height() int {
	return f.heightBelow(mapTopBelow(min(len(f.Timeline.OwnersAtPeak()), TopOwners)))
}

// heightBelow is that of a picture whose map begins there, or would: XLA does not say where its temporaries lie.
func (f *Figure) heightBelow(mapTop int) int {
	if f.Timeline.XLA {
		return mapTop
	}
	return heightFor(mapTop)
}

func (p *painter) draw() {
	owners := p.figure.Timeline.OwnersAtPeak()
	owners = owners[:min(len(owners), TopOwners)]
	mapTop := mapTopBelow(len(owners))
	p.height = p.figure.heightBelow(mapTop)
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`, pictureWidth, p.height, pictureWidth, p.height)
	p.add(`<title>%s</title>`, escaped(p.figure.Title))
	p.styles()
	p.add(`<rect width="%d" height="%d" fill="#ffffff"/>`, pictureWidth, p.height)
	p.text(20, 30, "title", printable.Clip(p.figure.Title, 100))
	p.text(20, 52, "note", printable.Clip(p.figure.Subtitle, 140))
	p.overTime()
	p.legend(timeTop + timeHeight + 50)
	p.owners(ownersTop, owners)
	if !p.figure.Timeline.XLA {
		p.addressMap(mapTop)
	}
	p.add(`</svg>`)
}

// style is the one sheet of every picture.
const style = `text{font-family:sans-serif;font-size:12px;fill:#202020}.title{font-size:17px;font-weight:bold}.head{font-size:14px;font-weight:bold}` +
	`.note{fill:#505050}.end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#d0d0d0;stroke-width:1}.edge{stroke:#ffffff;stroke-width:0.6}` +
	`.step{stroke:#606060;stroke-width:1;stroke-dasharray:3 3}.peak{stroke:#000000;stroke-width:1.4}.card{stroke:#b00000;stroke-width:1.6;stroke-dasharray:9 4}`

func (p *painter) styles() {
	p.add(`<style>%s</style>`, style)
	p.add(`<defs>`)
	for _, n := range p.figure.shown() {
		l := look(n)
		p.add(`<pattern id="band%d" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="%s"/>%s</pattern>`, n, l.colour, patternMarks(l))
	}
	p.add(`</defs>`)
}

func patternMarks(l band) string {
	path := map[string]string{
		"rising": "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", "falling": "M-2,6 l4,4 M0,0 l8,8 M6,-2 l4,4", "thin": "M0,8 l8,-8",
		"cross": "M0,0 l8,8 M0,8 l8,-8", "level": "M0,4 h8", "upright": "M2,0 v8 M6,0 v8",
	}[l.pattern]
	width := 1.4
	switch l.pattern {
	case "plain":
		return ""
	case "dots":
		return fmt.Sprintf(`<circle cx="2" cy="2" r="1.2" fill="%s"/><circle cx="6" cy="6" r="1.2" fill="%s"/>`, l.ink, l.ink)
	case "thin":
		width = 0.6
	}
	return fmt.Sprintf(`<path d="%s" stroke="%s" stroke-width="%.1f" fill="none"/>`, path, l.ink, width)
}

// overTime draws the stack over the events of the allocator.
func (p *painter) overTime() {
	f, t := p.figure, p.figure.Timeline
	samples := t.Samples(timeSamples)
	most := f.highest(samples)
	card := f.CapacityBytes > 0 && f.CapacityBytes < 2*most
	if card {
		most = max(most, f.CapacityBytes)
	}
	most += most / 20
	x := func(at int) float64 { return marginLeft + float64(at)/float64(max(t.Entries, 1))*plotWidth }
	y := func(bytes uint64) float64 { return timeTop + timeHeight*(1-float64(bytes)/float64(max(most, 1))) }
	at, write := ticks(most)
	for _, v := range at {
		p.add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" class="grid"/>`, marginLeft, y(v), marginLeft+plotWidth, y(v))
		p.text(marginLeft-8, y(v)+4, "end", write(v))
	}
	lower := make([]uint64, len(samples))
	for _, n := range p.figure.shown() {
		p.layer(n, samples, lower, x, y)
	}
	every := 1 + len(t.Steps)/shownSteps
	for i, s := range t.Steps {
		p.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="step"/>`, x(s.At), timeTop, x(s.At), timeTop+timeHeight)
		if i%every == 0 {
			p.text(x(s.At), timeTop+timeHeight+16, "middle", fmt.Sprintf("step %d", s.Number))
		}
	}
	if card {
		p.add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" class="card"/>`, marginLeft, y(f.CapacityBytes), marginLeft+plotWidth, y(f.CapacityBytes))
		p.text(marginLeft+6, y(f.CapacityBytes)-5, "", "the card: "+quantity.Size(f.CapacityBytes))
	}
	p.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" class="peak"/>`, x(t.PeakAt), timeTop-6, x(t.PeakAt), timeTop+timeHeight)
	p.text(x(t.PeakAt), timeTop-10, "middle", fmt.Sprintf("peak: %s allocated", quantity.Size(t.PeakAllocatedBytes)))
	p.text(marginLeft+plotWidth/2, timeTop+timeHeight+36, "middle", fmt.Sprintf("%s of the allocator, in their order; a dashed line ends a training step", quantity.Count(t.Entries, "event")))
}

// layer draws one band and raises the lower edge of the next. Between two moments nothing is known, so the edges are steps.
func (p *painter) layer(n int, samples []timeline.Sample, lower []uint64, x func(int) float64, y func(uint64) float64) {
	upper := make([]uint64, len(samples))
	some := false
	for i := range samples {
		h := p.figure.heights(&samples[i])[n]
		upper[i] = lower[i] + h
		some = some || h > 0
	}
	if some {
		var d strings.Builder
		entries, parts := p.figure.Timeline.Entries, len(samples)
		d.WriteString("M")
		stairs(&d, upper, func(i int) float64 { return x(i * entries / parts) }, y)
		slices.Reverse(lower)
		d.WriteString("L")
		stairs(&d, lower, func(i int) float64 { return x((parts - i) * entries / parts) }, y)
		l := look(n)
		p.add(`<path d="%sZ" fill="url(#band%d)" class="edge"><title>%s: %s</title></path>`, d.String(), n, l.name, l.explain)
	}
	copy(lower, upper)
}

// stairs writes a line of flat steps; edge gives where step i begins, and the last one ends.
func stairs(d *strings.Builder, levels []uint64, edge func(int) float64, y func(uint64) float64) {
	for i, level := range levels {
		switch {
		case i == 0:
			fmt.Fprintf(d, "%.1f,%.1f", edge(0), y(level))
		case level != levels[i-1]:
			fmt.Fprintf(d, "H%.1fV%.1f", edge(i), y(level))
		}
	}
	fmt.Fprintf(d, "H%.1f", edge(len(levels)))
}

func (p *painter) legend(top int) {
	const columns = 5
	for i, n := range p.figure.shown() {
		l := look(n)
		x := float64(marginLeft + i%columns*(plotWidth/columns))
		y := float64(top + i/columns*26)
		p.add(`<rect x="%.1f" y="%.1f" width="26" height="15" fill="url(#band%d)" stroke="#404040" stroke-width="0.7"><title>%s</title></rect>`, x, y, n, l.explain)
		p.text(x+33, y+12, "", l.name)
	}
}

func (p *painter) owners(top int, owners []timeline.Owner) {
	t := p.figure.Timeline
	p.text(20, float64(top-14), "head", fmt.Sprintf("At the peak: the %d largest owners of %s", len(owners), quantity.Size(t.PeakAllocatedBytes)))
	const barsLeft = 430
	for i := range owners {
		o := &owners[i]
		y := float64(top + i*barHeight)
		width := float64(o.SizeBytes) / float64(max(owners[0].SizeBytes, 1)) * (pictureWidth - barsLeft - 190)
		p.text(barsLeft-8, y+15, "end", printable.Clip(ownerName(o), longestOwner))
		p.add(`<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="url(#band%d)" stroke="#404040" stroke-width="0.7"><title>%s</title></rect>`,
			barsLeft, y+3, max(width, 1), barHeight-6, o.Category, escaped(ownerName(o)))
		blocks := "blocks"
		if o.Blocks == 1 {
			blocks = "block"
		}
		p.text(barsLeft+width+8, y+15, "", fmt.Sprintf("%s in %d %s", quantity.Size(o.SizeBytes), o.Blocks, blocks))
	}
}

// addressMap draws all that the allocator holds at the peak, in rows of equal size, by address; gaps between segments are left out.
func (p *painter) addressMap(top int) {
	t := p.figure.Timeline
	ranges, blocks := t.RangesAtPeak(), t.BlocksAtPeak()
	held, live := uint64(0), uint64(0)
	for _, r := range ranges {
		held += r.SizeBytes
	}
	for _, b := range blocks {
		live += b.SizeBytes
	}
	p.text(20, float64(top-32), "head", fmt.Sprintf("At the peak: the address map of %s in %s, %s of it free", quantity.Size(held), quantity.Count(len(ranges), "segment"), quantity.Size(held-min(held, live))))
	p.text(20, float64(top-14), "note", fmt.Sprintf("row by row, %s each, in the order of addresses; black lines part segments, white is free", quantity.Size(held/mapRows)))
	if held == 0 {
		return
	}
	for row := range mapRows {
		p.add(`<rect x="%d" y="%d" width="%d" height="%d" fill="#ffffff" stroke="#808080" stroke-width="0.6"/>`, marginLeft, top+row*(mapRowHeight+mapRowGap), plotWidth, mapRowHeight)
	}
	scale := float64(mapRows*plotWidth) / float64(held)
	offset := uint64(0)
	for _, r := range ranges {
		for len(blocks) > 0 && blocks[0].Addr < r.Addr+r.SizeBytes {
			b := blocks[0]
			blocks = blocks[1:]
			if b.Addr >= r.Addr {
				p.mapPiece(top, float64(offset+b.Addr-r.Addr)*scale, float64(b.SizeBytes)*scale, int(b.Category))
			}
		}
		offset += r.SizeBytes
		end := float64(offset) * scale
		row := min(int(end/plotWidth), mapRows-1)
		x, y := marginLeft+end-float64(row*plotWidth), top+row*(mapRowHeight+mapRowGap)
		p.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#000000" stroke-width="1"/>`, x, y-1, x, y+mapRowHeight+1)
	}
}

// mapPiece draws one block, over as many rows as it spans.
func (p *painter) mapPiece(top int, from, width float64, category int) {
	for width > 0.05 { // what is thinner than that cannot be seen
		row := min(int(from/plotWidth), mapRows-1)
		x := from - float64(row*plotWidth)
		piece := min(width, plotWidth-x)
		if piece <= 0 {
			return
		}
		p.add(`<rect x="%.2f" y="%d" width="%.2f" height="%d" fill="url(#band%d)"/>`, marginLeft+x, top+row*(mapRowHeight+mapRowGap), piece, mapRowHeight, category)
		from, width = from+piece, width-piece
	}
}
