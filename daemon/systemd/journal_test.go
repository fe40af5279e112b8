package systemd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
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
