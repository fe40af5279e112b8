package main

import (
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// harmlessJSON is where JSON goes that may be looked at on a terminal: what is no printable character, and stands inside a string then, is written as its escape, which means
// the same. Each Write has to hold whole characters.
type harmlessJSON struct{ to io.Writer }

func (h harmlessJSON) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p)+len(p)/8)
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r < utf8.RuneSelf || strconv.IsPrint(r) && r != utf8.RuneError:
			out = append(out, rest[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	if _, err := h.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
