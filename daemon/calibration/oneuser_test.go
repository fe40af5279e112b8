package calibration

import (
	"math/rand/v2"
	"testing"
)

// TestOneUserCannotFillAGroup: two hundred users are estimated with errors up to a fifth; one more has his probes say a hundred times too much, without end, so that what he uses is next
// to nothing of it and the margin of all should fall. Of the others hardly more jobs fail than without him. One user who is alone has a margin all the same.
func TestOneUserCannotFillAGroup(t *testing.T) {
	const target, honest = 0.02, 6000
	failures := func(liars int) float64 {
		r := rand.New(rand.NewPCG(1, 2))
		table, failed, seen := New(Options{target}), 0, 0
		for i := range honest {
			ratio := 0.9 + 0.3*r.Float64()
			if m := table.Margin(small); m.Calibrated {
				seen++
				if ratio > m.Ratio {
					failed++
				}
			}
			table.Add(Observation{Key: small, Ratio: ratio, User: uint32(1000 + i%200)})
			for range liars {
				table.Add(Observation{Key: small, Ratio: 0.01, User: 666})
			}
		}
		if n := table.groups[small].of(666); n > oneUser || liars > 0 && n < oneUser/2 {
			t.Errorf("%d of %d are the liar's", n, len(table.groups[small].recent))
		}
		return float64(failed) / float64(seen)
	}
	alone, lied := failures(0), failures(9)
	t.Logf("of the others fail %.2f %%, and %.2f %% with nine lies for each of their jobs; the target is %.0f %%", 100*alone, 100*lied, 100*target)
	if lied > 2.5*target {
		t.Errorf("%.2f %% of the others fail", 100*lied)
	}
	table := New(Options{target})
	for range 3 * window {
		table.Add(Observation{Key: small, Ratio: 1.1, User: 1000})
	}
	if m := table.Margin(small); !m.Calibrated || m.Ratio != 1.1 || m.Actuals != oneUser {
		t.Errorf("a user alone: %+v", m)
	}
}
