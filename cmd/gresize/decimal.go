package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	plainDecimal = regexp.MustCompile(`^[+-]?[0-9]+$`)
	// arrayTask is how Slurm writes a task of a job array.
	arrayTask = regexp.MustCompile(`^[0-9]+_[0-9]+$`)
)

// decimal reads a whole number as people and Slurm write it. The library's own flags read 010 as 8, 0x10 as 16 and 5_1 as 51, and 5_1 is a task of job 5.
type decimal struct{ pflag.Value }

// Set refuses what is no decimal number, and leaves the flag as it was.
func (d decimal) Set(text string) error {
	switch {
	case arrayTask.MatchString(text):
		return fmt.Errorf("%s is a task of a job array, and each task has a job ID of its own: the JobId that `scontrol show job %s` prints, or JobIDRaw of `sacct -j %s -o JobIDRaw`", text, text, text)
	case !plainDecimal.MatchString(text):
		return errors.New("write a whole number in decimal digits, such as 123")
	}
	sign := ""
	for len(text) > 1 && (text[0] == '0' || text[0] == '-' || text[0] == '+') {
		if text[0] == '-' {
			sign = "-"
		}
		text = text[1:]
	}
	return d.Value.Set(sign + text)
}

// readDecimals has every flag of the command and of those below it that is a whole number read by decimal.
func readDecimals(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			switch f.Value.Type() {
			case "int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64":
				f.Value = decimal{f.Value}
			}
		})
	}
	for _, below := range cmd.Commands() {
		readDecimals(below)
	}
}
