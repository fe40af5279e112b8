// Package quantity reads and prints numbers and sizes as people write them: numbers in
// decimal digits, sizes with the unit in which a computer counts. The flags of
// the programs and the configuration of the daemon share it.
package quantity

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// MaxBytes is more than any machine has, and leaves room for sums.
const MaxBytes = 1 << 50

var (
	number = regexp.MustCompile(`^([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]*)$`)
	whole  = regexp.MustCompile(`^[+-]?[0-9]+$`)
)

// units, the largest first.
var units = []unit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

type unit struct {
	name string
	size float64
}

// sizeOf is 0 for what is no unit. A letter alone is a unit of 1024s, as Slurm has it.
func sizeOf(name string) float64 {
	for _, u := range units {
		if u.name == name || len(name) == 1 && strings.EqualFold(u.name[:1], name) && u.size > 1 {
			return u.size
		}
	}
	return 0
}

const (
	unitWords = "B, KiB, MiB, GiB or TiB"
	example   = ", for example 20GiB"
)

// Words is how each fault of ParseBytes begins; the way out is in it.
const Words = "size"

// ParseBytes reads a size with its unit, such as 20GiB or, as Slurm writes it, 20G. GB is refused: some people mean 1000³ bytes by it, and some 1024³.
func ParseBytes(text string) (int64, error) {
	text = strings.TrimSpace(text)
	m := number.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf(Words+" %.80q: write a number with %s"+example, text, unitWords)
	}
	if m[2] == "" {
		return 0, fmt.Errorf(Words+" %q: it has no unit: write %s"+example, text, unitWords)
	}
	size := sizeOf(m[2])
	if size == 0 {
		// "gb" and "Gib" begin like the unit that was meant.
		meant := strings.ToUpper(m[2][:1]) + "iB"
		switch rest := strings.ToLower(m[2][1:]); {
		case sizeOf(meant) == 0 || rest != "" && rest != "b" && rest != "ib":
			return 0, fmt.Errorf(Words+" %.80q: %.20s is no unit: write %s"+example, text, m[2], unitWords)
		case rest == "ib":
			return 0, fmt.Errorf(Words+" %q: the unit is written %s: write %s%s", text, meant, m[1], meant)
		}
		return 0, fmt.Errorf(Words+" %q: %s is read both as 1000s and as 1024s: write %s%s, which is of 1024s, as memory is; of 1000s it is %s%s", text, m[2], m[1], meant, ofThousands(m[1], meant), meant)
	}
	if m[2] == "B" && strings.Contains(m[1], ".") {
		return 0, fmt.Errorf(Words+" %q: bytes are whole", text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil || n*size > MaxBytes {
		return 0, fmt.Errorf(Words+" %.80q: at most %d TiB is wanted", text, MaxBytes>>40)
	}
	return int64(n * size), nil
}

// ofThousands is a number of a unit of 1000s in the unit of 1024s with the same letter, rounded down: what a maker writes on a card is never more than the card has.
func ofThousands(text, unit string) string {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	power := math.Round(math.Log2(sizeOf(unit)) / 10)
	return strconv.FormatFloat(math.Floor(n*math.Pow(1000.0/1024, power)*100)/100, 'f', -1, 64)
}

// FormatBytes prints a size with the unit in which it is shortest, two digits behind the point at most.
func FormatBytes(n int64) string {
	for _, u := range units {
		if u.size > 1 && float64(n) >= u.size {
			return strconv.FormatFloat(math.Round(float64(n)/u.size*100)/100, 'f', -1, 64) + " " + u.name
		}
	}
	return Count(n, "byte")
}

// GiB prints GPU memory, two digits behind the point.
func GiB(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }

// Size prints a size in the unit that fits it, with three digits or so.
func Size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 10<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// Decimal is a whole number as strconv and the flags of programs read it at any base, from one in decimal digits: they read 010 as 8, 0x10 as 16 and 5_1 as 51.
func Decimal(text string) (string, error) {
	if !whole.MatchString(text) {
		return "", errors.New("write a whole number in decimal digits, such as 123")
	}
	sign := ""
	switch text[0] {
	case '-':
		sign, text = "-", text[1:]
	case '+':
		text = text[1:]
	}
	if text = strings.TrimLeft(text, "0"); text == "" {
		return "0", nil
	}
	return sign + text, nil
}
