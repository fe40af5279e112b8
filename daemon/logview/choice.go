package logview

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/internal/account"
)

// Choice is what people write to choose jobs of the log. What is empty does not restrict.
type Choice struct {
	// User is a name or a number.
	User string
	// Partition is nil for any; empty for jobs that named none.
	Partition *string
	// Verdict is that of the latest decision, or "oom": the job died of GPU memory.
	Verdict string
	// State is where the job is, or "open": gresized still looks after it.
	State string
	// Since and Until are points in time, or how long ago they were.
	Since, Until string
}

// The words of a Choice that are none of the log's own.
const (
	VerdictOutOfMemory = "oom"
	StateOpen          = "open"
)

// Verdicts and States are what a Choice may name, as people write it.
var (
	Verdicts = []string{"rewrite", "keep", "leave-alone", VerdictOutOfMemory}
	States   = statesOf()
)

func statesOf() []string {
	words := []string{StateOpen}
	for _, state := range slices.Concat(jobs.OpenStates, jobs.LastStates) {
		words = append(words, strings.ReplaceAll(state, "_", "-"))
	}
	return words
}

// Filter reads a choice. flag is what stands before the name of a word in an error, such as "--".
func (c Choice) Filter(flag string, now time.Time) (decisionlog.Filter, error) {
	out := decisionlog.Filter{Partition: c.Partition}
	var err error
	if out.UID, err = userID(flag, c.User); err != nil {
		return out, err
	}
	logWord := strings.NewReplacer("-", "_", " ", "_")
	switch verdict := decision.Verdict(logWord.Replace(c.Verdict)); verdict {
	case "":
	case VerdictOutOfMemory:
		out.OutOfMemory = true
	case decision.Rewrite, decision.Keep, decision.LeaveAlone:
		out.Verdict = verdict
	default:
		return out, fmt.Errorf("%sverdict: %.40q is none of %s", flag, c.Verdict, strings.Join(Verdicts, ", "))
	}
	switch state := logWord.Replace(c.State); {
	case state == "":
	case state == StateOpen:
		out.Open = true
	case slices.Contains(jobs.OpenStates, state) || slices.Contains(jobs.LastStates, state):
		out.State = state
	default:
		return out, fmt.Errorf("%sstate: %.40q is none of %s", flag, c.State, strings.Join(States, ", "))
	}
	if out.Since, err = timeOf(flag+"since", c.Since, now); err != nil {
		return out, err
	}
	if out.Until, err = timeOf(flag+"until", c.Until, now); err != nil {
		return out, err
	}
	if !out.Since.IsZero() && !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, fmt.Errorf("%ssince %s is not before %suntil %s", flag, c.Since, flag, c.Until)
	}
	return out, nil
}

func userID(flag, owner string) (*uint32, error) {
	if owner == "" {
		return nil, nil
	}
	u, err := account.ByName(owner)
	if err == nil {
		return &u.UID, nil
	}
	n, wrong := strconv.ParseUint(owner, 10, 32)
	switch {
	case wrong == nil:
		uid := uint32(n)
		return &uid, nil
	case errors.Is(err, account.ErrUnknown):
		return nil, fmt.Errorf("%suser: there is no user %.80q", flag, owner)
	}
	return nil, fmt.Errorf("%suser: %.80q cannot be looked up, give the number: %w", flag, owner, err)
}

// timeLayouts are read in the local time zone unless the text names another.
var timeLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04", time.DateOnly}

// maxAgo is longer than any log is kept.
const maxAgo = 100 * 365 * 24 * time.Hour

// timeOf reads a point in time, or how long ago it was. The empty text is no time.
func timeOf(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			// The log knows milliseconds since 1970, and its first job came later.
			if t.Year() < 1970 || t.Year() > 9999 {
				break
			}
			return t, nil
		}
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 && ago < maxAgo {
		return now.Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%s: %.40q is no time: write 2026-11-28, 2026-11-28T14:30, or 36h or 7d for so long ago", name, text)
}
