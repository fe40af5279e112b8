package e2e

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestReconfigures has slurmctld read its configuration again and again, with the plugin in it and jobs submitted meanwhile: it keeps no descriptor, and grows no more than it does
// once it has warmed up.
func TestReconfigures(t *testing.T) {
	t.Parallel()
	times, restarts := 40, 1
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		times, restarts = 1000, 10
	}
	c := newChaosWith(t, &history{out: io.Discard}, "shadow", 1, loadCluster)
	c.start()
	c.answering()
	submit := func(n int) *sent {
		s := &sent{ids: map[uint32]int64{}}
		c.submitThroughSlurm(s, n, 0)()
		if len(s.refused) > 0 {
			t.Errorf("refused: %v", s.refused)
		}
		return s
	}
	reconfigure := func() {
		if out, err := c.real.Run(t.Context(), "root", "scontrol", "reconfigure"); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
	all := 0
	for range 20 {
		reconfigure()
		all += len(submit(1).ids)
	}
	pid := c.real.ControllerPID()
	memory, descriptors := ofProcess(t, pid)
	began := time.Now()
	for i := range times {
		reconfigure()
		if i%20 == 19 {
			all += len(submit(2).ids)
		}
	}
	took := time.Since(began)
	memoryAfter, descriptorsAfter := ofProcess(t, pid)
	t.Logf("%d reconfigures in %s: slurmctld %.1f to %.1f MiB, %d to %d descriptors", times, took.Round(time.Second), memory, memoryAfter, descriptors, descriptorsAfter)
	if c.real.ControllerPID() != pid {
		t.Error("slurmctld has ended meanwhile")
	}
	// slurmctld itself takes some kilobytes for each job that it keeps.
	if descriptorsAfter > descriptors+4 || memoryAfter > memory+8 {
		t.Error("something has grown")
	}
	for range restarts {
		s := &sent{ids: map[uint32]int64{}}
		finish := c.submitThroughSlurm(s, 50, 50)
		time.Sleep(200 * time.Millisecond)
		if err := c.real.RestartController(t.Context()); err != nil {
			t.Fatal(err)
		}
		finish()
		all += len(s.ids)
		if len(s.ids) != 50 {
			t.Errorf("%d of 50 submissions during a restart got an id; refused: %v", len(s.ids), s.refused)
		}
	}
	waitUntil(t, time.Minute, "every job to have run", func() bool { return len(c.readSlurm().ended) >= all })
	t.Logf("%d submissions, %d restarts with 50 submissions each: none is lost", all, restarts)
}

// ofProcess is the memory in MiB and the number of descriptors.
func ofProcess(t *testing.T, pid int) (memoryMiB float64, descriptors int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "VmRSS:" {
			n, _ := strconv.Atoi(words[1])
			memoryMiB = float64(n) / 1024
		}
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return memoryMiB, len(entries)
}
