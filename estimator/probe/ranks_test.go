package probe

import "testing"

func TestRanksToRun(t *testing.T) {
	for _, c := range []struct {
		cpus      int
		available int64
		want      int
	}{{1, 0, 2}, {2, 64 << 30, 4}, {16, 64 << 30, 8}, {16, 7 << 30, 4}, {16, 1 << 20, 2}} {
		if got := ranksToRun(c.cpus, c.available); got != c.want {
			t.Errorf("%d CPUs and %d bytes: %d ranks, want %d", c.cpus, c.available, got, c.want)
		}
	}
}

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 9 kB\nMemAvailable:    2048 kB\n": 2 << 20, "MemAvailable: -5 kB\n": 0, "MemAvailable: 99999999999999999999 kB\n": 0, "": 0, "MemAvailable:": 0,
	} {
		if got := availableMemory([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
