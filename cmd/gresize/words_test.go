package main

import (
	"bytes"
	"strings"
	"testing"
)

// What was mistyped is answered with what was probably meant, and with the help of the verb that it was for.
func TestMistypedIsAnsweredWithTheWayOut(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"estimte", "did you mean estimate?\nSee gresize --help."},
		{"gpu lst", "did you mean list?\nSee gresize gpu --help."},
		{"estimate --budget 5 -- x", "write a time with its unit, such as 90s, 5m or 1h30m\nSee gresize estimate --help."},
		{"frobnicate", "knows no \"frobnicate\"\nSee gresize --help."},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: %d %q, want %q", c.args, code, stderr.String(), c.want)
		}
	}
}
