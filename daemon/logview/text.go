// Package logview says in words what the decision log knows: of one job for its
// owner and for an operator, of a list, and how people write what they look
// for. The commands and the web page share it. It opens no log and prints nothing.
package logview

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/internal/account"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/slurm/request"
)

// MaxTextRunes bounds a line of a story; the longest reasons are sentences of some hundred letters.
const MaxTextRunes = 2000

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
	if u, err := account.ByID(uid); err == nil {
		return u.Name
	}
	return nameless(uid)
}

// nameless is how a user is written whose name is not known.
func nameless(uid uint32) string { return "uid " + strconv.FormatUint(uint64(uid), 10) }

// Names asks for each user's name once in a while: it may come over the network. The zero value is ready, also for concurrent use.
type Names struct {
	mu    sync.Mutex
	known map[uint32]knownName
	// quietUntil is until when nobody is asked for: the directory of users did not answer.
	quietUntil time.Time
	// system replaces this machine's users, in tests.
	system account.System
}

type knownName struct {
	name string
	at   time.Time
}

const (
	// nameLife is how long a name is believed, and maxNames how many are.
	nameLife = 10 * time.Minute
	maxNames = 10_000
	// quietFor is how long a directory that did not answer is left alone: a list has many names.
	quietFor = time.Minute
)

// Of is the name of a user, or the number of one without: one word, for awk and cut.
func (n *Names) Of(uid uint32) string {
	n.mu.Lock()
	known, ok := n.known[uid]
	quiet := time.Now().Before(n.quietUntil)
	n.mu.Unlock()
	if ok && time.Since(known.at) < nameLife {
		return known.name
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if quiet {
		return name
	}
	u, err := n.system.ByID(context.Background(), uid)
	if err == nil {
		name = u.Name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && !errors.Is(err, account.ErrUnknown) {
		n.quietUntil = time.Now().Add(quietFor)
		return name
	}
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
