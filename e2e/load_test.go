package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/e2e/check"
	"github.com/gresize/gresize/slurm/minicluster"
)

// What a run of submissions through a real slurmctld is like, where nobody asks for more.
const (
	loadJobs      = 120
	loadPerSecond = 10.0
	loadHold      = 30 * time.Second
	// nightlyLoadJobs is what P5 promises.
	nightlyLoadJobs = 10_000
	// loadJobAge is how long slurmctld keeps a job that has ended; each is looked at within that time.
	loadJobAge = 180 * time.Second
)

// TestSubmitsThroughSlurm submits jobs through a real slurmctld with the plugin in it, while gresized, its disk and slurmctld itself are tormented in an order that one seed makes,
// and has the checker judge what slurmctld wrote down of each job. Probes are played. LOAD_JOBS, LOAD_RATE and LOAD_SEED make another run.
func TestSubmitsThroughSlurm(t *testing.T) {
	t.Parallel()
	jobs, rate, seed := loadJobs, loadPerSecond, uint64(time.Now().UnixNano())
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		jobs = nightlyLoadJobs
	}
	var err error
	if text := os.Getenv("LOAD_JOBS"); text != "" {
		jobs, err = strconv.Atoi(text)
		must(t, err)
	}
	if text := os.Getenv("LOAD_RATE"); text != "" {
		rate, err = strconv.ParseFloat(text, 64)
		must(t, err)
	}
	if text := os.Getenv("LOAD_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("LOAD_SEED=%d LOAD_JOBS=%d LOAD_RATE=%g go test -v -timeout 3h -run TestSubmitsThroughSlurm ./e2e", seed, jobs, rate)
	var lines lockedBuffer
	h := &history{out: &lines}
	c := newChaosWith(t, h, "enforce", seed, loadCluster)
	c.cluster.next = 1 << 27 // no probe has the id of a job
	t.Cleanup(func() {
		if t.Failed() {
			if log, err := c.open(); err == nil {
				open, err := log.Unfinished(context.Background())
				t.Logf("%d stories are open (%v)", len(open), err)
				for _, s := range open[:min(len(open), 5)] {
					t.Logf("%d %s: %s, hold until %s", s.Job.SlurmJobID, s.Job.Token, states(s), s.Job.HoldUntil)
				}
			} else {
				t.Log(err)
			}
			t.Logf("the daemon's last words:\n%s", c.lastWords())
		}
	})
	began := time.Now()
	sent := c.load(jobs, rate)
	ended := c.allEnd(sent)
	t.Logf("%d jobs in %s: %d submissions were asked for again while the controller was away, the answer took %s at the middle, %s at 99 %%, %s at most", len(sent.ids), ended.Sub(began).Round(time.Second),
		sent.again, sent.quantile(0.5), sent.quantile(0.99), sent.quantile(1))
	for _, line := range sent.refused {
		t.Errorf("a submission was refused: %s", line)
	}
	c.stopGently()
	c.rows()
	must(t, h.err)

	all := decodeHistory(t, lines.Bytes())
	all = append(all, c.slurmHistory(sent, all)...)
	slices.SortStableFunc(all, func(a, b check.Line) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(kindOrder[a.Kind], kindOrder[b.Kind]))
	})
	var text bytes.Buffer
	for _, l := range all {
		must(t, json.NewEncoder(&text).Encode(l))
	}
	if path := os.Getenv("CHAOS_HISTORY"); path != "" {
		must(t, os.WriteFile(path, text.Bytes(), 0o600))
	}
	summary, broken, err := check.History(&text, check.Real)
	must(t, err)
	t.Logf("%+v; %d decisions come out again as they were", summary, c.replayed())
	for _, b := range broken {
		t.Error(b)
	}
	if summary.Submitted < jobs || summary.Starts < jobs || summary.Changed == 0 || summary.Faults == 0 {
		t.Errorf("the run proves nothing: %+v", summary)
	}
}

const (
	slurmRestarts = "slurmctld restarts"
	// slurmIsLost is the end of a slurmctld that had no time to write its state, until another one is in charge.
	slurmIsLost = "slurmctld is lost"
)

// slurmSaves is how long slurmctld may put off writing its state.
const slurmSaves = 6 * time.Second

// kindOrder is that of lines of one millisecond.
var kindOrder = map[string]int{"fault": -1, "submit": 0, "update": 1, "start": 2, "row": 3}

// lockedBuffer is a history in memory.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func decodeHistory(t *testing.T, data []byte) (all []check.Line) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(data)); ; {
		var l check.Line
		switch err := d.Decode(&l); err {
		case nil:
			all = append(all, l)
		case io.EOF:
			return all
		default:
			t.Fatal(err)
		}
	}
}

// loadCluster has nodes that Slurm believes to be large, so that no job waits for another, and forgets jobs that have ended.
func loadCluster(c *chaos) *minicluster.Cluster { return c.loadClusterOf(minicluster.Options{}) }

// loadClusterOf is loadCluster with the options that are given, of which Settings are further ones.
func (c *chaos) loadClusterOf(options minicluster.Options) *minicluster.Cluster {
	const plenty = 64
	plugin := filepath.Join(c.dir, "plugin")
	must(c.t, os.Mkdir(plugin, 0o755))
	cmd := exec.Command("make", "-s", "-C", "../slurm/plugin", "OUT="+plugin)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	must(c.t, os.Chmod(c.dir, 0o755))
	c.hold = loadHold
	options.Nodes = []minicluster.Node{
		{Name: "gpu1", CPUs: plenty, RealMemoryMiB: 1 << 20, GPUs: plenty, Features: []string{"gpu12g"}},
		{Name: "gpu2", CPUs: plenty, RealMemoryMiB: 1 << 20, GPUs: plenty, Features: []string{"gpu80g"}},
	}
	options.Plugin, options.PluginConf = filepath.Join(plugin, "job_submit_gresize.so"), c.pluginConf()
	settings := map[string]string{"MinJobAge": strconv.Itoa(int(loadJobAge.Seconds())), "MaxJobCount": "50000"}
	maps.Copy(settings, options.Settings)
	options.Settings = settings
	return minicluster.ForTest(c.t, options)
}

// pluginConf makes the configuration of a plugin that asks this daemon.
func (c *chaos) pluginConf() string {
	c.t.Helper()
	path := filepath.Join(c.dir, "plugin.conf")
	must(c.t, os.WriteFile(path, fmt.Appendf(nil, "socket = %s\ndeadline_ms = 250\n", c.socket), 0o644))
	return path
}

// runAsSlurm gives the state to SlurmUser, as whom the daemon runs, and puts Slurm's own commands where the played ones were.
func (c *chaos) runAsSlurm(state string) {
	c.t.Helper()
	who, err := user.Lookup(minicluster.DefaultSlurmUser)
	must(c.t, err)
	uid, err := strconv.Atoi(who.Uid)
	must(c.t, err)
	gid, err := strconv.Atoi(who.Gid)
	must(c.t, err)
	c.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	// The socket, too, is made by the daemon.
	for _, path := range []string{c.dir, state} {
		must(c.t, os.Chown(path, uid, gid))
	}
	for _, name := range []string{"scontrol", "squeue", "scancel"} {
		must(c.t, os.Remove(filepath.Join(c.dir, name)))
		program, err := exec.LookPath(name)
		must(c.t, err)
		must(c.t, os.Symlink(program, filepath.Join(c.dir, name)))
	}
}

// sent is what came of submissions.
type sent struct {
	ids     map[uint32]int64 // by id, when the job was asked for
	took    []time.Duration
	refused []string
	again   int
	// seen are the tokens and requests of the jobs, as slurmctld shows them.
	seen map[uint32]seenJob
}

type seenJob struct {
	uid             uint32
	token, features string
}

func (s *sent) quantile(q float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	slices.Sort(s.took)
	return s.took[int(q*float64(len(s.took)-1))].Round(10 * time.Microsecond)
}

// submitThroughSlurm has a program submit jobs as fast as slurmctld takes them, or at a rate. The caller gets a function that waits for its end and puts what came of it into s.
func (c *chaos) submitThroughSlurm(s *sent, jobs int, rate float64) (finish func()) {
	c.t.Helper()
	program := filepath.Join(c.dir, "submitter")
	if _, err := os.Stat(program); err != nil {
		buildSubmitter(c.t, program)
	}
	return runSubmitter(c.t, program, c.real, s, jobs, rate)
}

func buildSubmitter(t testing.TB, program string) {
	t.Helper()
	if out, err := exec.Command("cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, "submitter/submit.c", "-lslurm").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// runSubmitter is submitThroughSlurm for any cluster; further are the program's further words.
func runSubmitter(t testing.TB, program string, cluster *minicluster.Cluster, s *sent, jobs int, rate float64, further ...string) (finish func()) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	work, err := cluster.WorkDir(minicluster.DefaultUser)
	fail(err)
	cmd, err := cluster.Process(minicluster.DefaultUser, work, program, append([]string{strconv.Itoa(jobs), fmt.Sprint(rate), work, "gpu80g"}, further...)...)
	fail(err)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, cluster.Env()...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	fail(cmd.Start())
	return func() {
		t.Helper()
		fail(cmd.Wait())
		for lines := bufio.NewScanner(&said); lines.Scan(); {
			var id uint32
			var at, micros int64
			switch n, err := fmt.Sscan(lines.Text(), &id, &at, &micros); {
			case err == nil && n == 3:
				s.ids[id] = at
				s.took = append(s.took, time.Duration(micros)*time.Microsecond)
			case strings.HasPrefix(lines.Text(), "again "):
				s.again++
			default:
				s.refused = append(s.refused, lines.Text())
			}
		}
	}
}

// load submits jobs and makes faults meanwhile.
func (c *chaos) load(jobs int, rate float64) *sent {
	c.t.Helper()
	c.start()
	c.answering()
	s := &sent{ids: map[uint32]int64{}, seen: map[uint32]seenJob{}}
	finish, done := c.submitThroughSlurm(s, jobs, rate), make(chan struct{})
	go func() { finish(); close(done) }()
	ctx, cancel := context.WithCancel(c.t.Context())
	var looks sync.WaitGroup
	looks.Go(func() { c.look(ctx, s) })
	faults := c.realFaults()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
			continue
		case <-time.After(time.Duration(500+c.random.IntN(1500)) * time.Millisecond):
		}
		c.again()
		c.oneOf(faults)
	}
	c.again()
	cancel()
	looks.Wait()
	return s
}

// realFaults are those of every chaos that are not of the played slurmctld, and those of a real one.
func (c *chaos) realFaults() []fault {
	faults := slices.DeleteFunc(c.faults(), func(f fault) bool {
		return strings.HasPrefix(f.name, "scontrol ") || strings.HasPrefix(f.name, "answers ")
	})
	return append(faults,
		fault{slurmRestarts, func() func() {
			if err := c.real.RestartController(c.t.Context()); err != nil {
				c.t.Errorf("restart: %v", err)
			}
			return nil
		}},
		fault{"slurmctld is reconfigured", func() func() {
			_, _ = c.real.Run(c.t.Context(), "root", "scontrol", "reconfigure") // a busy one may not answer
			return nil
		}})
}

var recordWords = regexp.MustCompile(`(?m)^JobId=(\d+) JobName=load UserId=[^(]*\((\d+)\).* Features=(\S+) .* AdminComment=gresize:v1:(\S+)|^JobId=(\d+) JobName=load UserId=[^(]*\((\d+)\).* Features=(\S+) `)

// look notes the stamp and the request of each job while slurmctld knows it.
func (c *chaos) look(ctx context.Context, s *sent) {
	for {
		c.lookOnce(ctx, s)
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

func (c *chaos) lookOnce(ctx context.Context, s *sent) {
	out, err := c.real.Run(ctx, "root", "scontrol", "-o", "show", "job")
	if err != nil {
		return
	}
	for _, m := range recordWords.FindAllStringSubmatch(out, -1) {
		j, at := seenJob{token: m[4]}, 1
		if m[1] == "" {
			at = 5
		}
		id, _ := strconv.ParseUint(m[at], 10, 32)
		uid, _ := strconv.ParseUint(m[at+1], 10, 32)
		j.uid, j.features = uint32(uid), m[at+2]
		s.seen[uint32(id)] = j
	}
}

// allEnd waits until each job has run, or was cancelled since slurmd had never begun it, and until each story has ended.
func (c *chaos) allEnd(s *sent) time.Time {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var looks sync.WaitGroup
	looks.Go(func() { c.look(ctx, s) })
	if never := c.allStarted(s.ids, 2*loadHold+5*time.Minute); never > 0 {
		c.t.Logf("slurmd never began %d jobs that slurmctld had started", never)
	}
	ended := time.Now()
	waitUntil(c.t, 2*loadHold+time.Minute, "every story to end", func() bool { time.Sleep(time.Second); return c.unfinished() == 0 })
	cancel()
	looks.Wait()
	return ended
}

// stopGently ends the daemon as systemd does.
func (c *chaos) stopGently() {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	began := time.Now()
	c.signal(syscall.SIGTERM)
	<-c.exited
	c.h.note(check.Line{Kind: "exit", TookMillis: time.Since(began).Milliseconds()})
}

// restarting says whether slurmctld was being restarted at a moment, or within a second of it, or could not have written down what it did then.
func restarting(faults []check.Line, at int64) bool {
	began := int64(0)
	for _, l := range faults {
		if l.Kind != "fault" || l.Name != slurmRestarts && l.Name != slurmIsLost {
			continue
		}
		if l.On {
			if began = l.At - 1000; l.Name == slurmIsLost {
				began = l.At - slurmSaves.Milliseconds()
			}
		} else if at >= began && at <= l.At+1000 {
			return true
		}
	}
	return false
}

// slurmHistory is that of the jobs as slurmctld tells it, and complains of a job of which it was told an id and knows nothing. A job that slurmctld was starting when it was ended has not
// started: it starts the job again when it is back.
func (c *chaos) slurmHistory(s *sent, faults []check.Line) (all []check.Line) {
	submitted := map[uint32]bool{}
	lines := c.readSlurm().lines
	starts := map[uint32]int{}
	for _, l := range lines {
		if l.Kind == "start" {
			starts[l.Job]++
		}
	}
	for _, l := range lines {
		if l.Kind == "start" && starts[l.Job] > 1 && restarting(faults, l.At) {
			starts[l.Job]--
			c.t.Logf("slurmctld started job %d again: it was ended while it started it", l.Job)
			continue
		}
		j, seen := s.seen[l.Job]
		if !seen {
			c.t.Errorf("job %d was not seen within %s of its end", l.Job, loadJobAge)
			continue
		}
		l.Asked, l.UID = j.features, j.uid
		if l.Kind == "submit" {
			submitted[l.Job] = true
			if at := s.ids[l.Job]; at > 0 {
				l.At = min(l.At, at)
			}
			l.Asked, l.Token = "gpu80g", j.token
			if j.token != "" {
				l.HoldMillis = c.hold.Milliseconds()
			}
		}
		all = append(all, l)
	}
	for _, id := range slices.Sorted(maps.Keys(s.ids)) {
		if !submitted[id] {
			c.t.Errorf("job %d was acknowledged and slurmctld knows nothing of it", id)
		}
	}
	return all
}
