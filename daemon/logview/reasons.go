package logview

import (
	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/internal/printable"
)

// Why is a code in a few words; one that is not known stays as it is.
func Why(code string) string {
	if words := decision.Words(code); words != "" {
		return words
	}
	return printable.Clip(Spaced(code), 60)
}
