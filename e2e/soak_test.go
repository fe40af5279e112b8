package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	shortSoak     = 16 * time.Second
	nightlySoak   = 30 * time.Minute
	soakPerSecond = 3
	// soakMemoryMiB, soakDescriptors are what the last third of a soak may have more than the first: Go's collector lets the heap breathe.
	soakMemoryMiB, soakDescriptors = 6, 4
)

// measured is one look at the daemon.
type measured struct {
	memoryMiB, logMiB                   float64
	descriptors, threads, open, answers int
	p50, p99                            time.Duration
	cpu                                 time.Duration
}

// TestSoak lets the daemon work without a fault and prints what it takes, in equal intervals: memory, descriptors, threads, CPU, the size of the log and the time of an
// answer. Between the first third and the last nothing of it may have grown but the log. SOAK_SECONDS makes it longer.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := shortSoak
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		length = nightlySoak
	}
	if text := os.Getenv("SOAK_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		length = time.Duration(n) * time.Second
	}
	c := newChaos(t, &history{out: io.Discard}, "enforce", 1)
	c.start()
	c.answering()
	var mu sync.Mutex
	var answers []time.Duration
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var load sync.WaitGroup
	for worker := range soakPerSecond {
		random := rand.New(rand.NewPCG(7, uint64(worker)))
		load.Go(func() {
			for ctx.Err() == nil {
				took := c.submit(random, false)
				mu.Lock()
				answers = append(answers, took)
				mu.Unlock()
				time.Sleep(time.Second)
			}
		})
	}
	interval := min(time.Minute, length/12)
	var all []measured
	for begin, next := time.Now(), interval; next <= length; next += interval {
		time.Sleep(time.Until(begin.Add(next)))
		m := c.measure()
		mu.Lock()
		slices.Sort(answers)
		if n := len(answers); n > 0 {
			m.answers, m.p50, m.p99 = n, answers[n/2], answers[(n*99)/100]
		}
		answers = nil
		mu.Unlock()
		all = append(all, m)
		t.Logf("%5.1f min: %5.1f MiB, %3d descriptors, %2d threads, CPU %.1f s, log %.1f MiB, %3d open jobs, %3d answers, p50 %s, p99 %s", next.Minutes(), m.memoryMiB, m.descriptors, m.threads,
			m.cpu.Seconds(), m.logMiB, m.open, m.answers, m.p50.Round(10*time.Microsecond), m.p99.Round(10*time.Microsecond))
	}
	load.Wait()
	waitUntil(t, chaosHold+20*time.Second, "every job to start", c.cluster.settled)
	waitUntil(t, 2*chaosHold+20*time.Second, "every story to end", func() bool { return c.unfinished() == 0 })

	third := len(all) / 3
	first, last := all[1:1+third], all[len(all)-third:]
	middle := func(of []measured, value func(measured) float64) float64 {
		values := make([]float64, len(of))
		for i, m := range of {
			values[i] = value(m)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	grown := func(value func(measured) float64) (from, to float64) {
		return middle(first, value), middle(last, value)
	}
	memory := func(m measured) float64 { return m.memoryMiB }
	descriptors := func(m measured) float64 { return float64(m.descriptors) }
	p50 := func(m measured) float64 { return float64(m.p50.Microseconds()) }
	from, to := grown(memory)
	fdFrom, fdTo := grown(descriptors)
	usFrom, usTo := grown(p50)
	t.Logf("first third to last: memory %.1f to %.1f MiB, descriptors %.0f to %.0f, p50 of an answer %.0f to %.0f us", from, to, fdFrom, fdTo, usFrom, usTo)
	if length < nightlySoak {
		return // too short to tell growth from a beginning; what was measured is above
	}
	if to > from+soakMemoryMiB || fdTo > fdFrom+soakDescriptors || usTo > 3*usFrom+1000 {
		t.Error("something has grown")
	}
}

// measure looks at the daemon from outside.
func (c *chaos) measure() (m measured) {
	c.t.Helper()
	pid := c.signal(0)
	m.memoryMiB, m.descriptors = ofProcess(c.t, pid)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	must(c.t, err)
	m.threads = len(tasks)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(c.t, err)
	if words := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(words) > 13 {
		user, _ := strconv.Atoi(words[11])
		system, _ := strconv.Atoi(words[12])
		m.cpu = time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
	}
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(filepath.Join(c.state(), "log.db"+suffix)); err == nil {
			m.logMiB += float64(info.Size()) / (1 << 20)
		}
	}
	m.open = c.unfinished()
	return m
}
