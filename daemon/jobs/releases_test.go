package jobs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/release"
)

// TestSlurmctldOfAnotherRelease: while slurmctld and scontrol are of two releases, as during an upgrade, the journal says so once for each.
func TestSlurmctldOfAnotherRelease(t *testing.T) {
	b := newBench(t, Shadow, time.Minute)
	var said bytes.Buffer
	m := New(Config{Version: release.Version{Major: 22, Minor: 5, Micro: 8}, Logger: slog.New(slog.NewTextHandler(&said, nil)), Settings: *b.manager.settings()})
	for _, number := range []uint32{0, 0x160508, 0x16050b, 0x180b05, 0x180b05, 0x180b05, 0x160508} {
		m.compareReleases(number)
	}
	if n := strings.Count(said.String(), "another release than scontrol"); n != 1 || !strings.Contains(said.String(), "slurmctld=24.11.5 scontrol=22.05.8") {
		t.Errorf("said %d times: %s", n, said.String())
	}
}
