package trace

import (
	"bytes"
	"iter"
)

// Lines are the lines of a part that are not blank, by their numbers from 1.
func Lines(data []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		number := 0
		for line := range bytes.Lines(data) {
			number++
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(number, line) {
				return
			}
		}
	}
}
