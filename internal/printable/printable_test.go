package printable

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestText(t *testing.T) {
	for _, c := range []struct{ text, line, lines string }{
		{"plain é 日本", "plain é 日本", "plain é 日本"},
		{"a\tb\nc", "a b c", "a\tb\nc"},
		{"\x1b[2Jclear\a\r", "?[2Jclear? ", "?[2Jclear? "},
		{"no\u00a0break\u2003space", "no break space", "no break space"},
		{"right\u202eto left\u2028line", "right?to left line", "right?to left line"},
		{"c1 \u009b31m", "c1 ?31m", "c1 ?31m"},
		{"bad \xff\xfe byte", "bad ?? byte", "bad ?? byte"},
		{"", "", ""},
	} {
		if got := Text(c.text); got != c.line {
			t.Errorf("Text(%q) = %q, want %q", c.text, got, c.line)
		}
		if got := Lines(c.text); got != c.lines {
			t.Errorf("Lines(%q) = %q, want %q", c.text, got, c.lines)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{{"four", 4, "four"}, {"fives", 4, "fiv…"}, {"日本語です", 3, "日本…"}, {"\n\n\n", 2, " …"}, {"", 1, ""}} {
		if got := Clip(c.text, c.limit); got != c.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

// Whatever bytes come in, what goes out is valid, printable, on one line and as long as it may be.
func TestNothingGetsThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "runes")
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		for _, got := range []string{Text(text), Clip(text, limit), strings.NewReplacer("\n", "", "\t", "").Replace(Lines(text))} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Fatalf("%q became %q", text, got)
			}
		}
		if n := utf8.RuneCountInString(Clip(text, limit)); n > limit {
			t.Fatalf("%d letters, at most %d", n, limit)
		}
	})
}
