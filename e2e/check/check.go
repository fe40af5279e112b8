// Package check judges the history of a run of chaos. It shares no code with
// what it judges: it knows the history's lines, and what an owner of a job and
// an administrator were promised.
package check

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Limits are the times that depend on who started the jobs.
type Limits struct {
	// StartMillis is how long after the end of its hold a job may start.
	StartMillis int64
}

// Played is for a player of slurmctld, which starts jobs in turns; Real is for slurmctld, of which P6 promises a minute.
var (
	Played = Limits{StartMillis: 5000} // the turns of a machine that does other things too
	Real   = Limits{StartMillis: 60_000}
)

// Times that a judgement allows.
const (
	clockSlackMillis = 2     // rows and the history are cut to milliseconds
	lossMillis       = 3000  // a hold without a row has a fault this near: what was answered and not written yet
	exitMillis       = 5000  // SIGTERM to exit
	answerMillis     = 2000  // no submission waits longer, whatever the deadline of its plugin
	calmMillis       = 15000 // a job at a calm time is changed by then
	mostProbes       = 6     // three cards, each tried twice at most
)

type job struct {
	submit       *Line
	updates      []Line
	started      int64
	ownerActed   int64
	lookedSince  bool // the daemon has seen the job after its owner acted
	changes      int
	asked, first string
}

// History reads lines and returns every broken promise in words.
func History(r io.Reader, limits Limits) (Summary, []string, error) {
	var s Summary
	var broken []string
	jobs, rows, faults := map[uint32]*job{}, map[string]*Line{}, []int64{}
	probes := map[string]Line{}
	complain := func(at int64, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("%d: ", at)+fmt.Sprintf(format, args...))
	}
	lines := json.NewDecoder(r)
	for {
		var l Line
		if err := lines.Decode(&l); err == io.EOF {
			break
		} else if err != nil {
			return s, nil, fmt.Errorf("history: %w", err)
		}
		j := jobs[l.Job]
		if j == nil && (l.Kind == "update" || l.Kind == "start" || l.Kind == "owner") {
			complain(l.At, "%s of job %d, which was never submitted", l.Kind, l.Job)
			continue
		}
		switch l.Kind {
		case "submit":
			s.Submitted++
			if l.HoldMillis > 0 {
				s.Held++
			} else if l.Token == "" {
				s.Unanswered++
			}
			if l.TookMillis > answerMillis {
				complain(l.At, "the submission of job %d took %d ms", l.Job, l.TookMillis)
			}
			jobs[l.Job] = &job{submit: &l, asked: l.Asked, first: l.Asked}
		case "look":
			if j != nil && j.ownerActed > 0 {
				j.lookedSince = true
			}
		case "owner":
			j.ownerActed, j.lookedSince = l.At, false
			if l.Asked != "" {
				j.asked = l.Asked
			}
		case "update":
			switch {
			case l.UID != j.submit.UID:
				complain(l.At, "job %d of %d was updated in the name of %d", l.Job, j.submit.UID, l.UID)
			case j.submit.HoldMillis == 0:
				complain(l.At, "job %d was touched and never held", l.Job)
			case j.started > 0:
				complain(l.At, "job %d was touched after it had started", l.Job)
			case j.ownerActed > 0 && j.lookedSince && l.Asked != j.asked:
				complain(l.At, "job %d was changed although its owner had acted and the daemon had looked since", l.Job)
			}
			if l.Asked != j.asked {
				if j.changes++; j.changes > 1 && l.Asked != j.first {
					complain(l.At, "job %d was changed %d times", l.Job, j.changes)
				}
			}
			l.On = l.Asked != j.asked // or else it was released as its owner wants it by now
			j.asked, j.updates = l.Asked, append(j.updates, l)
		case "start":
			s.Starts++
			if j.started > 0 {
				complain(l.At, "job %d started twice", l.Job)
			}
			j.started = l.At
			if late := l.At - j.submit.At - j.submit.HoldMillis; late > limits.StartMillis {
				complain(l.At, "job %d started %d ms after its hold", l.Job, late)
			}
		case "fault":
			faults = append(faults, l.At)
			if l.On {
				s.Faults++
			}
		case "ready":
			s.SlowestReadyMillis = max(s.SlowestReadyMillis, l.TookMillis)
		case "exit":
			if s.SlowestExitMillis = max(s.SlowestExitMillis, l.TookMillis); l.TookMillis > exitMillis {
				complain(l.At, "the daemon took %d ms to end", l.TookMillis)
			}
		case "probe":
			probes[l.Name] = l
		case "row":
			if rows[l.Token] != nil {
				complain(l.At, "two rows with the token %s", l.Token)
			}
			if rows[l.Token] = &l; len(l.After) > 0 {
				s.Decided++
			}
		default:
			return s, nil, fmt.Errorf("history: a line of the kind %q", l.Kind)
		}
	}
	for id, j := range jobs {
		judgeJob(&s, complain, id, j, rows[j.submit.Token], faults)
	}
	for token, row := range rows {
		judgeRow(complain, token, row, probes)
	}
	slices.Sort(broken)
	return s, broken, nil
}

// judgeJob compares what happened to a job with what its row says.
func judgeJob(s *Summary, complain func(int64, string, ...any), id uint32, j *job, row *Line, faults []int64) {
	if j.started == 0 && j.ownerActed == 0 {
		complain(j.submit.At, "job %d never started", id)
	}
	near := slices.ContainsFunc(faults, func(at int64) bool { return at > j.submit.At-lossMillis && at < j.submit.At+lossMillis })
	switch {
	case j.submit.Token == "" || row != nil:
	case near && !slices.ContainsFunc(j.updates, func(u Line) bool { return u.On }):
		s.Lost++
	default:
		complain(j.submit.At, "job %d was held and has no row, %d updates, fault near: %v", id, len(j.updates), near)
	}
	switch {
	case j.changes > 0:
		s.Changed++
	case len(j.updates) > 0:
		s.Released++
	case j.submit.HoldMillis > 0:
		s.ByTime++
	}
	if j.submit.Calm {
		took := j.started - j.submit.At
		if s.SlowestCalmMillis = max(s.SlowestCalmMillis, took); j.changes == 0 || took > calmMillis {
			complain(j.submit.At, "job %d came at a calm time and was not changed, or only after %d ms", id, took)
		}
	}
	for _, u := range j.updates {
		if row == nil {
			continue
		}
		announced := slices.ContainsFunc(row.Events, func(e Event) bool {
			return (e.State == "updating" || e.State == "releasing" || e.State == "restoring") && e.At <= u.At+clockSlackMillis
		})
		// Letting a job go as its owner asked is what time does: a daemon that can write no row does it without one.
		if !announced && u.On {
			complain(u.At, "job %d was touched before a row said so", id)
		}
		if u.On && u.Asked != j.first && !slices.Contains(row.After, u.Asked) {
			complain(u.At, "job %d asks for %q, and no decision says so: %q", id, u.Asked, row.After)
		}
	}
}

// judgeRow looks at one story by itself.
func judgeRow(complain func(int64, string, ...any), token string, row *Line, probes map[string]Line) {
	if len(row.Events) == 0 {
		complain(row.At, "row %s has no event", token)
		return
	}
	for i, e := range row.Events[1:] {
		if before := row.Events[i]; !slices.Contains(strings.Fields(order[before.State]), e.State) || e.At < before.At-clockSlackMillis {
			complain(e.At, "row %s goes from %s to %s after %d ms", token, before.State, e.State, e.At-before.At)
		}
	}
	if end := row.Events[len(row.Events)-1].State; !row.Finished || !slices.Contains(last, end) {
		complain(row.At, "the story of %s does not end: %s", token, end)
	}
	if len(row.Probes) > mostProbes {
		complain(row.At, "row %s has %d probes", token, len(row.Probes))
	}
	for _, name := range row.Probes {
		if p, ran := probes[name]; ran && p.UID != row.UID {
			complain(p.At, "probe %s ran as %d for a job of %d", name, p.UID, row.UID)
		}
	}
}
