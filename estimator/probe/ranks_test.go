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
