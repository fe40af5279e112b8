package decisionlog

import (
	"testing"
	"time"
)

// FuzzParsePlace: what is read is written the same way, and nothing else is read.
func FuzzParsePlace(f *testing.F) {
	for _, text := range []string{"1795831200000.7", "0.1", "0.0", "-1.2", "1", "", "1.2.3", "9223372036854775807.9223372036854775807", "9223372036854775808.1", "+1.1", "01.1", "1. 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePlace(text)
		if err != nil {
			if p != (Place{}) {
				t.Errorf("%q: %+v", text, p)
			}
			return
		}
		again, err := ParsePlace(p.String())
		if err != nil || again != p || p == (Place{}) {
			t.Errorf("%q is %+v and then %+v: %v", text, p, again, err)
		}
	})
}

func TestPlaceOfALineIsItsJobs(t *testing.T) {
	l, _ := openLog(t)
	ids, err := l.AddJobs(t.Context(), NewJob{Job: Job{Token: "a", Mode: "shadow", SubmittedAt: time.UnixMilli(1795831200123)}, First: Event{At: at, State: "left_alone"}})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	lines, err := l.List(t.Context(), 1, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	place, err := l.PlaceOf(t.Context(), id)
	if err != nil || place != lines[0].Place() || place.String() != "1795831200123.1" {
		t.Errorf("%s %s %v", place, lines[0].Place(), err)
	}
}
