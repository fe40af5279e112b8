package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/gresize/gresize/internal/quantity"
)

// wordsNoTime is what a Duration says of a text that is none.
const wordsNoTime = " is no time"

// Bytes is a size that is written with its unit.
type Bytes int64

// UnmarshalText reads "20GiB".
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := quantity.ParseBytes(string(text))
	if err != nil {
		return err
	}
	*b = Bytes(n)
	return nil
}

// String prints the size with its unit.
func (b Bytes) String() string {
	return quantity.FormatBytes(int64(b))
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
