// Package finding is what a check of an installation found: one form for all
// checks, of a plugin, of a node and of a whole site.
package finding

import "slices"

// Level says what a finding means.
type Level string

// The levels: nothing to do; worth knowing; something does not work.
const (
	OK     Level = "ok"
	Note   Level = "note"
	Refuse Level = "refuse"
)

// Finding is one thing that was looked at or tried.
type Finding struct {
	Level Level `json:"level"`
	// Name is what it is about, in a word or two.
	Name string `json:"name,omitempty"`
	Text string `json:"text"`
	// Setting is the one thing to change, where something does not work.
	Setting string `json:"setting,omitempty"`
}

// Refused tells that something does not work.
func Refused(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Level == Refuse })
}
