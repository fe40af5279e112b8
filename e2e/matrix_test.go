package e2e

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/e2e/check"
)

// matrixWatchdog is the time after which a daemon that does not tell the watchdog that it is alive is ended, as systemd ends it.
const matrixWatchdog = 6 * time.Second

// matrixRow is one fault of the daemon, of what it stands on or of what it asks.
type matrixRow struct {
	name string
	do   func() (undo func())
	// watchdog says that the daemon is expected to be found stuck, and ended.
	watchdog bool
	// short rows are run in every test.
	short bool
}

// matrixCell is what was seen of a fault in a mode.
type matrixCell struct {
	submitted, unchanged int
	worst, recovered     time.Duration
}

func (c matrixCell) String() string {
	return fmt.Sprintf("%d submitted, %d left as they were, answer %d ms at worst, sound again after %.1f s", c.submitted, c.unchanged, c.worst.Milliseconds(), c.recovered.Seconds())
}

// TestFaultMatrix makes each fault once in each mode, with submissions before the controller answers again and after, and prints what it saw:
//
//	go test -v -timeout 30m -run 'Matrix|BadPeers' ./slurm/plugin/plugintest ./e2e
//
// The checker of TestChaos judges all of it. Where nobody asks for it by name, only the short rows are run, in the mode that changes jobs.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	modes, all := []string{"off", "shadow", "enforce"}, true
	if !strings.Contains(flag.Lookup("test.run").Value.String(), "Matrix") && os.Getenv("GRESIZE_NIGHTLY") != "1" {
		modes, all = []string{"enforce"}, false
	}
	cells, order := map[string]map[string]matrixCell{}, []string(nil)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			for _, name := range runMatrix(t, mode, all, cells) {
				if mode == modes[0] {
					order = append(order, name)
				}
			}
		})
	}
	var table strings.Builder
	for _, name := range order {
		for _, mode := range modes {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", name, mode, cells[name][mode])
		}
	}
	t.Logf("\n| fault | mode | seen |\n|---|---|---|\n%s", table.String())
}

func runMatrix(t *testing.T, mode string, all bool, cells map[string]map[string]matrixCell) (names []string) {
	out, err := os.Create(filepath.Join(t.TempDir(), "history.jsonl"))
	must(t, err)
	defer out.Close()
	c := newChaos(t, &history{out: out}, mode, 1)
	c.steady = true
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d stories have not ended; the daemon's last words:\n%s", c.unfinished(), c.lastWords())
		}
	})
	c.env = []string{fmt.Sprintf("WATCHDOG_USEC=%d", matrixWatchdog.Microseconds())}
	c.start()
	c.answering()
	random := rand.New(rand.NewPCG(1, 7))
	for _, row := range c.matrix() {
		if !all && !row.short {
			continue
		}
		names = append(names, row.name)
		if cells[row.name] == nil {
			cells[row.name] = map[string]matrixCell{}
		}
		cells[row.name][mode] = c.tryRow(row, random)
	}
	waitUntil(t, chaosHold+15*time.Second, "every job to start", c.cluster.settled)
	limit := 2*chaosHold + 20*time.Second
	if mode == "shadow" {
		limit += 2 * time.Minute
	}
	waitUntil(t, limit, "every story to end", func() bool { return c.unfinished() == 0 })
	c.rows()
	must(t, c.h.err)
	_, err = out.Seek(0, io.SeekStart)
	must(t, err)
	summary, broken, err := check.History(out, check.Played)
	must(t, err)
	t.Logf("%s: %+v", mode, summary)
	for _, b := range broken {
		t.Error(b)
	}
	return names
}

// tryRow makes one fault, submits during it, lets the controller be away for a moment as by a restart, submits again, and ends the fault.
func (c *chaos) tryRow(row matrixRow, random *rand.Rand) (cell matrixCell) {
	c.t.Helper()
	submit := func() {
		before := c.cluster.held()
		took := c.submit(random, true)
		cell.submitted++
		if c.cluster.held() == before {
			cell.unchanged++
		}
		if cell.worst = max(cell.worst, took); took > 2*pluginDeadline+100*time.Millisecond {
			c.t.Errorf("%s: a submission took %s", row.name, took)
		}
	}
	c.h.note(check.Line{Kind: "fault", Name: row.name, On: true})
	undo := row.do()
	for range 2 {
		submit()
		time.Sleep(200 * time.Millisecond)
	}
	c.cluster.set(&c.cluster.commands, "refuse")
	submit()
	time.Sleep(300 * time.Millisecond)
	c.cluster.set(&c.cluster.commands, "")
	submit()
	if row.watchdog {
		// systemd hears nothing, and ends the daemon.
		waitUntil(c.t, 3*matrixWatchdog, "the watchdog to miss the daemon", func() bool { return !c.aliveFor(matrixWatchdog) })
		c.kill()
	}
	began := time.Now()
	if undo != nil {
		undo()
	}
	c.answering()
	cell.recovered = time.Since(began)
	c.h.note(check.Line{Kind: "fault", Name: row.name})
	if c.mode == "enforce" {
		// All is as before: a job is held again.
		waitUntil(c.t, 30*time.Second, "a job to be held after: "+row.name, func() bool {
			c.again()
			before := c.cluster.held()
			c.submit(random, true)
			return c.cluster.held() > before
		})
	}
	return cell
}

// held is how many jobs carry a token.
func (c *playedCluster) held() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if j.token != "" {
			n++
		}
	}
	return n + c.forgotten
}

func (c *chaos) matrix() []matrixRow {
	var rows []matrixRow
	for _, f := range c.faults() {
		rows = append(rows, matrixRow{name: f.name, do: f.do})
	}
	state := c.state()
	return append(rows,
		matrixRow{name: "killed and away", do: func() func() { c.kill(); return c.start }},
		matrixRow{name: "log locked by another program", short: true, do: func() func() {
			other := exec.Command("/usr/bin/python3", "-c", "import sqlite3, sys, time\nd = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5); d.execute('BEGIN IMMEDIATE'); print('locked', flush=True); time.sleep(600)", filepath.Join(state, "log.db"))
			said, err := other.StdoutPipe()
			must(c.t, err)
			must(c.t, other.Start())
			if _, err := said.Read(make([]byte, 10)); err != nil {
				c.t.Errorf("the log was not locked: %v", err)
			}
			return func() { _ = other.Process.Kill(); _ = other.Wait() }
		}},
		matrixRow{name: "log on a read-only disk at start", do: func() func() {
			c.kill()
			must(c.t, unix.Mount("", state, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			c.start()
			time.Sleep(300 * time.Millisecond)
			return func() { must(c.t, unix.Mount("", state, "", unix.MS_REMOUNT, "")) }
		}},
		matrixRow{name: "log corrupt at start", do: func() func() {
			c.kill()
			// The rows of the jobs until here are needed by the checker: the file comes back afterwards.
			saved := filepath.Join(c.dir, "saved")
			must(c.t, os.Mkdir(saved, 0o700))
			files, err := filepath.Glob(filepath.Join(state, "log.db*"))
			must(c.t, err)
			for _, f := range files {
				data, err := os.ReadFile(f)
				must(c.t, err)
				must(c.t, os.WriteFile(filepath.Join(saved, filepath.Base(f)), data, 0o600))
			}
			must(c.t, os.WriteFile(filepath.Join(state, "log.db"), []byte(strings.Repeat("no database ", 1000)), 0o600))
			c.start()
			c.answering()
			c.kill()
			for _, f := range files {
				_ = os.Remove(f)
				data, err := os.ReadFile(filepath.Join(saved, filepath.Base(f)))
				must(c.t, err)
				must(c.t, os.WriteFile(f, data, 0o600))
			}
			return c.start
		}},
		matrixRow{name: "/run wiped", watchdog: true, do: func() func() {
			must(c.t, os.Remove(c.socket))
			return c.start
		}},
		matrixRow{name: "the only estimator floods", short: true, do: c.estimators("#!/bin/sh\nexec yes flood\n")},
		matrixRow{name: "the only estimator dies until it is put aside", do: c.estimators("#!/bin/sh\nexit 3\n")},
		matrixRow{name: "out of memory", short: true, do: c.outOfMemory},
	)
}

// estimators starts the daemon anew with a plugin as its only estimator.
func (c *chaos) estimators(script string) func() func() {
	return func() func() {
		sound, err := os.ReadFile(c.config)
		must(c.t, err)
		plugin := filepath.Join(c.dir, "plugin")
		must(c.t, os.WriteFile(plugin, []byte(script), 0o755))
		must(c.t, os.WriteFile(c.config, append(sound, fmt.Sprintf("[[estimator]]\nname = \"other\"\ncommand = [%q]\ntimeout = \"500ms\"\n", plugin)...), 0o600))
		c.kill()
		c.start()
		c.answering()
		return func() {
			// Jobs whose bundle it is asked about come in their turn.
			time.Sleep(3 * time.Second)
			must(c.t, os.WriteFile(c.config, sound, 0o600))
			c.kill()
			c.start()
		}
	}
}

// outOfMemory puts the daemon into a memory cgroup that is too small for what it then gets: connections with most of a large submission each. The kernel ends it, or it does with less.
func (c *chaos) outOfMemory() func() {
	group := filepath.Join("/sys/fs/cgroup/memory", "gresize-matrix-"+strconv.Itoa(os.Getpid()))
	limit := "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, limit = filepath.Join("/sys/fs/cgroup", filepath.Base(group)), "memory.max"
	}
	pid := c.signal(0)
	limited := os.Mkdir(group, 0o755) == nil && os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) == nil &&
		os.WriteFile(filepath.Join(group, limit), []byte("16M"), 0) == nil
	if !limited {
		// No cgroup can be made here: the address space stands for it, and Go ends the process.
		low := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
		must(c.t, unix.Prlimit(pid, unix.RLIMIT_AS, &low, nil))
	}
	var held []net.Conn
	most := make([]byte, 1900<<10)
	copy(most, "GRSZ\x00\x01\x00\x01\x00\x1f\x00\x00")
	for range 64 {
		if connection, err := net.DialTimeout("unix", c.socket, 50*time.Millisecond); err == nil {
			_ = connection.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = connection.Write(most)
			held = append(held, connection)
		}
	}
	ended := false
	c.mu.Lock()
	exited := c.exited
	c.mu.Unlock()
	select {
	case <-exited:
		ended = true
	case <-time.After(2 * time.Second):
	}
	c.t.Logf("out of memory: by a cgroup: %v, the daemon was ended: %v", limited, ended)
	return func() {
		for _, connection := range held {
			connection.Close()
		}
		if !ended {
			c.signal(syscall.SIGKILL)
			<-exited
		}
		c.start()
		if limited {
			if err := os.Remove(group); err != nil {
				c.t.Errorf("the cgroup is left: %v", err)
			}
		}
	}
}
