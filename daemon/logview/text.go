// Package logview says in words what the decision log knows: of one job for its
// owner and for an operator, of a list, and how people write what they look
// for. The commands and the web page share it. It opens no log and prints nothing.
package logview

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/estimator/printable"
	"github.com/gresize/gresize/slurm/request"
)

// MaxTextRunes bounds a line of a story; the longest reasons are sentences of some hundred letters.
const MaxTextRunes = 2000

// GiB is a size for people.
func GiB(bytes int64) string { return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30)) }

// Spaced is a word of the log, such as left_alone, as people write it.
func Spaced(word string) string { return strings.ReplaceAll(word, "_", " ") }

// JobID is Slurm's number of a job, or a dash where it is not known.
func JobID(j decisionlog.Job) string { return orDash(j.SlurmJobID) }

func orDash(id uint32) string {
	if id == 0 {
		return "-"
	}
	return strconv.FormatUint(uint64(id), 10)
}

// Short is a request in as few letters as tell it from others.
func Short(r request.Request) string {
	var parts []string
	for _, ask := range r.Asks() {
		word := ask.Name
		if ask.Type != "" {
			word += ":" + ask.Type
		}
		parts = append(parts, fmt.Sprintf("%s:%d", word, ask.Count))
	}
	if r.Features != "" {
		parts = append(parts, r.Features)
	}
	if len(parts) == 0 {
		return "-"
	}
	return printable.Clip(strings.Join(parts, " "), 40)
}

// UserName is the name of a user, or "uid 7" for one without.
func UserName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "uid " + number
}

// Names asks for each user's name once in a while: it may come over the network. The zero value is ready, also for concurrent use.
type Names struct {
	mu    sync.Mutex
	known map[uint32]knownName
}

type knownName struct {
	name string
	at   time.Time
}

const (
	// nameLife is how long a name is believed, and maxNames how many are.
	nameLife = 10 * time.Minute
	maxNames = 10_000
)

// Of is the name of a user, or the number of one without: one word, for awk and cut.
func (n *Names) Of(uid uint32) string {
	n.mu.Lock()
	known, ok := n.known[uid]
	n.mu.Unlock()
	if ok && time.Since(known.at) < nameLife {
		return known.name
	}
	name := strings.TrimPrefix(UserName(uid), "uid ")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) >= maxNames {
		n.known = map[uint32]knownName{}
	}
	n.known[uid] = knownName{name, time.Now()}
	return name
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

func unknownIfEmpty(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
