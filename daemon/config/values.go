package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// What the values of this file say of a text that is none of theirs.
const (
	wordsNoSize = " is no size"
	wordsNoUnit = " has no unit"
	wordsNoTime = " is no time"
)

// Bytes is a size that is written with its unit.
type Bytes int64

var units = []struct {
	name string
	size float64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText reads "20GiB". Decimal units are refused: GB is read both ways by people.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || n < 0 || math.IsNaN(n) || n*u.size > 1<<50 {
			return fmt.Errorf("%q"+wordsNoSize, s)
		}
		*b = Bytes(n * u.size)
		return nil
	}
	if number, ok := strings.CutSuffix(s, "B"); ok {
		if n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 51); err == nil && n >= 0 {
			*b = Bytes(n)
			return nil
		}
	}
	return fmt.Errorf("%q"+wordsNoUnit+": write B, KiB, MiB, GiB or TiB", s)
}

// String prints the size with the unit in which it is shortest.
func (b Bytes) String() string {
	for _, u := range units {
		if float64(b) >= u.size {
			return strconv.FormatFloat(math.Round(float64(b)/u.size*100)/100, 'f', -1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " bytes"
}

// Duration is a time that is written with its unit, e.g. "300s" or "5m".
type Duration time.Duration

// UnmarshalText reads the form of Go: "300s", "5m", "1h30m".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%q"+wordsNoTime+": write a number with s, m or h", text)
	}
	*d = Duration(v)
	return nil
}

// Std is the value as the standard library knows it.
func (d Duration) Std() time.Duration { return time.Duration(d) }
