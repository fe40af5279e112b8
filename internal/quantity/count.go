package quantity

import "fmt"

// Integer is what a count can be.
type Integer interface {
	~int | ~int32 | ~int64 | ~uint32 | ~uint64
}

// Count is a number of things: "1 job", "2 jobs". The plural takes an s, or is given.
func Count[N Integer](n N, one string, many ...string) string {
	plural := one + "s"
	if len(many) > 0 {
		plural = many[0]
	}
	return fmt.Sprintf("%d %s", n, Word(n, one, plural))
}

// Word is the one of two words that goes with a number, such as "is" and "are".
func Word[N Integer](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
