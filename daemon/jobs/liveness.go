package jobs

import (
	"context"
	"fmt"
	"strings"

	"github.com/gresize/gresize/slurm/wire"
)

// proofPrefix begins the job names of the daemon's questions to itself.
const proofPrefix = "gresize-alive-"

// Prove has ask put a question about a job that is none, as the plugin would, and waits until the question has come through to the writer of the
// log: whoever waits for an answer, and for its row, is served. Nothing is recorded.
func (m *Manager) Prove(ctx context.Context, ask func(context.Context, *wire.Request) error) error {
	name, arrived := proofPrefix+randomWord(16), make(chan struct{})
	m.mu.Lock()
	m.proofs[name] = arrived
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.proofs, name)
		m.mu.Unlock()
	}()
	if err := ask(ctx, &wire.Request{Name: name}); err != nil {
		return fmt.Errorf("the submit socket does not answer: %w", err)
	}
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("submissions are answered and not written: %w", ctx.Err())
	}
}

// Answerer decides what the plugin is to do with a submission.
type Answerer interface {
	Answer(*wire.Request) *wire.Reply
}

// proving answers the daemon's questions to itself, and leaves all others to the next.
type proving struct {
	manager *Manager
	next    Answerer
}

// Proving answers the questions of Prove in front of whoever answers the plugin, and counts them.
func (m *Manager) Proving(next Answerer) Answerer { return proving{m, next} }

// Answer implements Answerer.
func (p proving) Answer(r *wire.Request) *wire.Reply {
	if p.manager.proves(r) {
		return &wire.Reply{Verdict: wire.VerdictPass}
	}
	return p.next.Answer(r)
}

// proves says whether a request is such a question, and sends it on to the writer. Its name is known to nobody else.
func (m *Manager) proves(r *wire.Request) bool {
	if !strings.HasPrefix(r.Name, proofPrefix) {
		return false
	}
	m.mu.Lock()
	arrived, known := m.proofs[r.Name]
	delete(m.proofs, r.Name)
	m.mu.Unlock()
	if !known {
		return false
	}
	select {
	case m.queue <- submission{proof: arrived}:
	default:
		// The queue is full. Whether its writer goes on, its own heartbeat says.
		close(arrived)
	}
	return true
}
