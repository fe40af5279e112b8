package main

import (
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	outside := func(string) string { return "" }
	for _, c := range []struct {
		args        []string
		prints, err string
	}{
		{[]string{"-version"}, "gresize-epilog version ", ""},
		{[]string{"--version", "-url", "http://ctl:8917"}, "gresize-epilog version ", ""},
		{[]string{"-help"}, "", ""},
		{nil, "", "-url http://HOST:PORT"},
		{[]string{"-url", "http://ctl:8917", "word"}, "", "nothing else but its other options"},
	} {
		var out strings.Builder
		err := run(c.args, outside, &out)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(out.String(), c.prints) || (c.prints == "") != (out.Len() == 0) {
			t.Errorf("%q: %v, and printed %q", c.args, err, out.String())
		}
	}
}
