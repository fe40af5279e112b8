// Package flags has the flags of a program that are whole numbers read in
// decimal digits, as people and Slurm write them, and those that are times.
package flags

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gresize/gresize/internal/quantity"
	"github.com/spf13/pflag"
)

// arrayTask is how Slurm writes a task of a job array, which is easily taken for a number.
var arrayTask = regexp.MustCompile(`^[0-9]+_[0-9]+$`)

type decimal struct{ pflag.Value }

// Set refuses what is no decimal number, and leaves the flag as it was.
func (d decimal) Set(text string) error {
	if arrayTask.MatchString(text) {
		return fmt.Errorf("%s is a task of a job array, and each task has a job ID of its own: the JobId that `scontrol show job %s` prints, or JobIDRaw of `sacct -j %s -o JobIDRaw`", text, text, text)
	}
	number, err := quantity.Decimal(text)
	if err != nil {
		return err
	}
	before := d.String()
	if err := d.Value.Set(number); err != nil {
		if errors.Is(err, strconv.ErrRange) {
			err = errors.New("the number is out of range")
		}
		return errors.Join(err, d.Value.Set(before)) // of a number out of range the nearest one is kept otherwise
	}
	return nil
}

type duration struct{ pflag.Value }

// Set says how a time is written.
func (d duration) Set(text string) error {
	before := d.String()
	if d.Value.Set(text) != nil {
		return errors.Join(errors.New("write a time with its unit, such as 90s, 5m or 1h30m"), d.Value.Set(before)) // it is 0 otherwise
	}
	return nil
}

// Decimal has every flag of the set that is a whole number read in decimal digits, and of every time says how it is written. It is asked after the flags are defined.
func Decimal(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		switch kind := f.Value.Type(); {
		case strings.TrimRight(strings.TrimPrefix(kind, "u"), "0123456789") == "int":
			f.Value = decimal{f.Value}
		case kind == "duration":
			f.Value = duration{f.Value}
		}
	})
}
