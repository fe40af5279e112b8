package cpuprofile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
)

// Sizes of the scanner's window on the stream. An event that does not fit into the largest is refused.
const (
	firstWindowBytes = 1 << 20
	maxEventBytes    = 8 << 20
	maxDepth         = 64
)

// errShort says that the window ends inside of what is read: more of the stream is needed.
var errShort = errors.New("the window is too short")

// scanner reads JSON from a stream through a window that always holds the whole of the value being read. It knows JSON and nothing of profiles.
type scanner struct {
	r      io.Reader
	window []byte
	at     int
	// base is the offset of the window in the stream.
	base int64
	eof  bool
}

func newScanner(r io.Reader) *scanner {
	return &scanner{r: r, window: make([]byte, 0, firstWindowBytes)}
}

// fill drops what lies before from and reads more behind it.
func (s *scanner) fill(from int) error {
	if s.eof {
		return io.ErrUnexpectedEOF
	}
	kept := len(s.window) - from
	if kept > cap(s.window)/2 {
		if cap(s.window) >= 2*maxEventBytes {
			return fmt.Errorf("a value of more than %d bytes", maxEventBytes)
		}
		larger := make([]byte, kept, 2*cap(s.window))
		copy(larger, s.window[from:])
		s.window = larger
	} else {
		copy(s.window[:kept], s.window[from:])
		s.window = s.window[:kept]
	}
	s.base += int64(from)
	s.at = 0
	for empty := 0; len(s.window) < cap(s.window); {
		n, err := s.r.Read(s.window[len(s.window):cap(s.window)])
		s.window = s.window[:len(s.window)+n]
		if errors.Is(err, io.EOF) {
			s.eof = true
			break
		}
		if err != nil {
			return err
		}
		if n == 0 {
			if empty++; empty > 100 {
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// whole reads one value with read, again from its start with more of the stream as long as the window ends inside of it.
func (s *scanner) whole(read func(*scanner) error) error {
	for {
		start := s.at
		err := read(s)
		if !errors.Is(err, errShort) {
			return err
		}
		if s.eof {
			return io.ErrUnexpectedEOF
		}
		if err := s.fill(start); err != nil {
			return err
		}
	}
}

func (s *scanner) wrong(want string) error {
	if s.at >= len(s.window) {
		return errShort
	}
	return fmt.Errorf("offset %d: %q where %s is expected", s.base+int64(s.at), s.window[s.at], want)
}

// peek skips white space and returns the byte behind it.
func (s *scanner) peek() (byte, error) {
	for s.at < len(s.window) {
		switch c := s.window[s.at]; c {
		case ' ', '\n', '\t', '\r':
			s.at++
		default:
			return c, nil
		}
	}
	return 0, errShort
}

func (s *scanner) expect(c byte) error {
	got, err := s.peek()
	if err != nil {
		return err
	}
	if got != c {
		return s.wrong(fmt.Sprintf("%q", c))
	}
	s.at++
	return nil
}

// next tells whether another element follows, with the comma before it taken: first is set before the first one.
func (s *scanner) next(first bool, end byte) (more bool, err error) {
	c, err := s.peek()
	switch {
	case err != nil:
		return false, err
	case c == end:
		s.at++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		s.at++
		if c, err = s.peek(); err == nil && c == end {
			return false, s.wrong("a value")
		}
		return true, err
	}
	return false, s.wrong("',' or " + fmt.Sprintf("%q", end))
}

// text reads a string. Escapes are left as they are: names that matter have none. It is valid until the window moves.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.at
	for {
		i := bytes.IndexByte(s.window[s.at:], '"')
		if i < 0 {
			return nil, errShort
		}
		s.at += i + 1
		slashes := 0
		for k := s.at - 2; k >= start && s.window[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return s.window[start : s.at-1], nil
		}
	}
}

// skip passes over a value of any kind.
func (s *scanner) skip() error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	switch c {
	case '"':
		_, err := s.text()
		return err
	case '{', '[':
		return s.skipNested()
	}
	return s.skipWord()
}

func (s *scanner) skipWord() error {
	start := s.at
	for ; s.at < len(s.window); s.at++ {
		switch c := s.window[s.at]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '+', c == '.':
		case s.at == start:
			return s.wrong("a value")
		default:
			return nil
		}
	}
	return errShort
}

// skipNested passes over an object or a list, of which only the nesting is checked.
func (s *scanner) skipNested() error {
	depth := 0
	var open [maxDepth]byte
	for s.at < len(s.window) {
		switch c := s.window[s.at]; c {
		case '"':
			if _, err := s.text(); err != nil {
				return err
			}
			continue
		case '{', '[':
			if depth == maxDepth {
				return fmt.Errorf("offset %d: nested more than %d deep", s.base+int64(s.at), maxDepth)
			}
			open[depth] = c
			depth++
		case '}', ']':
			if depth--; open[depth] != c-2 { // '{' and '}', '[' and ']' are two apart
				return s.wrong("another bracket")
			}
			if depth == 0 {
				s.at++
				return nil
			}
		}
		s.at++
	}
	return errShort
}

// number reads a number as thousandths, which is how profiles count time: microseconds with three decimals. Further decimals are dropped.
func (s *scanner) number() (thousandths int64, err error) {
	c, err := s.peek()
	if err != nil {
		return 0, err
	}
	begin := s.at
	negative := c == '-'
	if negative {
		s.at++
	}
	const limit = math.MaxInt64/1000/10 - 1
	value, digits, decimals := int64(0), 0, -1
	for ; s.at < len(s.window); s.at++ {
		switch c := s.window[s.at]; {
		case c >= '0' && c <= '9':
			digits++
			if decimals >= 3 {
				continue
			}
			if value > limit*10 {
				s.at = begin
				return 0, s.wrong("a number within range")
			}
			value = value*10 + int64(c-'0')
			if decimals >= 0 {
				decimals++
			}
		case c == '.' && decimals < 0 && digits > 0:
			decimals = 0
		case digits == 0 || c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+':
			return 0, s.wrong("a number")
		default:
			for decimals = max(decimals, 0); decimals < 3; decimals++ {
				value *= 10
			}
			if negative {
				value = -value
			}
			return value, nil
		}
	}
	return 0, errShort
}

// integer reads a whole number that fits into 64 bits, negative or up to the largest address.
func (s *scanner) integer() (magnitude uint64, negative bool, err error) {
	c, err := s.peek()
	if err != nil {
		return 0, false, err
	}
	if negative = c == '-'; negative {
		s.at++
	}
	digits := 0
	for ; s.at < len(s.window); s.at++ {
		c := s.window[s.at]
		if c < '0' || c > '9' {
			if digits == 0 || c == '.' || c == 'e' || c == 'E' {
				return 0, false, s.wrong("a whole number")
			}
			return magnitude, negative, nil
		}
		if magnitude > (math.MaxUint64-9)/10 {
			return 0, false, s.wrong("a number of 64 bits")
		}
		magnitude = magnitude*10 + uint64(c-'0')
		digits++
	}
	return 0, false, errShort
}

// object reads an object, each value with the function, which is given its key.
func (s *scanner) object(value func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		more, err := s.next(first, '}')
		if err != nil || !more {
			return err
		}
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := value(key); err != nil {
			return err
		}
	}
}
