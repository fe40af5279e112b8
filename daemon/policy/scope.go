package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Scope says which jobs the site lets be changed at all. The zero value takes all of them.
type Scope struct {
	Partitions, Accounts, QOS Choice
	// Users are chosen by their numbers, which is what a job has.
	Users Choice
}

// Choice is a list of names that are taken, empty for all, and one of names that are not, which has the last word.
type Choice struct {
	Only, Except []string
}

// Who is what a job says of itself. An empty text is not known, or not yet: Slurm fills in a default after the plugin was asked.
type Who struct {
	Partition, Account, QOS string
	UID                     uint32
}

// Outside says why a job is outside the scope, or returns "". With complete, what is not known cannot be among the names that are taken.
func (s Scope) Outside(who Who, complete bool) string {
	for _, c := range []struct {
		what, value string
		choice      Choice
	}{
		{"partition", who.Partition, s.Partitions}, {"account", who.Account, s.Accounts}, {"QOS", who.QOS, s.QOS}, {"user", fmt.Sprint(who.UID), s.Users},
	} {
		if why := c.choice.outside(c.what, c.value, complete); why != "" {
			return why
		}
	}
	return ""
}

// outside takes a list of names, as of the partitions in any of which a job may run, for what all of its names are.
func (c Choice) outside(what, value string, complete bool) string {
	if value == "" {
		if complete && len(c.Only) > 0 {
			return "its " + what + " is not known, and the site names those whose jobs gresize handles"
		}
		return ""
	}
	for name := range strings.SplitSeq(value, ",") {
		switch {
		case slices.Contains(c.Except, name):
			return fmt.Sprintf("the site has excluded the %s %.60q", what, name)
		case len(c.Only) > 0 && !slices.Contains(c.Only, name):
			return fmt.Sprintf("the %s %.60q is not among those whose jobs gresize handles", what, name)
		}
	}
	return ""
}
