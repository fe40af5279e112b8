package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/check"
	"github.com/gresize/gresize/slurm/client"
)

// TestUpgradesUnderLoad ends the daemon in order and starts its program anew, as an upgrade does, and has it read its configuration again, while submissions come in: no
// decision is lost, no job is touched twice, and the account of no life has a gap.
func TestUpgradesUnderLoad(t *testing.T) {
	t.Parallel()
	upgrades := 8
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		upgrades = 200
	}
	path := filepath.Join(t.TempDir(), "history.jsonl")
	out, err := os.Create(path)
	must(t, err)
	defer out.Close()
	c := newChaos(t, &history{out: out}, "enforce", 1)
	c.start()
	c.answering()
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for worker := range 4 {
		random := rand.New(rand.NewPCG(3, uint64(worker)))
		load.Go(func() {
			for ctx.Err() == nil {
				c.submit(random, false)
				time.Sleep(time.Duration(50+random.IntN(150)) * time.Millisecond)
			}
		})
	}
	for range upgrades {
		time.Sleep(time.Duration(200+c.random.IntN(1000)) * time.Millisecond)
		c.signal(syscall.SIGHUP)
		time.Sleep(time.Duration(c.random.IntN(200)) * time.Millisecond)
		began := time.Now()
		c.signal(syscall.SIGTERM)
		c.mu.Lock()
		exited := c.exited
		c.mu.Unlock()
		<-exited
		c.h.note(check.Line{Kind: "exit", TookMillis: time.Since(began).Milliseconds()})
		c.start()
		c.answering()
	}
	time.Sleep(time.Second)
	cancel()
	load.Wait()
	waitUntil(t, chaosHold+20*time.Second, "every job to start", c.cluster.settled)
	waitUntil(t, 2*chaosHold+20*time.Second, "every story to end", func() bool { return c.unfinished() == 0 })
	c.stopGently()
	c.rows()
	must(t, c.h.err)
	_, err = out.Seek(0, io.SeekStart)
	must(t, err)
	summary, broken, err := check.History(out, check.Played)
	must(t, err)
	missing := c.missing()
	t.Logf("%d upgrades and reloads: %+v; %d answers without a row; %d decisions come out again as they were", upgrades, summary, missing, c.replayed())
	for _, b := range broken {
		t.Error(b)
	}
	if missing != 0 || summary.Lost != 0 || summary.Changed == 0 || summary.Held < summary.Submitted/4 {
		t.Errorf("%+v, %d missing", summary, missing)
	}
}

// TestManyHeldJobs holds many jobs of a real slurmctld at once, for which there are far too few probes, and prints what the daemon and slurmctld take while they do: each job starts as it
// was asked for when its hold is over.
func TestManyHeldJobs(t *testing.T) {
	t.Parallel()
	jobs, hold := 150, 25*time.Second
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		jobs, hold = 2000, 150*time.Second
	}
	c := newChaosWith(t, &history{out: io.Discard}, "enforce", 1, loadCluster)
	text, err := os.ReadFile(c.config)
	must(t, err)
	must(t, os.WriteFile(c.config, []byte(strings.Replace(string(text), fmt.Sprintf("hold = %q", loadHold), fmt.Sprintf("hold = %q", hold), 1)), 0o644))
	c.cluster.set(&c.cluster.probes, "die") // and the place of each is free again after a moment
	c.start()
	c.answering()
	s := &sent{ids: map[uint32]int64{}, seen: map[uint32]seenJob{}}
	began := time.Now()
	finish := c.submitThroughSlurm(s, jobs, 0)
	finish()
	submitted := time.Since(began)
	if len(s.ids) != jobs || len(s.refused) > 0 {
		t.Fatalf("%d of %d jobs; refused: %v", len(s.ids), jobs, s.refused)
	}
	t.Logf("%d submissions in %s, %.0f a second, one after another: p50 %s, p99 %s", jobs, submitted.Round(100*time.Millisecond), float64(jobs)/submitted.Seconds(), s.quantile(.5), s.quantile(.99))
	waitUntil(t, 30*time.Second, "the rows", func() bool { return c.lastLife().Recorded == c.lastLife().Answered || c.unfinished() > 0 })
	// While they are held.
	before, from := c.measure(), time.Now()
	look := time.Now()
	queued := 0
	must(t, client.New(client.Config{Scontrol: filepath.Join(c.dir, "scontrol"), ConfPath: c.real.Conf()}).EachJob(t.Context(), func(client.Job) { queued++ }))
	looked := time.Since(look)
	more := &sent{ids: map[uint32]int64{}}
	c.submitThroughSlurm(more, 20, 5)()
	after := c.measure()
	controller, descriptors := ofProcess(t, c.real.ControllerPID())
	t.Logf("with %d open jobs: %.1f MiB, %d descriptors, %.0f %% of a CPU; slurmctld %.1f MiB, %d descriptors; a look at the queue of %d jobs %s; 20 more submissions p50 %s, p99 %s", before.open, after.memoryMiB, after.descriptors,
		100*(after.cpu-before.cpu).Seconds()/time.Since(from).Seconds(), controller, descriptors, queued, looked.Round(time.Millisecond), more.quantile(.5), more.quantile(.99))
	if after.memoryMiB > 200 || after.descriptors > 1024 {
		t.Errorf("%.1f MiB, %d descriptors", after.memoryMiB, after.descriptors)
	}
	waitUntil(t, hold+3*time.Minute, "every job to run", func() bool {
		time.Sleep(time.Second)
		return len(c.readSlurm().ended) >= jobs+20
	})
	t.Logf("all %d jobs have run %s after the first was submitted, with a hold of %s", jobs+20, time.Since(began).Round(time.Second), hold)
	waitUntil(t, 2*time.Minute, "every story to end", func() bool { return c.unfinished() == 0 })
}
