package systemd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"

	"github.com/gresize/gresize/internal/printable"
)

// maxFieldBytes bounds one field: what users chose may be long, and the journal wants to hear of the daemon.
const maxFieldBytes = 8 << 10

// identifier is what the journal calls the program.
var identifier = filepath.Base(os.Args[0])

// LogHandler writes records as text. Where standard error is the journal, each record goes to the journal's own socket instead, its attributes as fields of
// their own; docs/journal.md names them.
func LogHandler(stderr io.Writer) slog.Handler {
	// In a text, the words tell messages apart.
	text := slog.NewTextHandler(stderr, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if knownFields[a.Key] == messageID {
			return slog.Attr{}
		}
		return a
	}})
	if is, err := journal.StderrIsJournalStream(); err != nil || !is {
		return text
	}
	return fields{send: journal.Send, text: text}
}

// fields sends a record to the journal.
type fields struct {
	send func(message string, priority journal.Priority, fields map[string]string) error
	// text is for a journal that cannot be reached.
	text slog.Handler
	// prefix is that of open groups, attributes are those of every record.
	prefix     string
	attributes []attribute
}

// attribute is one field as people and as the journal name it.
type attribute struct{ name, value string }

// Enabled is that of the text.
func (f fields) Enabled(ctx context.Context, level slog.Level) bool {
	return f.text.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (f fields) WithAttrs(attrs []slog.Attr) slog.Handler {
	f.attributes = append([]attribute(nil), f.attributes...)
	for _, a := range attrs {
		f.attributes = flatten(f.attributes, f.prefix, a)
	}
	f.text = f.text.WithAttrs(attrs)
	return f
}

// WithGroup implements slog.Handler.
func (f fields) WithGroup(name string) slog.Handler {
	f.prefix += name + "."
	f.text = f.text.WithGroup(name)
	return f
}

// flatten takes groups apart.
func flatten(to []attribute, prefix string, a slog.Attr) []attribute {
	value := a.Value.Resolve()
	if value.Kind() != slog.KindGroup {
		return append(to, attribute{prefix + a.Key, value.String()})
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, inner := range value.Group() {
		to = flatten(to, prefix, inner)
	}
	return to
}

// Handle sends one record.
func (f fields) Handle(ctx context.Context, r slog.Record) error {
	all := append([]attribute(nil), f.attributes...)
	r.Attrs(func(a slog.Attr) bool {
		all = flatten(all, f.prefix, a)
		return true
	})
	var message strings.Builder
	message.WriteString(r.Message)
	out := map[string]string{"SYSLOG_IDENTIFIER": identifier}
	for _, a := range all {
		value := clipped(a.value)
		name := fieldName(a.name)
		out[name] = value
		// The number that tells kinds of messages apart is for programs.
		if name != messageID {
			fmt.Fprintf(&message, " %s=%s", a.name, quotedIfNeeded(value))
		}
	}
	if err := f.send(clipped(message.String()), priorityOf(r.Level), out); err != nil {
		return f.text.Handle(ctx, r)
	}
	return nil
}

func priorityOf(level slog.Level) journal.Priority {
	switch {
	case level >= slog.LevelError:
		return journal.PriErr
	case level >= slog.LevelWarn:
		return journal.PriWarning
	case level >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// messageID is a field that the journal itself knows.
const messageID = "MESSAGE_ID"

// knownFields are attributes whose field has a name of its own.
var knownFields = map[string]string{"message_id": messageID, "slurm_job_id": "SLURM_JOB_ID"}

// fieldName is the name of a field: GRESIZE_ and the name of the attribute, in the letters that the journal takes.
func fieldName(name string) string {
	if known, ok := knownFields[name]; ok {
		return known
	}
	return "GRESIZE_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name[:min(len(name), 48)])
}

// clipped bounds a value, and keeps what users chose from doing more than being read.
func clipped(value string) string {
	value = printable.Text(value)
	if len(value) <= maxFieldBytes {
		return value
	}
	return strings.ToValidUTF8(value[:maxFieldBytes-3], "") + "…"
}

// quotedIfNeeded keeps a value one word of the message, and on its line.
func quotedIfNeeded(value string) string {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r == ' ' || r == '"' || r == '=' || !strconv.IsPrint(r) }) {
		return strconv.Quote(value)
	}
	return value
}
