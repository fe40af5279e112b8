package allocator

import "testing"

// FuzzParseVersion reads what a program says of its PyTorch, and words for events.
func FuzzParseVersion(f *testing.F) {
	for _, text := range []string{"2.6", "2.11.0+cu126", "2.9.0a0+git1234", "1.12", "255.255", "2.", ".6", "alloc"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := ParseVersion(text); err == nil && !v.AtLeast(Oldest.Major, Oldest.Minor) {
			t.Fatalf("%q is %v", text, v)
		}
		_, _ = ParseEventKind(text)
	})
}
