package logview

import (
	"testing"
	"time"
)

func TestTimesAgo(t *testing.T) {
	now := time.Date(2026, 11, 28, 6, 0, 0, 0, time.FixedZone("east", 3600))
	for text, want := range map[string]time.Time{
		"7d": now.AddDate(0, 0, -7), "36h": now.Add(-36 * time.Hour), "90m": now.Add(-90 * time.Minute), "2026-11-28": time.Date(2026, 11, 28, 0, 0, 0, 0, now.Location()),
		"2026-11-28 05:30": time.Date(2026, 11, 28, 5, 30, 0, 0, now.Location()), "2026-11-28T05:30:00Z": time.Date(2026, 11, 28, 5, 30, 0, 0, time.UTC),
	} {
		if got, err := timeOf("since", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
}
