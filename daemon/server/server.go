// Package server owns the submit socket: who may speak, how many at once, and
// how long. It reads one request of a connection, asks, and writes one reply.
// What the answer is does not concern it.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/peer"
	"github.com/gresize/gresize/slurm/wire"
)

// exchangeTimeout bounds one connection. The plugin has given up long before; this only frees the place.
const exchangeTimeout = 2 * time.Second

// lastExchange is what is left of it when the daemon ends.
const lastExchange = 200 * time.Millisecond

// answerLimit is by when one connection is over, or its answer is stuck.
const answerLimit = exchangeTimeout + 3*time.Second

// quietPeriod is the least time between two log lines about the same kind of trouble.
const quietPeriod = 5 * time.Minute

// Answerer decides. It must answer from memory.
type Answerer interface {
	Answer(*wire.Request) *wire.Reply
}

// Config is everything that a Server needs.
type Config struct {
	// AllowedUIDs may speak, beside root and the daemon's own user.
	AllowedUIDs    []uint32
	MaxConnections int
	Answerer       Answerer
	Logger         *slog.Logger
	// Heartbeat, when set, is told of every connection in work.
	Heartbeat *heartbeat.Monitor
}

// Server answers on one socket.
type Server struct {
	config Config
	slots  chan struct{}
	// own is a place that is kept for the daemon's question to itself.
	own  chan struct{}
	wait sync.WaitGroup
	// Answered and Refused count connections.
	Answered, Refused atomic.Int64
	lastComplaint     atomic.Int64
}

// New makes a server; it starts nothing.
func New(config Config) *Server {
	return &Server{config: config, slots: make(chan struct{}, config.MaxConnections), own: make(chan struct{}, 1)}
}

// Serve answers until the listener is closed, and returns when the last exchange is over.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	defer s.wait.Wait()
	for {
		connection, err := listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ECONNABORTED):
			s.complain("connections cannot be accepted for now", "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		place := s.place(connection)
		if place == nil {
			// The plugin lets the job pass unchanged.
			s.Refused.Add(1)
			s.complain("too many connections: jobs pass unchanged")
			connection.Close()
			continue
		}
		s.wait.Go(func() {
			defer func() { <-place }()
			defer connection.Close()
			defer s.config.Heartbeat.Begin("an answer to slurmctld", answerLimit).End()
			s.exchange(ctx, connection)
		})
	}
}

func (s *Server) exchange(ctx context.Context, connection *net.UnixConn) {
	who, err := peer.Of(connection)
	if err != nil || !s.allowed(who.Uid) {
		s.Refused.Add(1)
		s.config.Logger.Warn("peer refused", "uid", who.Uid, "pid", who.Pid, "error", err)
		return
	}
	if err := connection.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Now().Add(lastExchange)) })
	defer stop()
	request, err := wire.ReadRequest(connection)
	if errors.Is(err, io.EOF) {
		// Somebody looked whether the socket answers.
		return
	}
	if err != nil {
		s.Refused.Add(1)
		s.complain("request not understood", "pid", who.Pid, "error", err)
		if isSubmissions(err) {
			s.pass(connection)
		}
		return
	}
	if err := wire.WriteReply(connection, s.config.Answerer.Answer(request)); err != nil {
		s.complain("reply not sent", "pid", who.Pid, "error", err)
		if isSubmissions(err) {
			s.pass(connection)
		}
		return
	}
	s.Answered.Add(1)
}

// isSubmissions says whether an error is one of what was asked or would be answered, and neither of the connection nor of the protocol's version.
func isSubmissions(err error) bool {
	return errors.Is(err, wire.ErrMalformed) || errors.Is(err, wire.ErrTooLarge) || errors.Is(err, wire.ErrInvalid)
}

// pass answers a submission that cannot be served. The plugin takes a connection that is closed without an answer for a fault of the daemon, and after three
// asks no more for anybody's jobs.
func (s *Server) pass(connection *net.UnixConn) {
	if err := wire.WriteReply(connection, &wire.Reply{Verdict: wire.VerdictPass}); err != nil {
		s.complain("reply not sent", "error", err)
	}
}

// place takes a place for a connection and returns what to give it back to, or nil. One is kept for this very process: a flood must not make the daemon
// believe that it is stuck.
func (s *Server) place(connection *net.UnixConn) chan struct{} {
	select {
	case s.slots <- struct{}{}:
		return s.slots
	default:
	}
	if who, err := peer.Of(connection); err != nil || int(who.Pid) != os.Getpid() {
		return nil
	}
	select {
	case s.own <- struct{}{}:
		return s.own
	default:
		return nil
	}
}

func (s *Server) allowed(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Getuid()) || slices.Contains(s.config.AllowedUIDs, uid)
}

// complain logs trouble that would repeat with every connection, at most once in quietPeriod.
func (s *Server) complain(message string, args ...any) {
	now := time.Now().UnixNano()
	if last := s.lastComplaint.Load(); now-last > int64(quietPeriod) && s.lastComplaint.CompareAndSwap(last, now) {
		s.config.Logger.Warn(message, args...)
	}
}
