package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/printable"
)

// sharedReasons are the reasons of several answers, each sentence once with the numbers of those whose it is.
type sharedReasons struct {
	// of is what is numbered, and all how many of them there are.
	of    string
	all   int
	text  []string
	whose [][]string
}

func (s *sharedReasons) add(number int, reasons []estimator.Reason) {
	for _, r := range reasons {
		text := r.WordsWithHint()
		i := slices.Index(s.text, text)
		if i < 0 {
			i, s.text, s.whose = len(s.text), append(s.text, text), append(s.whose, nil)
		}
		s.whose[i] = append(s.whose[i], fmt.Sprint(number))
	}
}

// print writes one line a sentence; what is true of all has no number before it.
func (s *sharedReasons) print(out io.Writer, indent string) error {
	for i, text := range s.text {
		who := ""
		switch n := len(s.whose[i]); {
		case n == 1 && s.all > 1:
			who = s.of + " " + s.whose[i][0] + ": "
		case n < s.all:
			who = s.of + "s " + strings.Join(s.whose[i], ", ") + ": "
		}
		if _, err := fmt.Fprintf(out, "%sbecause  %s%s\n", indent, who, printable.Text(text)); err != nil {
			return err
		}
	}
	return nil
}
