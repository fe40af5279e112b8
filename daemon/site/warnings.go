package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gresize/gresize/daemon/config"
)

// maxNamedRows bounds how many rows one warning names.
const maxNamedRows = 8

// Warnings are what the table says that can be and is seldom meant: jobs are decided all the same, otherwise than a reader of the file would think.
func (s *Site) Warnings(path string) []*config.FileError {
	var warnings []*config.FileError
	first, untied := "", []string(nil)
	for i, t := range s.Config.Targets {
		cards, _ := s.cardsOf(t)
		if fits, _ := s.card(t); fits < int64(t.Fits) {
			least := slices.MinFunc(cards, func(a, b namedCard) int { return cmp.Compare(a.profile.Total.Bytes, b.profile.Total.Bytes) })
			warnings = append(warnings, &config.FileError{Field: fmt.Sprintf("target[%d].fits", i),
				Problem: fmt.Sprintf("a job can use %s of a %s (%s), so the row counts for that and not for %s", config.Bytes(fits), least.profile.ID, least.word, t.Fits),
				Hint:    "write what `gresize gpu list` says, rounded down"})
		}
		if len(cards) > 0 {
			continue
		}
		if first == "" {
			if first = fmt.Sprintf("target[%d].constraint", i); t.Gres != "" {
				first = fmt.Sprintf("target[%d].gres", i)
			}
		}
		untied = append(untied, strings.Trim(t.Gres+" "+t.Constraint, " "))
	}
	if first != "" {
		named := strings.Join(untied[:min(len(untied), maxNamedRows)], ", ")
		if more := len(untied) - maxNamedRows; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		warnings = append(warnings, &config.FileError{Field: first,
			Problem: fmt.Sprintf("no [gpu.NAME] says which model is behind %s: a job is given such a card for what it needs on the card that it asked for, or on default_profile (%s), and is not tried on it", named, s.fallback.ID),
			Hint:    "add [gpu.NAME] with a profile for a word of the row; `gresize gpu list` shows the profiles"})
	}
	config.Place(path, warnings)
	return warnings
}
