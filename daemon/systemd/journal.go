package systemd

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"

	"github.com/coreos/go-systemd/v22/journal"
)

// LogHandler writes records as text. Where standard error is the journal, each line begins with its priority, which the journal takes off: a warning can
// be looked for with journalctl -p warning.
func LogHandler(stderr io.Writer) slog.Handler {
	if is, err := journal.StderrIsJournalStream(); err != nil || !is {
		return slog.NewTextHandler(stderr, nil)
	}
	return newPrioritized(stderr)
}

// prioritized puts syslog's number of the level before each line.
type prioritized struct {
	line *line
	text slog.Handler
}

// line is shared by all handlers that write to the same place.
type line struct {
	mu     sync.Mutex
	to     io.Writer
	buffer bytes.Buffer
}

func newPrioritized(to io.Writer) prioritized {
	l := &line{to: to}
	return prioritized{line: l, text: slog.NewTextHandler(&l.buffer, nil)}
}

// Enabled is that of the text.
func (p prioritized) Enabled(ctx context.Context, level slog.Level) bool {
	return p.text.Enabled(ctx, level)
}

// Handle writes one line.
func (p prioritized) Handle(ctx context.Context, r slog.Record) error {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.line.buffer.Reset()
	priority := "<7>"
	switch {
	case r.Level >= slog.LevelError:
		priority = "<3>"
	case r.Level >= slog.LevelWarn:
		priority = "<4>"
	case r.Level >= slog.LevelInfo:
		priority = "<6>"
	}
	p.line.buffer.WriteString(priority)
	if err := p.text.Handle(ctx, r); err != nil {
		return err
	}
	_, err := p.line.to.Write(p.line.buffer.Bytes())
	return err
}

// WithAttrs is that of the text.
func (p prioritized) WithAttrs(attrs []slog.Attr) slog.Handler {
	return prioritized{line: p.line, text: p.text.WithAttrs(attrs)}
}

// WithGroup is that of the text.
func (p prioritized) WithGroup(name string) slog.Handler {
	return prioritized{line: p.line, text: p.text.WithGroup(name)}
}
