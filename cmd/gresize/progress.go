package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/quantity"
	"golang.org/x/sys/unix"
)

// progressLine shows on standard error how far a run has come: on a terminal one line that is written over, elsewhere,
// and only when asked for, a line whenever a step or a second has passed and something has changed.
type progressLine struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	columns  int
	label    string
	last     string
	shown    bool
	lastAt   time.Duration
}

const (
	progressColumns = 80
	progressPlain   = time.Second
)

// newProgressLine returns nil where no progress is to be shown.
func newProgressLine(w io.Writer, wanted bool) *progressLine {
	p := &progressLine{w: w}
	p.columns, p.terminal = columnsOf(w)
	if !p.terminal && !wanted {
		return nil
	}
	return p
}

// columnsOf is how wide a terminal is, or what stands for it where w is none.
func columnsOf(w io.Writer) (columns int, terminal bool) {
	f, ok := w.(*os.File)
	if !ok {
		return progressColumns, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return progressColumns, err == nil
	}
	return int(size.Col), true
}

// begin names the run whose progress comes next.
func (p *progressLine) begin(label string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.label, p.last, p.lastAt = label, "", 0
}

// show is probe.Options.Progress.
func (p *progressLine) show(x probe.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := "starting"
	switch {
	case x.Answered:
		state = fmt.Sprintf("first answer: %s reserved; going on in time-lapse", quantity.GiB(x.PeakReservedBytes))
	case x.Steps > 0:
		state = fmt.Sprintf("%s, %s reserved", quantity.Count(x.Steps, "step"), quantity.GiB(x.PeakReservedBytes))
	case x.Ranks > 0:
		state = fmt.Sprintf("no step yet, %s reserved", quantity.GiB(x.PeakReservedBytes))
	case x.TorchSeen:
		state = "PyTorch or JAX is there, no step yet"
	}
	if x.Ranks > 1 {
		state += fmt.Sprintf(" on each of up to %d", x.Ranks)
	}
	text := state
	if x.LastLine != "" {
		text += " | " + printable.Text(x.LastLine)
	}
	if p.terminal {
		line := fmt.Sprintf("%s%4.0f s  %s", p.label, x.Elapsed.Seconds(), text)
		fmt.Fprintf(p.w, "\r\x1b[K%s", clipColumns(line, p.columns-1))
		p.shown = true
		return
	}
	if text == p.last || p.last != "" && x.Elapsed-p.lastAt < progressPlain {
		return
	}
	p.last, p.lastAt = text, x.Elapsed
	fmt.Fprintf(p.w, "gresize: %s%.1f s: %s\n", p.label, x.Elapsed.Seconds(), text)
}

// working shows on a terminal what is being done and for how long, until the function that it returns is called.
func (p *progressLine) working(what string) (stop func()) {
	if p == nil || !p.terminal {
		return func() {}
	}
	began, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressPlain)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			p.mu.Lock()
			fmt.Fprintf(p.w, "\r\x1b[K%s", clipColumns(fmt.Sprintf("%4.0f s  %s", time.Since(began).Seconds(), what), p.columns-1))
			p.shown = true
			p.mu.Unlock()
		}
	}()
	return func() {
		close(done)
		<-ended
		p.end()
	}
}

// end takes the line off the terminal.
func (p *progressLine) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// attach has a run report to the line.
func (p *progressLine) attach(o *probe.Options) {
	if p != nil {
		o.Progress = p.show
	}
}

func clipColumns(s string, columns int) string {
	if r := []rune(s); len(r) > columns && columns > 0 {
		return strings.TrimRight(string(r[:columns-1]), " ") + "…"
	}
	return s
}
