package rewrites

import "testing"

// FuzzRead: whatever the page holds, what was read of it takes its own place, and nothing else's.
func FuzzRead(f *testing.F) {
	f.Add("# Page\n\n" + heading + "22.05.8, 24.11.5\n\n| asked |\n|---|\n| `a` | b | c | d | e | f | g | h | i | j |\n")
	f.Fuzz(func(t *testing.T, page string) {
		all := Read(page)
		if again := With(all, all); len(again) != len(all) {
			t.Errorf("%d releases became %d", len(all), len(again))
		}
	})
}
