package decisionlog

import (
	"fmt"
	"strconv"
	"strings"
)

// Place is where this line stands in the list.
func (l Line) Place() Place {
	return Place{submittedAtMillis: millis(l.Job.SubmittedAt), id: l.Job.ID}
}

// String is the place as a word that ParsePlace reads.
func (p Place) String() string { return fmt.Sprintf("%d.%d", p.submittedAtMillis, p.id) }

// ParsePlace reads a place. One that no job ever had is as good as any other.
func ParsePlace(text string) (Place, error) {
	at, id, ok := strings.Cut(text, ".")
	p := Place{}
	var err error
	if ok {
		if p.submittedAtMillis, err = strconv.ParseInt(at, 10, 64); err == nil {
			p.id, err = strconv.ParseInt(id, 10, 64)
		}
	}
	if !ok || err != nil || p.submittedAtMillis < 0 || p.id < 0 || p == (Place{}) {
		return Place{}, fmt.Errorf("%.40q is no place in the list", text)
	}
	return p, nil
}
