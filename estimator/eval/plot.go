package eval

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/internal/quantity"
)

// The layout of the picture, in pixels.
const (
	panelEdge    = 300
	panelGap     = 70
	panelsInRow  = 3
	pictureTop   = 60
	pictureLeft  = 70
	bandShare    = 0.1
	legendHeight = 24
)

// marks tell the groups apart by colour and shape.
var marks = []struct{ colour, shape string }{
	{"#0072b2", "circle"}, {"#d55e00", "square"}, {"#009e73", "triangle"}, {"#cc79a7", "diamond"}, {"#56b4e9", "cross"}, {"#e69f00", "plus"},
}

// Plot draws the calibration: for each estimator what was measured against what was estimated, both on logarithmic scales, with the diagonal and
// a band of ten per cent round it. Rows that ran out of memory, or were thought to, are not in it.
func (c *Comparable) Plot(w io.Writer, title string) error {
	p := &plotter{}
	var names []string
	low, high := math.Inf(1), math.Inf(-1)
	for i := range c.Cases {
		x := &c.Cases[i]
		if !x.scored() || x.EstimateBytes <= 0 {
			continue
		}
		if !slices.Contains(names, x.Estimator) {
			names = append(names, x.Estimator)
		}
		if !slices.Contains(p.groups, x.Row.Group) {
			p.groups = append(p.groups, x.Row.Group)
		}
		low, high = min(low, float64(x.Row.MeasuredBytes), float64(x.EstimateBytes)), max(high, float64(x.Row.MeasuredBytes), float64(x.EstimateBytes))
	}
	if len(names) == 0 {
		low, high = gibibyte, 2*gibibyte
	}
	p.low, p.high = math.Log2(low)-0.1, math.Log2(high)+0.1
	columns := min(max(len(names), 1), panelsInRow)
	rows := (len(names) + panelsInRow - 1) / panelsInRow
	width, height := pictureLeft+columns*(panelEdge+panelGap), pictureTop+rows*(panelEdge+panelGap)+legendHeight
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`, width, height, width, height)
	p.add(`<title>%s</title>`, markup(title))
	p.add(`<style>text{font-family:sans-serif;font-size:12px;fill:#202020}.title{font-size:16px;font-weight:bold}.head{font-weight:bold}.end{text-anchor:end}.middle{text-anchor:middle}</style>`)
	p.add(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	p.add(`<text x="20" y="28" class="title">%s</text>`, markup(title))
	for i, name := range names {
		p.panel(c, name, pictureLeft+i%panelsInRow*(panelEdge+panelGap), pictureTop+i/panelsInRow*(panelEdge+panelGap))
	}
	x := pictureLeft
	for i, group := range p.groups {
		p.mark(i, float64(x), float64(height-legendHeight/2-4))
		p.add(`<text x="%d" y="%d">%s</text>`, x+10, height-legendHeight/2, markup(nameOf(group)))
		x += 30 + 7*len([]rune(nameOf(group)))
	}
	p.add(`</svg>`)
	_, err := p.out.WriteTo(w)
	return err
}

func nameOf(group string) string {
	if group == "" {
		return "rows"
	}
	return group
}

type plotter struct {
	out       bytes.Buffer
	groups    []string
	low, high float64 // of the scales, as powers of two
}

func (p *plotter) add(format string, args ...any) { fmt.Fprintf(&p.out, format+"\n", args...) }

func markup(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return "" // a strings.Builder does not fail
	}
	return b.String()
}

// along is the place of a power of two on an axis.
func (p *plotter) along(power float64) float64 {
	return min(max((power-p.low)/(p.high-p.low), 0), 1) * panelEdge
}

func (p *plotter) panel(c *Comparable, name string, left, top int) {
	x0, y0 := float64(left), float64(top+panelEdge)
	up := math.Log2(1 + bandShare)
	corner := func(x, y float64) string { return fmt.Sprintf("%.1f,%.1f", x0+p.along(x), y0-p.along(y)) }
	p.add(`<polygon points="%s %s %s %s %s %s" fill="#eeeeee"/>`, corner(p.low, p.low), corner(p.low, p.low+up), corner(p.high-up, p.high), corner(p.high, p.high),
		corner(p.high, p.high-up), corner(p.low+up, p.low))
	step := max(1, math.Ceil((p.high-p.low)/6))
	for power := math.Ceil(p.low); power <= p.high; power += step {
		at := p.along(power)
		p.add(`<path d="M%.1f,%.1f v-%d M%.1f,%.1f h%d" stroke="#d8d8d8"/>`, x0+at, y0, panelEdge, x0, y0-at, panelEdge)
		p.add(`<text x="%.1f" y="%.1f" class="middle">%s</text>`, x0+at, y0+16, sizeOf(power))
		p.add(`<text x="%.1f" y="%.1f" class="end">%s</text>`, x0-5, y0-at+4, sizeOf(power))
	}
	p.add(`<path d="M%.1f,%.1f L%.1f,%.1f" stroke="#000000" stroke-dasharray="4 3"/>`, x0, y0, x0+panelEdge, y0-panelEdge)
	p.add(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#606060"/>`, left, top, panelEdge, panelEdge)
	var errors []float64
	for i := range c.Cases {
		if x := &c.Cases[i]; x.Estimator == name && x.scored() && x.EstimateBytes > 0 {
			errors = append(errors, math.Abs(x.Error()))
			p.mark(slices.Index(p.groups, x.Row.Group), x0+p.along(math.Log2(float64(x.Row.MeasuredBytes))), y0-p.along(math.Log2(float64(x.EstimateBytes))))
		}
	}
	slices.Sort(errors)
	p.add(`<text x="%d" y="%d" class="head">%s: %s, median error %s</text>`, left, top-8, markup(name), quantity.Count(len(errors), "row"), percent(median(errors), 1))
	p.add(`<text x="%.1f" y="%.1f" class="middle">measured</text>`, x0+panelEdge/2, y0+34)
	p.add(`<text transform="translate(%.1f,%.1f) rotate(-90)" class="middle">estimated</text>`, x0-50, y0-panelEdge/2)
}

func (p *plotter) mark(group int, x, y float64) {
	m := marks[group%len(marks)]
	paint := fmt.Sprintf(`fill="%s" fill-opacity="0.65" stroke="%s"`, m.colour, m.colour)
	switch m.shape {
	case "circle":
		p.add(`<circle cx="%.1f" cy="%.1f" r="3" %s/>`, x, y, paint)
	case "square":
		p.add(`<rect x="%.1f" y="%.1f" width="6" height="6" %s/>`, x-3, y-3, paint)
	default:
		path := map[string]string{"triangle": "m0,-4 l4,7 h-8 z", "diamond": "m0,-4 l4,4 l-4,4 l-4,-4 z", "cross": "m-3,-3 l6,6 m0,-6 l-6,6", "plus": "m-4,0 h8 m-4,-4 v8"}[m.shape]
		p.add(`<path d="M%.1f,%.1f %s" %s/>`, x, y, path, paint)
	}
}

func sizeOf(power float64) string {
	if power >= 30 {
		return fmt.Sprintf("%.0f GiB", math.Exp2(power-30))
	}
	return fmt.Sprintf("%.0f MiB", math.Exp2(power-20))
}
