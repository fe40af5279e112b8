package systemd

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"unicode"
)

func TestLinesHaveTheirPriority(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(newPrioritized(&out))
	logger.Info("a")
	logger.With("job", 7).Warn("b\nc")
	logger.WithGroup("g").Error("d", "e", 1)
	logger.Debug("unseen")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, want := range []string{"<6>", "<4>", "<3>"} {
		if len(lines) != 3 || !strings.HasPrefix(lines[i], want+"time=") {
			t.Fatalf("%q", lines)
		}
	}
	if !strings.Contains(lines[1], "job=7") || !strings.Contains(lines[2], "g.e=1") {
		t.Errorf("%q", lines)
	}
}

// TestHostileTextIsOneLine: what users, scripts and other programs chose can neither begin a record of its own in the journal, nor give a line another priority, nor move a cursor.
func TestHostileTextIsOneLine(t *testing.T) {
	for _, text := range []string{"a\nb", "a\n<0>time=2026 level=EMERG msg=forged", "\x1b[2J", "\r<2>x", "\x00", "\u202e", "\u009b2J", "\xff\x9b", "a=b msg=\"forged\"", strings.Repeat("long\n", 1000)} {
		for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
			"journal": func(b *bytes.Buffer) slog.Handler { return newPrioritized(b) },
			"text":    func(b *bytes.Buffer) slog.Handler { return LogHandler(b) },
		} {
			var out bytes.Buffer
			logger := slog.New(handler(&out)).With("job_name", text)
			logger.Warn("refused", "error", errors.New(text), "detail", text, "raw", []byte(text))
			if got := strings.Count(out.String(), "\n"); got != 1 || !strings.HasSuffix(out.String(), "\n") {
				t.Errorf("%s: %d lines of %q: %q", name, got, text, out.String())
			}
			for _, r := range strings.TrimSuffix(out.String(), "\n") {
				if !unicode.IsPrint(r) {
					t.Errorf("%s prints %q for %q", name, r, text)
					break
				}
			}
			if strings.Count(out.String(), " msg=") != 1 && !strings.Contains(text, "msg=") {
				t.Errorf("%s: %q", name, out.String())
			}
		}
	}
}
