package plugintest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/wire"
)

const deadline = 50 * time.Millisecond

// slack is what a busy machine may add to the deadline before a test fails.
// The promise is 5 ms; the figures are printed.
const slack = 100 * time.Millisecond

func replyFrame(t *testing.T, reply *wire.Reply) []byte {
	t.Helper()
	var frame bytes.Buffer
	if err := wire.WriteReply(&frame, reply); err != nil {
		t.Fatal(err)
	}
	return frame.Bytes()
}

// badPeers are the ways in which the other side can fail. Each returns the path
// of a socket.
func badPeers(t *testing.T) map[string]func(t *testing.T) string {
	hold := replyFrame(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "never"})
	edited := func(at int, b byte) []byte {
		frame := bytes.Clone(hold)
		frame[at] = b
		return frame
	}
	// afterRequest lets the peer take the whole request first.
	afterRequest := func(act func(net.Conn)) func(*testing.T) string {
		return func(t *testing.T) string {
			return serve(t, func(connection net.Conn) {
				if _, err := wire.ReadRequest(connection); err == nil {
					act(connection)
				}
			})
		}
	}
	untilClosed := func(connection net.Conn) {
		connection.SetReadDeadline(time.Now().Add(5 * time.Second))
		for buffer := make([]byte, 1); ; {
			if _, err := connection.Read(buffer); err != nil {
				return
			}
		}
	}
	says := func(frame []byte) func(*testing.T) string {
		return afterRequest(func(connection net.Conn) {
			connection.Write(frame)
			untilClosed(connection)
		})
	}

	peers := map[string]func(*testing.T) string{
		"absent":        func(t *testing.T) string { return filepath.Join(shortDir(t), "none") },
		"no folder":     func(t *testing.T) string { return filepath.Join(shortDir(t), "none", "none") },
		"a plain file":  func(t *testing.T) string { return plainFile(t) },
		"a folder":      func(t *testing.T) string { return shortDir(t) },
		"refuses":       func(t *testing.T) string { return closedSocket(t) },
		"full backlog":  func(t *testing.T) string { return fullBacklog(t) },
		"never accepts": func(t *testing.T) string { return neverAccepts(t) },
		"accepts and hangs": func(t *testing.T) string {
			return serve(t, func(connection net.Conn) { time.Sleep(deadline + 20*time.Millisecond) })
		},
		"drains a byte a millisecond": func(t *testing.T) string {
			return serve(t, func(connection net.Conn) {
				connection.SetReadDeadline(time.Now().Add(deadline + 20*time.Millisecond))
				for buffer := make([]byte, 1); ; time.Sleep(time.Millisecond) {
					if _, err := connection.Read(buffer); err != nil {
						return
					}
				}
			})
		},
		"closes at once":             func(t *testing.T) string { return serve(t, func(net.Conn) {}) },
		"closes after the request":   afterRequest(func(net.Conn) {}),
		"closes inside the header":   afterRequest(func(connection net.Conn) { connection.Write(hold[:7]) }),
		"closes inside the body":     afterRequest(func(connection net.Conn) { connection.Write(hold[:len(hold)-1]) }),
		"stops inside the body":      says(hold[:len(hold)-1]),
		"claims 2 GiB":               says(edited(8, 0x80)),
		"claims one byte too little": says(edited(11, hold[11]-1)),
		"talks garbage":              says(bytes.Repeat([]byte("HTTP/1.1 400\r\n"), 4096)),
		"speaks version 2":           says(edited(5, 2)),
		"sends a request back":       says(edited(7, 1)),
		"answers late": afterRequest(func(connection net.Conn) {
			time.Sleep(deadline + 20*time.Millisecond)
			connection.Write(hold)
		}),
		"sends a byte at a time": afterRequest(func(connection net.Conn) {
			for i := range hold {
				if _, err := connection.Write(hold[i : i+1]); err != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}),
	}
	vectors, err := filepath.Glob("../../wire/testdata/vectors/reply-bad-*.hex")
	if err != nil || len(vectors) < 20 {
		t.Fatalf("%d vectors of bad replies, %v", len(vectors), err)
	}
	for _, vector := range vectors {
		content, err := os.ReadFile(vector)
		if err != nil {
			t.Fatal(err)
		}
		frame, err := hex.DecodeString(strings.Join(strings.Fields(string(content)), ""))
		if err != nil {
			t.Fatal(err)
		}
		peers[strings.TrimSuffix(filepath.Base(vector), ".hex")] = says(frame)
	}
	return peers
}

func plainFile(t *testing.T) string {
	path := filepath.Join(shortDir(t), "s")
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// listen makes a socket with a backlog of our choice, which net.Listen cannot.
func listen(t *testing.T, backlog int) (fd int, path string) {
	t.Helper()
	path = filepath.Join(shortDir(t), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if backlog >= 0 {
		if err := syscall.Listen(fd, backlog); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { syscall.Close(fd) })
	return fd, path
}

func closedSocket(t *testing.T) string {
	_, path := listen(t, -1)
	return path
}

func neverAccepts(t *testing.T) string {
	_, path := listen(t, 128)
	return path
}

func fullBacklog(t *testing.T) string {
	_, path := listen(t, 0)
	for range 8 {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err == syscall.EAGAIN {
			return path
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the backlog takes everything")
	return ""
}

// TestBadPeersChangeNothing is the promise that any fault of ours leaves the job
// exactly as it was, within the deadline, with a small job and with one whose
// script fills the socket's buffer.
func TestBadPeersChangeNothing(t *testing.T) {
	const tries = 3
	jobs := map[string][]string{
		"small": gpuJob(),
		"big":   append(gpuJob(), "big script 3000000"),
	}
	peers := badPeers(t)
	names := make([]string, 0, len(peers))
	for name := range peers {
		names = append(names, name)
	}
	slices.Sort(names)
	worst := map[string]time.Duration{}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			path := peers[name](t)
			d := start(t, shipped, fmt.Sprintf("socket=%s\ndeadline_ms=%d\n", path, deadline.Milliseconds()))
			for size, job := range jobs {
				d.tell(job...)
				before := d.dump()
				for range tries {
					d.tell("load") // a fresh breaker: every try must reach the peer
					took := d.submit()
					worst[name] = max(worst[name], took)
					if took > deadline+slack {
						t.Errorf("%s job: %v, the deadline is %v", size, took, deadline)
					}
					if after := d.dump(); after != before {
						t.Fatalf("%s job changed:\nfrom %.1000s\nto   %.1000s", size, before, after)
					}
				}
			}
		})
	}
	for _, name := range names {
		over := "-"
		if worst[name] > deadline {
			over = (worst[name] - deadline).Round(10 * time.Microsecond).String()
		}
		t.Logf("%-28s worst of %d: %8.3f ms, over the deadline: %s", name, 2*tries, worst[name].Seconds()*1000, over)
	}
}

// TestBadPeersUnderSanitizers repeats the round once with the sanitizers, which
// see what unchanged fields do not show.
func TestBadPeersUnderSanitizers(t *testing.T) {
	for name, peer := range badPeers(t) {
		t.Run(name, func(t *testing.T) {
			d := start(t, sanitized, fmt.Sprintf("socket=%s\ndeadline_ms=%d\n", peer(t), deadline.Milliseconds()))
			d.tell(gpuJob()...)
			before := d.dump()
			for range 2 {
				d.submit()
			}
			if after := d.dump(); after != before {
				t.Fatalf("job changed:\nfrom %s\nto   %s", before, after)
			}
			d.stop()
		})
	}
}

// TestBreakerSparesADeadDaemon counts connections: three failures, then none.
func TestBreakerSparesADeadDaemon(t *testing.T) {
	connections := make(chan struct{}, 16)
	path := serve(t, func(net.Conn) { connections <- struct{}{} })
	d := start(t, sanitized, "socket="+path+"\n")
	d.tell(gpuJob()...)
	for range 10 {
		d.submit()
	}
	log := d.stop()
	if got := len(connections); got != 3 {
		t.Errorf("10 submissions made %d connections, want 3", got)
	}
	if got := strings.Count(log, "error:"); got != 1 {
		t.Errorf("%d lines of error for one outage, want 1:\n%s", got, log)
	}
}

// TestBreakerCountsTheDaemonsFaultsAlone: what slurmctld itself wants opens no pause, and the next job reaches the daemon.
func TestBreakerCountsTheDaemonsFaultsAlone(t *testing.T) {
	for name, want := range map[string]struct{ begin, end string }{
		"descriptors": {"descriptors 3", "descriptors 256"},
		"memory":      {"memory 200", "memory 0"},
	} {
		path, requests := daemon(t, &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t"})
		d := start(t, shipped, "socket="+path+"\ndeadline_ms=1000\n")
		d.tell(gpuJob()...)
		before := d.dump()
		d.tell(want.begin)
		for range 5 {
			d.submit()
		}
		if after := d.dump(); after != before || received(requests) != nil {
			t.Errorf("want of %s: the job was sent or changed:\n%s", name, after)
		}
		d.tell(want.end)
		d.submit()
		if received(requests) == nil {
			t.Errorf("want of %s: no request afterwards", name)
		}
		if log := d.stop(); strings.Contains(log, "error:") {
			t.Errorf("want of %s: %s", name, log)
		}
	}
}

// TestManyThreads submits from eight threads at once, as slurmctld does from
// 23.02 on, against a healthy daemon and then against none.
func TestManyThreads(t *testing.T) {
	reply := &wire.Reply{Verdict: wire.VerdictHold, HoldSeconds: 60, Token: "t", EnvDrop: []string{"SLURM_GPUS"}}
	path, requests := daemon(t, reply)
	go func() {
		for range requests {
		}
	}()
	defer close(requests)
	for name, socket := range map[string]string{"healthy": path, "absent": filepath.Join(shortDir(t), "none")} {
		d := start(t, sanitized, "socket="+socket+"\ndeadline_ms=1000\n")
		d.tell("storm 8 100")
		if calls := len(strings.Fields(d.line())) - 1; calls != 800 {
			t.Errorf("%s: %d of 800 calls came back", name, calls)
		}
		d.stop()
	}
}
