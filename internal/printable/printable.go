// Package printable makes text that strangers chose (names of jobs, output of
// programs, messages that quote a file) safe to show: it moves no cursor, rings
// no bell and turns no direction of the text around it.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is s on one line: every kind of white space is a space, and what is no printable character a question mark.
func Text(s string) string { return strings.Map(shown, s) }

// Lines is Text that keeps the ends of lines, and tabs.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return shown(r)
	}, s)
}

// Clip is Text of at most limit letters, of which the last is … where there were more.
func Clip(s string, limit int) string {
	s = Text(s)
	if runes := []rune(s); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return s
}

func shown(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case r == utf8.RuneError, !strconv.IsPrint(r):
		return '?'
	}
	return r
}
