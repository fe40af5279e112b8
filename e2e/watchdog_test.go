package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestStuckDaemonIsRestarted plays systemd with its watchdog: each part of the daemon gets stuck in turn, the watchdog hears no more that all is well, the daemon is ended
// as systemd does it, and the next life goes on. What is only slow is left alone.
func TestStuckDaemonIsRestarted(t *testing.T) {
	t.Parallel()
	watchdog, nightly := 6*time.Second, os.Getenv("GRESIZE_NIGHTLY") == "1"
	if nightly {
		watchdog = 15 * time.Second // that of gresized.service
	}
	// A part is stuck 5 s after its last sign of life.
	limit := watchdog + 5*time.Second
	for name, place := range map[string]string{
		"the loop over the jobs":             "look",
		"an answer to slurmctld":             "answer",
		"the writer of submissions":          "held:written",
		"the work on a job, before a probe":  "probing:written",
		"the work on a job, after an update": "updating:acted",
	} {
		if !nightly && place != "look" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newWatched(t, watchdog, place)
			began := time.Now()
			c.submit(rand.New(rand.NewPCG(1, 1)), false)
			for c.aliveFor(watchdog) {
				if time.Since(began) > 2*limit {
					t.Fatal("the daemon is stuck and says that it is alive")
				}
				time.Sleep(20 * time.Millisecond)
			}
			took := time.Since(began)
			c.mu.Lock()
			// Go writes down where each goroutine stands.
			_ = c.daemon.Process.Signal(syscall.SIGABRT)
			exited := c.exited
			c.env = nil
			c.mu.Unlock()
			<-exited
			t.Logf("%s: ended %.1f s after it got stuck, with WatchdogSec=%d", place, took.Seconds(), int(watchdog.Seconds()))
			// A held job takes a moment to get to where it gets stuck.
			if took > limit+3*time.Second {
				t.Errorf("%.1f s, want %s", took.Seconds(), limit)
			}
			c.start()
			c.answering()
			waitUntil(t, chaosHold+10*time.Second, "the job to start", c.cluster.settled)
			waitUntil(t, 2*chaosHold, "every story to end", func() bool { return c.unfinished() == 0 })
		})
	}
	for name, mood := range map[string]string{"scontrol hangs": "hang", "scontrol is slow": "slow", "scontrol refuses": "refuse"} {
		if !nightly && mood != "hang" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newWatched(t, watchdog, "")
			c.cluster.set(&c.cluster.commands, mood)
			random := rand.New(rand.NewPCG(1, 1))
			for range 3 {
				c.submit(random, false)
			}
			for end := time.Now().Add(watchdog + 6*time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if !c.aliveFor(watchdog) {
					t.Fatalf("a daemon that waits for Slurm was taken to be stuck:\n%s", c.lastWords())
				}
			}
		})
	}
}

// newWatched is a daemon under a watchdog that gets stuck at a place.
func newWatched(t *testing.T, watchdog time.Duration, place string) *chaos {
	t.Helper()
	c := newChaos(t, &history{out: io.Discard}, "enforce", 1)
	c.env = []string{fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds())}
	if place != "" {
		c.env = append(c.env, "GRESIZE_FAILPOINT="+place+"=hang")
	}
	c.start()
	waitUntil(t, 20*time.Second, "READY=1", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.ready > 0 })
	c.mu.Lock()
	c.pinged = time.Now() // systemd counts from here
	c.mu.Unlock()
	return c
}

// aliveFor says whether the watchdog was told within its time.
func (c *chaos) aliveFor(watchdog time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.pinged) < watchdog
}
