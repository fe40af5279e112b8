package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asked is what came of questions like the plugin's.
type asked struct {
	mu       sync.Mutex
	took     []time.Duration
	answered int
}

func (a *asked) once(c *chaos) {
	began := time.Now()
	reply := c.ask(sampleRequest())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, time.Since(began))
	if reply != nil {
		a.answered++
	}
}

func (a *asked) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.took) == 0 {
		return "nothing was asked"
	}
	slices.Sort(a.took)
	at := func(q float64) time.Duration {
		return a.took[int(q*float64(len(a.took)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d of %d answered, p50 %s, p99 %s, longest %s", a.answered, len(a.took), at(.5), at(.99), at(1))
}

// asOther runs do on a thread that belongs to another user, and ends the thread.
func asOther(uid int, do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread goes with the goroutine
		// Not Go's own call, which changes all threads.
		for _, call := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
			if _, _, errno := syscall.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				panic(errno)
			}
		}
		do()
	}()
	<-done
}

// TestFloodOfTwoUsers: ten thousand connections of a stranger, whom the socket does not let in, and as many of a user who may speak and says half of a header. slurmctld's questions
// meanwhile are answered, or refused at once, and the daemon does not grow.
func TestFloodOfTwoUsers(t *testing.T) {
	t.Parallel()
	connections := 1000
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		connections = 10_000
	}
	c := newChaos(t, &history{out: io.Discard}, "shadow", 1)
	must(t, os.Chmod(c.dir, 0o755)) // the stranger gets as far as the socket
	c.start()
	c.answering()
	var before asked
	for range 100 {
		before.once(c)
	}
	quiet := c.measure()
	t.Logf("quiet: %s; %.1f MiB, %d descriptors", before.String(), quiet.memoryMiB, quiet.descriptors)

	while := func(flood func()) (during *asked, worst measured) {
		during = &asked{}
		var ended atomic.Bool
		var wait sync.WaitGroup
		wait.Go(func() { flood(); ended.Store(true) })
		for n := 0; !ended.Load() || n < 20; n++ {
			during.once(c)
			if n%10 == 0 {
				m := c.measure()
				worst.memoryMiB, worst.descriptors = max(worst.memoryMiB, m.memoryMiB), max(worst.descriptors, m.descriptors)
			}
			time.Sleep(2 * time.Millisecond)
		}
		wait.Wait()
		return during, worst
	}
	denied := 0
	during, worst := while(func() {
		asOther(65534, func() {
			for range connections {
				connection, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.socket, Net: "unix"})
				if err == nil {
					connection.Close()
					continue
				}
				denied++
			}
		})
	})
	t.Logf("a stranger: %d of %d connections denied; meanwhile %s; at most %.1f MiB, %d descriptors", denied, connections, during.String(), worst.memoryMiB, worst.descriptors)
	if denied != connections || during.answered != len(during.took) {
		t.Errorf("%d of %d denied, %d of %d answered", denied, connections, during.answered, len(during.took))
	}
	opened := 0
	during, worst = while(func() {
		var held []net.Conn
		for range connections {
			connection, err := net.DialTimeout("unix", c.socket, time.Second)
			if err != nil {
				continue // a full backlog
			}
			opened++
			_, _ = connection.Write([]byte("GRSZ\x00\x01"))
			if held = append(held, connection); len(held) > 400 {
				held[0].Close()
				held = held[1:]
			}
		}
		for _, connection := range held {
			connection.Close()
		}
	})
	t.Logf("a user who may speak: %d of %d connections made; meanwhile %s; at most %.1f MiB, %d descriptors", opened, connections, during.String(), worst.memoryMiB, worst.descriptors)
	if worst.memoryMiB > 200 || worst.descriptors > 1024 {
		t.Errorf("%.1f MiB, %d descriptors", worst.memoryMiB, worst.descriptors)
	}
	if longest := during.took[len(during.took)-1]; longest > 2*time.Second {
		t.Errorf("a question took %s", longest)
	}
	var after asked
	for range 100 {
		after.once(c)
	}
	t.Logf("after: %s", after.String())
	if after.answered != len(after.took) {
		t.Errorf("after the flood %s", after.String())
	}
}

// TestReloadsUnderLoad reads the configuration again and again, sound and broken in turn, while submissions come in: each is answered, and nothing grows.
func TestReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	reloads := 60
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		reloads = 1000
	}
	c := newChaos(t, &history{out: io.Discard}, "shadow", 1)
	c.start()
	c.answering()
	sound, err := os.ReadFile(c.config)
	must(t, err)
	var all asked
	var ended atomic.Bool
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for !ended.Load() {
				all.once(c)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	said := func(what string) int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return strings.Count(c.lines.String(), what)
	}
	var first measured
	began := time.Now()
	for i := range reloads {
		text, want := sound, "configuration read again"
		if i%2 == 1 {
			text, want = append([]byte("nonsense = ["), sound...), "the configuration was not read again"
		}
		must(t, os.WriteFile(c.config+".new", text, 0o600))
		must(t, os.Rename(c.config+".new", c.config))
		before := said(want)
		c.signal(syscall.SIGHUP)
		waitSoon(t, "a reload", func() bool { return said(want) > before })
		if i == reloads/5 {
			first = c.measure()
		}
		if i%50 == 49 {
			c.mu.Lock()
			c.lines.Reset()
			c.mu.Unlock()
		}
	}
	took := time.Since(began)
	last := c.measure()
	ended.Store(true)
	load.Wait()
	t.Logf("%d reloads in %s, %s; memory %.1f to %.1f MiB, descriptors %d to %d", reloads, took.Round(100*time.Millisecond), all.String(), first.memoryMiB, last.memoryMiB, first.descriptors, last.descriptors)
	// Whom a busy machine keeps waiting for longer than the plugin's deadline is no failure of a reload.
	if all.answered < len(all.took)*99/100 || last.memoryMiB > first.memoryMiB+10 || last.descriptors > first.descriptors+8 {
		t.Error("a request failed, or something has grown")
	}
}

// waitSoon is waitUntil for what takes milliseconds.
func waitSoon(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// TestReadyWithALargeLog starts the daemon on a log of many jobs, again and again after kill -9.
func TestReadyWithALargeLog(t *testing.T) {
	t.Parallel()
	jobs, starts := 20_000, 3
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		jobs, starts = 850_000, 10 // 1 GB
	}
	c := newChaos(t, &history{out: io.Discard}, "shadow", 1)
	// On the disk, not in memory.
	must(t, unix.Unmount(c.state(), 0))
	defer func() {
		c.kill()
		must(t, unix.Mount("chaos", c.state(), "tmpfs", 0, "size=1m")) // what is taken away in the end
	}()
	c.start()
	waitSoon(t, "READY=1", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.ready > 0 })
	c.kill()
	path := filepath.Join(c.state(), "log.db")
	const script = `import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript("CREATE TEMP TABLE fill AS SELECT " + sys.argv[2] + " AS jobs; BEGIN;" + open("../tools/decisionlog/fill.sql").read() + "; COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
db.close()`
	if out, err := exec.Command("python3", "-c", script, path, strconv.Itoa(jobs)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(path)
	must(t, err)
	var took []time.Duration
	for range starts {
		c.mu.Lock()
		c.ready = 0
		c.mu.Unlock()
		c.start()
		waitSoon(t, "READY=1", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.ready > 0 })
		c.mu.Lock()
		took = append(took, c.ready)
		c.mu.Unlock()
		c.kill()
	}
	slices.Sort(took)
	t.Logf("a log of %d jobs, %.2f GB: READY=1 after %s at the middle, %s at most, of %d starts after kill -9", jobs, float64(info.Size())/1e9, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), starts)
	if took[len(took)-1] > 3*time.Second {
		t.Errorf("%s", took)
	}
}
