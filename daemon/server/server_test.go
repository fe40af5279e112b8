package server

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/peer"
	"github.com/gresize/gresize/slurm/wire"
)

// slow answers hold, after a while.
type slow struct{ delay time.Duration }

func (s slow) Answer(*wire.Request) *wire.Reply {
	time.Sleep(s.delay)
	return &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t"}
}

func start(t *testing.T, connections int, answerer Answerer) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := listen.Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{MaxConnections: connections, Answerer: answerer, Logger: slog.New(slog.DiscardHandler)})
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), listener) }()
	t.Cleanup(func() {
		listener.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, path
}

func ask(path string) (*wire.Reply, error) {
	connection, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := wire.WriteRequest(connection, &wire.Request{SlurmVersion: 0x160508, UserID: 1001, TresPerNode: "gres:gpu:1", Script: "#!/bin/sh\n", ScriptTotal: 10}); err != nil {
		return nil, err
	}
	return wire.ReadReply(connection)
}

func TestAnswers(t *testing.T) {
	_, path := start(t, 4, slow{})
	reply, err := ask(path)
	if err != nil || reply.Verdict != wire.VerdictHold || reply.HoldSeconds != 60 {
		t.Errorf("%+v %v", reply, err)
	}
}

func TestTooManyConnectionsAreClosedAtOnce(t *testing.T) {
	s, path := start(t, 4, slow{300 * time.Millisecond})
	var wait sync.WaitGroup
	var mu sync.Mutex
	answered := 0
	for range 64 {
		wait.Go(func() {
			begin := time.Now()
			reply, err := ask(path)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && reply.Verdict == wire.VerdictHold {
				answered++
			} else if time.Since(begin) > 250*time.Millisecond {
				t.Errorf("a refusal took %s", time.Since(begin))
			}
		})
	}
	wait.Wait()
	if answered < 4 || answered > 16 || s.Refused.Load() == 0 {
		t.Errorf("%d were answered, %d refused", answered, s.Refused.Load())
	}
	if reply, err := ask(path); err != nil || reply.Verdict != wire.VerdictHold {
		t.Errorf("after the flood: %v", err)
	}
}

func TestGarbageHarmsNobody(t *testing.T) {
	_, path := start(t, 16, slow{})
	for _, garbage := range []string{"", "G", "GRSZ", "GRSZ\x00\x01\x00\x01\xff\xff\xff\xff", "hello world, this is no frame", "GRSZ\x00\x02\x00\x01\x00\x00\x00\x00"} {
		connection, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Write([]byte(garbage)); err != nil {
			t.Error(err)
		}
		connection.Close()
	}
	if _, err := ask(path); err != nil {
		t.Error(err)
	}
}

// broken gives an answer that no plugin would obey.
type broken struct{}

func (broken) Answer(*wire.Request) *wire.Reply {
	return &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "not a token"}
}

// TestASubmissionIsNoFaultOfTheDaemon: three connections closed without an answer make the plugin ask no more, so what cannot be read or answered is passed.
func TestASubmissionIsNoFaultOfTheDaemon(t *testing.T) {
	_, path := start(t, 4, slow{})
	for name, frame := range map[string]string{
		"an unknown field":    "GRSZ\x00\x01\x00\x01\x00\x00\x00\x06\x00\x02\x00\x00\x00\x00",
		"fields are missing":  "GRSZ\x00\x01\x00\x01\x00\x00\x00\x00",
		"longer than allowed": "GRSZ\x00\x01\x00\x01\xff\xff\xff\xff",
	} {
		connection, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Write([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		if reply, err := wire.ReadReply(connection); err != nil || reply.Verdict != wire.VerdictPass {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
		connection.Close()
	}
	connection, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("GRSZ\x00\x02\x00\x01\x00\x00\x00\x00")); err != nil {
		t.Fatal(err)
	}
	if reply, err := wire.ReadReply(connection); err == nil {
		t.Errorf("another version: %+v", reply)
	}
	_, path = start(t, 4, broken{})
	if reply, err := ask(path); err != nil || reply.Verdict != wire.VerdictPass {
		t.Errorf("an answer that may not be sent: %+v, %v", reply, err)
	}
}

func TestOtherUsersAreRefused(t *testing.T) {
	s := New(Config{AllowedUIDs: []uint32{64030}, MaxConnections: 1})
	for uid, want := range map[uint32]bool{0: true, 64030: true, uint32(os.Getuid()): true, 1001: false, 65534: false} {
		if s.allowed(uid) != want {
			t.Errorf("uid %d: %v", uid, !want)
		}
	}
	a, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(a[0]), "")
	defer file.Close()
	defer syscall.Close(a[1])
	connection, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if who, err := peer.Of(connection.(*net.UnixConn)); err != nil || int(who.Uid) != os.Getuid() || int(who.Pid) != os.Getpid() {
		t.Errorf("%+v %v", who, err)
	}
}
