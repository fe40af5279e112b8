package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/check"
	"github.com/gresize/gresize/slurm/minicluster"
)

// controllersHold is long enough for a job that was held on a host that is lost to be decided on the other.
const controllersHold = 50 * time.Second

// twoHosts are the hosts of a primary and a backup slurmctld, each with a gresized beside it that its plugin asks.
type twoHosts struct {
	t    *testing.T
	a, b *chaos
	sent *sent
}

// newTwoHosts starts both controllers and no daemon. The log of both is one file on a disk that both reach, and the address of probes goes with it.
func newTwoHosts(t *testing.T, h *history) *twoHosts {
	t.Helper()
	two := &twoHosts{t: t, sent: &sent{ids: map[uint32]int64{}, seen: map[uint32]seenJob{}}}
	two.a = newChaosWith(t, h, "enforce", 1, func(a *chaos) *minicluster.Cluster {
		two.b = &chaos{t: t, h: h, mode: a.mode, dir: filepath.Join(a.dir, "b"), random: a.random}
		two.b.socket, two.b.config = filepath.Join(two.b.dir, "submit"), filepath.Join(two.b.dir, "gresize.toml")
		must(t, os.Mkdir(two.b.dir, 0o755))
		cluster := a.loadClusterOf(minicluster.Options{Backup: true, BackupPluginConf: two.b.pluginConf(), Settings: map[string]string{"SlurmctldTimeout": "6"}})
		a.hold = controllersHold
		return cluster
	})
	a, b := two.a, two.b
	a.cluster.next = 1 << 27 // no probe has the id of a job
	b.cluster, b.hold, b.real, b.as, b.stateDir = a.cluster, a.hold, a.real, a.as, a.stateDir
	must(t, os.Chown(b.dir, int(b.as.Uid), int(b.as.Gid)))
	for _, name := range []string{"gresized", "scontrol", "squeue", "scancel", "launch"} {
		must(t, os.Symlink(filepath.Join(a.dir, name), filepath.Join(b.dir, name)))
	}
	b.listen()
	b.configure("127.0.0.2")
	a.rewrite("max_running = 16", "max_running = 3") // and so many jobs wait when the host is lost
	b.rewrite("max_running = 16", "max_running = 3")
	b.rewrite(b.probes, a.probes)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last words of the first:\n%s\nof the second:\n%s", a.lastWords(), b.lastWords())
		}
		b.kill()
		b.notify.Close()
	})
	return two
}

// rewrite changes the configuration.
func (c *chaos) rewrite(old, new string) {
	c.t.Helper()
	text, err := os.ReadFile(c.config)
	must(c.t, err)
	if !strings.Contains(string(text), old) {
		c.t.Fatalf("%s does not have %q", c.config, old)
	}
	must(c.t, os.WriteFile(c.config, []byte(strings.Replace(string(text), old, new, 1)), 0o644))
}

// submit submits jobs at five a second, and the caller waits for their end.
func (two *twoHosts) submit(jobs int) (finish func()) {
	return two.a.submitThroughSlurm(two.sent, jobs, 5)
}

// saved waits until slurmctld has written down what was submitted until now, which it does within five seconds: what it has not, another slurmctld does not know.
func (two *twoHosts) saved() {
	two.t.Helper()
	from := time.Now()
	waitUntil(two.t, 30*time.Second, "slurmctld to write its state", func() bool {
		info, err := os.Stat(filepath.Join(two.a.real.Dir(), "state", "job_state"))
		return err == nil && info.ModTime().After(from)
	})
}

// inCharge waits until the slurmctld of a host runs and one of the two answers: one that stands by does not.
func (two *twoHosts) inCharge(pid func() int) {
	two.t.Helper()
	waitUntil(two.t, time.Minute, "the other slurmctld to take over", func() bool {
		ctx, cancel := context.WithTimeout(two.t.Context(), 3*time.Second)
		defer cancel()
		_, err := two.a.real.Run(ctx, "root", "squeue", "--noheader")
		return err == nil && pid() != 0
	})
}

// during notes a fault.
func (two *twoHosts) during(name string, do func()) {
	two.a.h.note(check.Line{Kind: "fault", Name: name, On: true})
	do()
	two.a.h.note(check.Line{Kind: "fault", Name: name})
}

// judge has the checker judge what slurmctld and the logs tell of every job.
func (two *twoHosts) judge(lines *lockedBuffer) check.Summary {
	two.t.Helper()
	all := decodeHistory(two.t, lines.Bytes())
	all = append(all, two.a.slurmHistory(two.sent, all)...)
	slices.SortStableFunc(all, func(x, y check.Line) int {
		return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(kindOrder[x.Kind], kindOrder[y.Kind]))
	})
	var text bytes.Buffer
	for _, l := range all {
		must(two.t, json.NewEncoder(&text).Encode(l))
	}
	summary, broken, err := check.History(&text, check.Real)
	must(two.t, err)
	for _, b := range broken {
		two.t.Error(b)
	}
	return summary
}

// settled waits until each job has run and each story of the logs has ended.
func (two *twoHosts) settled(logs ...*chaos) {
	two.t.Helper()
	waitUntil(two.t, 2*controllersHold+time.Minute, "every job to run", func() bool {
		time.Sleep(time.Second)
		ended := two.a.readSlurm().ended
		for id := range two.sent.ids {
			if !ended[id] {
				return false
			}
		}
		return true
	})
	for _, c := range logs {
		waitUntil(two.t, 2*controllersHold+time.Minute, "every story to end", func() bool { time.Sleep(time.Second); return c.unfinished() == 0 })
	}
}

// endsOf counts by their end the stories of a log whose jobs were submitted after a moment.
func (c *chaos) endsOf(from time.Time) map[string]int {
	c.t.Helper()
	log, err := c.open()
	must(c.t, err)
	defer log.Close()
	ends := map[string]int{}
	must(c.t, log.Each(context.Background(), decisionlog.Filter{}, func(l decisionlog.Line) error {
		if l.Job.SubmittedAt.After(from) {
			ends[l.Job.State]++
		}
		return nil
	}))
	return ends
}

// TestTwoControllers loses the host of the primary slurmctld, with the gresized beside it, while jobs are held, and has the other host go on with the same log; then the first is back; and
// then each host has a log of its own while the controller changes. Every job starts, none is touched twice or by whom it is not known to, and what is submitted meanwhile is accepted.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	if os.Getenv("GRESIZE_NIGHTLY") != "1" {
		t.Skip("run by make nightly: TestKilledInEveryState and TestLife are the parts for every change")
	}
	var lines lockedBuffer
	h := &history{out: &lines}
	two := newTwoHosts(t, h)
	a, b := two.a, two.b
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var looks sync.WaitGroup
	looks.Go(func() { a.look(ctx, two.sent) })

	// The host of the primary is lost: slurmctld and gresized at once.
	a.start()
	a.answering()
	two.submit(40)()
	two.saved()
	open := a.unfinished()
	lost := time.Now()
	var finish func()
	two.during(slurmIsLost, func() {
		must(t, a.real.KillController())
		a.kill()
		finish = two.submit(30) // meanwhile, and afterwards
		b.start()
		b.answering()
		two.inCharge(a.real.BackupPID)
	})
	t.Logf("%d of 40 jobs were open when the host was lost; another slurmctld was in charge %s later", open, time.Since(lost).Round(100*time.Millisecond))
	finish()
	two.settled(b)
	t.Logf("the host is lost, its log moved: 40 before and 30 meanwhile, %v; the longest submission took %s", b.endsOf(time.Time{}), two.sent.quantile(1))
	if open < 10 {
		t.Errorf("%d jobs were open when the host was lost: that proves little", open)
	}

	// It is back: the primary takes over at its start, and the log goes back.
	back := time.Now()
	finish = two.submit(30)
	time.Sleep(2 * time.Second)
	two.during(slurmRestarts, func() {
		must(t, a.real.StartController())
		b.stopGently()
		a.start()
		a.answering()
		two.inCharge(a.real.ControllerPID)
	})
	finish()
	two.settled(a)
	t.Logf("the host is back, and the log: 30 meanwhile, %v held", a.endsOf(back))

	// A log for each host, both daemons alive: jobs that one holds stay its own when the other's slurmctld takes over.
	own := time.Now()
	b.stateDir, b.stopping = filepath.Join(b.dir, "state"), false
	must(t, os.Mkdir(b.stateDir, 0o700))
	must(t, os.Chown(b.stateDir, int(b.as.Uid), int(b.as.Gid)))
	b.configure("127.0.0.2")
	b.start()
	b.answering()
	two.submit(20)()
	heldByA := a.unfinished()
	two.during(slurmRestarts, func() {
		if out, err := a.real.Run(t.Context(), "root", "scontrol", "takeover"); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		two.inCharge(a.real.BackupPID)
	})
	two.submit(20)()
	two.settled(a, b)
	t.Logf("a log for each: 20 before `scontrol takeover`, %d of them open then, %v; 20 after it, %v in the log of the second host; the first slurmctld runs: %v", heldByA, a.endsOf(own), b.endsOf(own), a.real.ControllerPID() != 0)
	if b.endsOf(own)["verified"] == 0 || a.endsOf(own)["verified"] == 0 {
		t.Error("one of the daemons changed nothing")
	}
	cancel()
	looks.Wait()
	a.lookOnce(t.Context(), two.sent)
	for _, c := range []*chaos{a, b} {
		c.stopGently()
		c.rows()
	}
	must(t, h.err)
	for _, line := range two.sent.refused {
		t.Errorf("a submission was refused: %s", line)
	}
	summary := two.judge(&lines)
	t.Logf("%+v; %d submissions were asked for again", summary, two.sent.again)
	if summary.Submitted != 140 || summary.Starts != 140 || len(two.sent.ids) != 140 {
		t.Errorf("140 jobs: %+v", summary)
	}
}
