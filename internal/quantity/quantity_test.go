package quantity

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"20GiB": 20 << 30, " 20 GiB ": 20 << 30, "1.5 MiB": 3 << 19, "7B": 7, "1KiB": 1024, "0GiB": 0, "0 B": 0, "1024TiB": 1 << 50, "010GiB": 10 << 30, "8G": 8 << 30, "8g": 8 << 30, "512m": 512 << 20, "1.5T": 3 << 39, "4 K": 4096} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"":             `size "": write a number with B, KiB, MiB, GiB or TiB, for example 20GiB`,
		"20":           `size "20": it has no unit: write B, KiB`,
		"20GB":         `size "20GB": GB is read both as 1000s and as 1024s: write 20GiB`,
		"1.5 gb":       `write 1.5GiB`,
		"20mb":         `write 20MiB`,
		"80GB":         `write 80GiB, which is of 1024s, as memory is; of 1000s it is 74.5GiB`,
		"20P":          `P is no unit`,
		"20gib":        `"20gib": the unit is written GiB: write 20GiB`,
		"20GIB":        `write 20GiB`,
		"20PiB":        `PiB is no unit: write B, KiB`,
		"20Gigs":       `Gigs is no unit`,
		"GiB":          "write a number with",
		"-1GiB":        "write a number with",
		"NaNGiB":       "write a number with",
		"1e3GiB":       "write a number with",
		"0x10GiB":      "write a number with",
		"1_0GiB":       "write a number with",
		"1.5B":         "bytes are whole",
		"1025TiB":      "at most 1024 TiB",
		"20GiB\x1b[2J": "write a number with",
	} {
		if got, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseBytes(%q) = %d, %v; want %q", text, got, err, says)
		}
	}
}

func TestDecimal(t *testing.T) {
	for text, want := range map[string]string{"010": "10", "0": "0", "000": "0", "-0": "0", "123": "123", "089": "89", "-7": "-7", "+7": "7", "-07": "-7"} {
		if got, err := Decimal(text); err != nil || got != want {
			t.Errorf("Decimal(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5_1", "0x10", "0b1", "0o7", "1e3", " 1", "1 ", "--1", "٣", "-", "1.0"} {
		if got, err := Decimal(text); err == nil {
			t.Errorf("Decimal(%q) = %q", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		text := strconv.FormatInt(n, 10)
		if n >= 0 {
			text = strings.Repeat("0", rapid.IntRange(0, 3).Draw(t, "zeros")) + text
		}
		got, err := Decimal(text)
		if err != nil {
			t.Fatal(err)
		}
		// Base 0 is what the flags of Go read at.
		if back, err := strconv.ParseInt(got, 0, 64); err != nil || back != n {
			t.Fatalf("%s became %s", text, got)
		}
	})
}

// FuzzParseBytes: whatever is written, it is a size within the bounds or refused.
func FuzzParseBytes(f *testing.F) {
	f.Add("20GiB")
	f.Add("1.5gb")
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseBytes(text); n < 0 || n > MaxBytes || err != nil && n != 0 {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	})
}
