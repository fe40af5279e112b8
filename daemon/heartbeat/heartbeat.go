// Package heartbeat says whether the loops of a daemon go on. Each loop says by
// when it will have gone on; one that is late is named. It starts nothing, and
// knows nothing of what the loops do.
package heartbeat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Monitor knows the loops of one process. A nil Monitor knows none and takes every call, and so does the nil Beat that it gives.
type Monitor struct {
	mu    sync.Mutex
	beats map[*Beat]struct{}
}

// Beat is the word of one loop.
type Beat struct {
	monitor *Monitor
	name    string
	turn    time.Duration
	due     time.Time // zero: it waits for work, as long as it takes
}

// New makes a monitor without loops.
func New() *Monitor { return &Monitor{beats: map[*Beat]struct{}{}} }

// Begin adds a loop that goes on within turn, each time, unless it says otherwise.
func (m *Monitor) Begin(name string, turn time.Duration) *Beat {
	if m == nil {
		return nil
	}
	b := &Beat{monitor: m, name: name, turn: turn, due: time.Now().Add(turn)}
	m.mu.Lock()
	m.beats[b] = struct{}{}
	m.mu.Unlock()
	return b
}

// Turn says that the loop has gone on, and will again within its turn.
func (b *Beat) Turn() {
	if b != nil {
		b.set(time.Now().Add(b.turn))
	}
}

// Wait says that the loop is about to wait for something else, which has a limit of its own, and then goes on within its turn.
func (b *Beat) Wait(limit time.Duration) {
	if b != nil {
		b.set(time.Now().Add(limit + b.turn))
	}
}

// Idle says that the loop waits for work.
func (b *Beat) Idle() {
	if b != nil {
		b.set(time.Time{})
	}
}

// End takes the loop off the list.
func (b *Beat) End() {
	if b != nil {
		b.monitor.mu.Lock()
		delete(b.monitor.beats, b)
		b.monitor.mu.Unlock()
	}
}

func (b *Beat) set(due time.Time) {
	b.monitor.mu.Lock()
	b.due = due
	b.monitor.mu.Unlock()
}

// Check names each loop that is late.
func (m *Monitor) Check() error {
	if m == nil {
		return nil
	}
	now := time.Now()
	var late []string
	m.mu.Lock()
	for b := range m.beats {
		if by := now.Sub(b.due); !b.due.IsZero() && by > 0 {
			late = append(late, fmt.Sprintf("%s is %s late", b.name, by.Round(100*time.Millisecond)))
		}
	}
	m.mu.Unlock()
	if late == nil {
		return nil
	}
	slices.Sort(late)
	return fmt.Errorf("stuck: %s", strings.Join(late, ", "))
}

type key struct{}

// With returns a context that carries a loop's beat to what is called in its name.
func With(ctx context.Context, b *Beat) context.Context { return context.WithValue(ctx, key{}, b) }

// Of is the beat that a context carries, nil when it carries none.
func Of(ctx context.Context) *Beat {
	b, _ := ctx.Value(key{}).(*Beat)
	return b
}

// Call is around a call that has a limit of its own: the loop in whose name it is made may take that long, and then goes on with its turn.
func Call(ctx context.Context, limit time.Duration) (done func()) {
	b := Of(ctx)
	b.Wait(limit)
	return b.Turn
}
