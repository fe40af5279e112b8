package site

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWarningsNameWhatTheFileDoesNotMean: a row that counts for less than it says, and rows of which no model is known, and nothing of a sound table.
func TestWarningsNameWhatTheFileDoesNotMean(t *testing.T) {
	const cards = "version = 1\n[gpu.gpu12g]\nprofile = \"rtx3060\"\n[gpu.gpu80g]\nprofile = \"a100-80\"\n"
	row := func(fits, what string) string { return "[[target]]\nfits = \"" + fits + "\"\n" + what + "\n" }
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"sound", cards + row("11GiB", `constraint = "gpu12g"`) + row("79GiB", `constraint = "gpu80g"`), nil},
		{"as sold", cards + row("11GiB", `constraint = "gpu12g"`) + row("80GiB", `constraint = "gpu80g"`), []string{":10:1: target[1].fits: a job can use 79.15 GiB of a a100-80 (gpu80g), so the row counts for that and not for 80 GiB (write what `gresize gpu list` says"}},
		{"more than the smaller of two", cards + row("13GiB", `constraint = "gpu80g|gpu12g"`), []string{":7:1: target[0].fits: a job can use 11.76 GiB of a rtx3060 (gpu12g)"}},
		{"not tied", cards + row("11GiB", `constraint = "gpu12g"`) + row("22GiB", `gres = "gpu:l4:1"`) + row("40GiB", `constraint = "gpu40g&ib"`),
			[]string{":11:1: target[1].gres: no [gpu.NAME] says which model is behind gpu:l4:1, gpu40g&ib: "}},
		{"many not tied", "version = 1\n" + strings.Repeat(row("22GiB", `constraint = "x"`), 10), []string{":4:1: target[0].constraint: no [gpu.NAME] says which model is behind x, x, x, x, x, x, x, x and 2 more: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gresize.toml")
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			s, _, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			warnings := s.Warnings(path)
			if len(warnings) != len(c.says) {
				t.Fatalf("%v, want %q", warnings, c.says)
			}
			for i, says := range c.says {
				if !strings.HasPrefix(warnings[i].Error(), path+says) {
					t.Errorf("%q does not begin with %q", warnings[i], says)
				}
			}
		})
	}
}
