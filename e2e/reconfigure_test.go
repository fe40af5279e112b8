package e2e

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/slurm/minicluster"
)

// TestReconfigures has slurmctld read its configuration again and again, with the plugin in it and jobs submitted meanwhile: it keeps no descriptor, and grows no more than a slurmctld
// without the plugin does, which grows by itself.
func TestReconfigures(t *testing.T) {
	t.Parallel()
	times, restarts := 40, 1
	if text := os.Getenv("RECONFIGURES"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		times = n
	}
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
	all := map[uint32]int64{}
	for range 20 {
		reconfigure()
		maps.Copy(all, submit(1).ids)
	}
	pid := c.real.ControllerPID()
	memory, descriptors := ofProcess(t, pid)
	began := time.Now()
	for i := range times {
		reconfigure()
		if i%20 == 19 {
			maps.Copy(all, submit(2).ids)
		}
	}
	took := time.Since(began)
	memoryAfter, descriptorsAfter := ofProcess(t, pid)
	// Connections of the last submissions may be open yet.
	for until := time.Now().Add(30 * time.Second); descriptorsAfter > descriptors+4 && time.Now().Before(until); {
		time.Sleep(200 * time.Millisecond)
		_, descriptorsAfter = ofProcess(t, pid)
	}
	alone := growsAlone(t, times)
	t.Logf("%d reconfigures in %s: slurmctld %.1f to %.1f MiB, %d to %d descriptors; one without the plugin and without jobs grows by %.1f MiB", times, took.Round(time.Second), memory, memoryAfter, descriptors, descriptorsAfter, alone)
	if c.real.ControllerPID() != pid {
		t.Error("slurmctld has ended meanwhile")
	}
	// A slurmctld with jobs has up to 16 MiB more after its first seconds, whatever comes later: what leaks at each reconfigure is judged in the long form only.
	const settling = 20
	if descriptorsAfter > descriptors+4 || memoryAfter-memory > alone+settling {
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
		maps.Copy(all, s.ids)
		if len(s.ids) != 50 {
			t.Errorf("%d of 50 submissions during a restart got an id; refused: %v", len(s.ids), s.refused)
		}
	}
	t.Logf("%d submissions, %d restarts with 50 submissions each: slurmctld has started all; slurmd never began %d", len(all), restarts, c.allStarted(all, 5*time.Minute))
}

// growsAlone is by how much a slurmctld without a plugin grows when it reads its configuration so many times, after it has warmed up.
func growsAlone(t *testing.T, times int) (grownMiB float64) {
	t.Helper()
	cluster := minicluster.ForTest(t, minicluster.Default())
	var before float64
	for i := range times + 20 {
		if i == 20 {
			before, _ = ofProcess(t, cluster.ControllerPID())
		}
		if out, err := cluster.Run(t.Context(), "root", "scontrol", "reconfigure"); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
	after, _ := ofProcess(t, cluster.ControllerPID())
	return after - before
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

// TestPluginsShareOfGrowth compares, several times, how much a slurmctld grows by reading its configuration with the plugin in it, on and off, and without it. Nothing is submitted.
func TestPluginsShareOfGrowth(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") != "1" {
		t.Skip("run by make nightly: TestReconfigures is the part for every change")
	}
	const warmUp, times, rounds = 20, 250, 5
	build, err := buildFake()
	must(t, err)
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Dir(dir)} { // SlurmUser reads it
		must(t, os.Chmod(path, 0o755))
	}
	confs := map[string]string{"on": "socket = " + dir + "/none.sock\n", "off": "enabled = no\nsocket = " + dir + "/none.sock\n"}
	lanes := []string{"none", "off", "on"}
	grown := map[string][]float64{}
	for range rounds {
		for _, i := range rand.Perm(len(lanes)) {
			options := minicluster.Default()
			if text, ok := confs[lanes[i]]; ok {
				options.Plugin, options.PluginConf = filepath.Join(build, "plugin", "job_submit_gresize.so"), filepath.Join(dir, lanes[i]+".conf")
				must(t, os.WriteFile(options.PluginConf, []byte(text), 0o644))
			}
			cluster := minicluster.ForTest(t, options)
			var before float64
			for n := range warmUp + times {
				if n == warmUp {
					before, _ = ofProcess(t, cluster.ControllerPID())
				}
				if out, err := cluster.Run(t.Context(), "root", "scontrol", "reconfigure"); err != nil {
					t.Errorf("%v %s", err, out)
				}
			}
			after, _ := ofProcess(t, cluster.ControllerPID())
			grown[lanes[i]] = append(grown[lanes[i]], after-before)
			cluster.Stop()
		}
	}
	middle := func(lane string) float64 {
		sorted := slices.Sorted(slices.Values(grown[lane]))
		return sorted[len(sorted)/2]
	}
	t.Logf("%d reconfigures, %d times each, MiB: without the plugin %.2f (middle %.2f), off %.2f (middle %.2f), on %.2f (middle %.2f)",
		times, rounds, grown["none"], middle("none"), grown["off"], middle("off"), grown["on"], middle("on"))
	for _, lane := range lanes[1:] {
		if more := middle(lane) - middle("none"); more > 2 {
			t.Errorf("%s: grows by %.2f MiB more", lane, more)
		}
	}
}
