package jobs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/slurm/client"
)

// shiftLog moves all times in the log, as they look to a daemon that starts after the clock was set by as much in the other direction.
func shiftLog(t *testing.T, b *bench, by time.Duration) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", `
import sqlite3, sys
d = sqlite3.connect(sys.argv[1])
by = int(sys.argv[2])
for table, columns in (("jobs", ("submitted_at", "hold_until", "updated_at")), ("events", ("at",))):
    d.execute("UPDATE %s SET %s" % (table, ", ".join("%s = iif(%s > 0, %s + %d, %s)" % (c, c, c, by, c) for c in columns)))
d.commit()`, filepath.Join(b.dir, "db"), strconv.FormatInt(by.Milliseconds(), 10)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestTheClockIsSet: the clock of the machine goes back or forward by an hour while the daemon is away. Back: the rows lie in the future, and so does the job's begin time, which Slurm keeps by the same
// clock; the next life goes on and lets the job go when it knows. Forward: the hold is over, and the job runs as it was asked for.
func TestTheClockIsSet(t *testing.T) {
	for name, c := range map[string]struct {
		by          time.Duration
		state, code string
	}{
		"an hour back":        {time.Hour, StateVerified, decision.CodeRunning},
		"a minute back":       {time.Minute, StateVerified, decision.CodeRunning},
		"an hour forward":     {-time.Hour, StateAbandoned, decision.CodeHoldPassed},
		"two minutes forward": {-2 * time.Minute, StateAbandoned, decision.CodeHoldPassed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Enforce, time.Minute)
			id, token := b.submit(sample())
			b.until("the probe", func() bool { return b.story(token).Job.State == StateProbing })
			config := b.manager.config
			config.Settings = *b.manager.settings()
			b.manager.Close()
			shiftLog(t, b, c.by)
			b.slurm.change(id, func(j *client.Job) { j.EligibleAt = j.EligibleAt.Add(c.by) })
			b.manager = New(config)
			if err := b.manager.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			if c.by < 0 {
				b.ends(token, c.state, c.code)
				if len(b.slurm.updates) != 0 {
					t.Errorf("changed after its hold: %q", b.slurm.updates)
				}
				return
			}
			b.report(1)
			b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
			b.slurm.change(id, func(j *client.Job) { j.State, j.NodeList = "RUNNING", "gpu1" })
			b.ends(token, c.state, c.code)
			if want := []string{fmt.Sprintf("1001 %d [{Features gpu12g}]", id)}; !slices.Equal(b.slurm.updates, want) {
				t.Errorf("updates %q, want %q", b.slurm.updates, want)
			}
			// What is started next does not wait for the hour.
			next, again := b.submit(sample())
			b.report(2)
			b.until("the next update", func() bool { return b.story(again).Job.State == StateUpdated })
			if got := b.story(again).Job.SlurmJobID; got != next {
				t.Errorf("job %d, want %d", got, next)
			}
		})
	}
}

// TestAnArrayOfTenThousand: three tasks are tried and one update changes all; that its tasks have ten thousand records by then slows no answer.
func TestAnArrayOfTenThousand(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.manager.config.Estimator = byTask{"0": 2 * gib, "5000": 3 * gib, "4999": 3 * gib, "9999": 4 * gib}
	b.change(func(s *Settings) { s.Arrays = true })
	id, token := b.submit(arrayOf("0-9999%100"))
	for n := 1; n <= 3; n++ {
		b.reportTask(n)
	}
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	b.slurm.change(id, func(j *client.Job) { j.ArrayID = id })
	whole, err := b.slurm.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for task := range 10000 {
		j := whole
		if task < 100 {
			j.State, j.NodeList = "RUNNING", "gpu1"
		}
		b.slurm.add(j)
	}
	began, worst := time.Now(), time.Duration(0)
	for time.Since(began) < time.Second {
		at := time.Now()
		b.manager.Answer(sample())
		worst = max(worst, time.Since(at))
		time.Sleep(20 * time.Millisecond)
	}
	b.ends(token, StateVerified, decision.CodeRunning)
	b.slurm.mu.Lock()
	updates := slices.Clone(b.slurm.updates)
	b.slurm.mu.Unlock()
	if want := fmt.Sprintf("1001 %d [{Features gpu12g}]", id); len(updates) != 1 || updates[0] != want {
		t.Errorf("updates %q, want one, %q", updates, want)
	}
	t.Logf("the slowest answer meanwhile took %s", worst)
	if worst > 200*time.Millisecond {
		t.Errorf("an answer took %s", worst)
	}
}
