package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/gresize/gresize/estimator/probe"
)

// inputFor is the standard input that the command gets: all of a file, which is left where it was read from, and of a pipe only where the command asks for
// it with an argument such as "-": a pipe may never end, or be meant for others, such as the loop of a shell that runs this program.
func inputFor(command []string, stdin *os.File) ([]byte, error) {
	fi, err := stdin.Stat()
	if err != nil {
		return nil, nil // it is closed
	}
	asked := slices.Contains(command, "-") || slices.Contains(command, "/dev/stdin")
	var in io.Reader = stdin
	switch {
	case fi.Mode().IsRegular():
		at, err := stdin.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, nil // it is open for writing alone, or not for us
		}
		in = io.NewSectionReader(stdin, at, probe.MaxInputBytes+1)
	case fi.Mode()&os.ModeNamedPipe == 0 || !asked:
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(in, probe.MaxInputBytes+1))
	switch {
	case !asked && (err != nil || len(data) > probe.MaxInputBytes):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the standard input for the command: %w", err)
	case len(data) > probe.MaxInputBytes:
		return nil, fmt.Errorf("the standard input for the command is larger than %d MiB: name a file to the command instead", probe.MaxInputBytes>>20)
	}
	return data, nil
}
