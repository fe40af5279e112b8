package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/e2e/check"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/minicluster"
	"github.com/gresize/gresize/slurm/wire"
)

// Times of a run of chaos.
const (
	chaosHold = 20 * time.Second
	// pluginDeadline is the largest that a site may set in plugin.conf without a note in its manual.
	pluginDeadline = 250 * time.Millisecond
	// shortChaos is how long faults are made where nobody asks for more.
	shortChaos = 12 * time.Second
	diskBytes  = 24 << 20
)

// chaos is a gresized that is tormented.
type chaos struct {
	t                   *testing.T
	h                   *history
	cluster             *playedCluster
	mode                string
	dir, socket, config string
	// stateDir is the folder of the log and of the spool.
	stateDir string
	random   *rand.Rand
	mu       sync.Mutex
	daemon   *exec.Cmd
	exited   chan struct{}
	notify   *net.UnixConn
	lines    bytes.Buffer
	stopping bool
	hold     time.Duration
	// probes is the address where probes report.
	probes string
	// undoDisk mends the disk.
	undoDisk func()
	began    time.Time
	// real is the Slurm that takes the place of the played one, whose probes are still played; the daemon then runs as its SlurmUser.
	real *minicluster.Cluster
	// as is that user.
	as *syscall.Credential
	// env are further NAME=value entries of the daemon.
	env []string
	// steady says that a calm submission is one without acts of its owner, and nothing is promised about it.
	steady bool
	// ready is how long the daemon took to say that it is, the last time; pinged is when it last told the watchdog that it is alive.
	ready  time.Duration
	pinged time.Time
}

// TestChaos torments a real gresized with a schedule that one seed makes, and has a checker that shares no code with it judge the history. CHAOS_SEED repeats a
// schedule, CHAOS_SECONDS makes it longer, CHAOS_MODE chooses the daemon's mode, CHAOS_HISTORY keeps the history in a file.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		seed = n
	}
	length, modes := shortChaos, []string{"enforce"}
	if os.Getenv("GRESIZE_NIGHTLY") == "1" {
		length, modes = 10*time.Minute, []string{"enforce", "shadow", "off"}
	}
	if text := os.Getenv("CHAOS_SECONDS"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		length = time.Duration(n) * time.Second
	}
	if mode := os.Getenv("CHAOS_MODE"); mode != "" {
		modes = []string{mode}
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			t.Logf("CHAOS_MODE=%s CHAOS_SEED=%d CHAOS_SECONDS=%d make chaos", mode, seed, int(length.Seconds()))
			torment(t, mode, seed, length)
		})
	}
}

func torment(t *testing.T, mode string, seed uint64, length time.Duration) {
	path := os.Getenv("CHAOS_HISTORY")
	if path == "" {
		path = filepath.Join(t.TempDir(), "history.jsonl")
	}
	out, err := os.Create(path)
	must(t, err)
	defer out.Close()
	c := newChaos(t, &history{out: out}, mode, seed)
	c.run(length)
	c.rows()
	must(t, c.h.err)

	_, err = out.Seek(0, io.SeekStart)
	must(t, err)
	summary, broken, err := check.History(out, check.Played)
	must(t, err)
	missing := c.missing()
	t.Logf("%+v; the log knows of %d answers without a row", summary, missing)
	for _, b := range broken {
		t.Error(b)
	}
	if int64(summary.Lost) > missing {
		t.Errorf("%d held jobs have no row, and the log misses %d", summary.Lost, missing)
	}
	proves := map[string]bool{
		"enforce": summary.Changed > 0 && summary.Held >= summary.Submitted/4,
		"shadow":  summary.Decided > 0 && summary.Held == 0 && summary.Unanswered < summary.Submitted*3/4,
		"off":     summary.Decided == 0 && summary.Unanswered == summary.Submitted,
	}
	if !proves[mode] || summary.Faults == 0 || summary.Submitted < 20 {
		t.Errorf("the run proves nothing of the mode %s: %+v", mode, summary)
	}
	if t.Failed() {
		t.Logf("the daemon's last words:\n%s", c.lastWords())
	}
}

func newChaos(t *testing.T, h *history, mode string, seed uint64) *chaos {
	t.Helper()
	return newChaosWith(t, h, mode, seed, nil)
}

// newChaosWith is newChaos with a real Slurm when start is given: it gets the path of the submit socket.
func newChaosWith(t *testing.T, h *history, mode string, seed uint64, start func(c *chaos) *minicluster.Cluster) *chaos {
	t.Helper()
	dir, err := os.MkdirTemp("", "gresize-chaos-")
	must(t, err)
	must(t, buildChaos(dir))
	c := &chaos{t: t, h: h, mode: mode, dir: dir, socket: filepath.Join(dir, "submit"), config: filepath.Join(dir, "gresize.toml"), random: rand.New(rand.NewPCG(seed, 1))}
	state := filepath.Join(dir, "state")
	must(t, os.Mkdir(state, 0o700))
	c.stateDir = state
	// A disk of its own, so that it can be full.
	size := diskBytes
	if start != nil || h.out == io.Discard {
		size *= 16 // ten thousand jobs
	}
	if err := unix.Mount("chaos", state, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", size)); err != nil {
		t.Fatalf("a disk that can be full: %v (TestChaos needs root, as the other tests of this folder do)", err)
	}
	c.hold = chaosHold
	if start != nil {
		c.real = start(c)
		c.runAsSlurm(state)
	}
	c.listen()
	c.cluster = newPlayedCluster(t, h, dir, filepath.Join(dir, "launch"), seed, says(t, 7, estimator.Exact).Bundles)
	c.configure("127.0.0.1")
	if c.as != nil {
		must(t, os.Chmod(filepath.Join(dir, "launch"), 0o777))
	}
	t.Cleanup(func() {
		c.kill()
		close(c.cluster.stop)
		c.notify.Close()
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return c
}

// listen hears what the daemon tells systemd.
func (c *chaos) listen() {
	c.t.Helper()
	path := filepath.Join(c.dir, "notify")
	var err error
	c.notify, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(c.t, err)
	must(c.t, os.Chmod(path, 0o777))
	go c.hear()
}

// configure writes gresize.toml; probes report to a free port of the host.
func (c *chaos) configure(host string) {
	c.t.Helper()
	free, err := net.Listen("tcp", host+":0")
	must(c.t, err)
	address := free.Addr().String()
	must(c.t, free.Close())
	c.probes = address
	slurm := "timeout = \"2s\"\n"
	if c.real != nil {
		slurm = fmt.Sprintf("conf = %q\n", c.real.Conf())
	}
	// The faults kill probes one after the other: the breaker, which would let all jobs go, has tests of its own.
	text := fmt.Sprintf("version = 1\nmode = %q\ncache = \"off\"\n[socket]\npath = %q\nallow_users = [\"0\"]\n[log]\npath = %q\nspool = %q\n[slurm]\nscontrol = %q\n"+slurm+
		"[probe]\nlisten = %q\nlaunch_socket = %q\nhold = %q\nbudget = \"5s\"\nmax_running = 16\nbreaker = 0\n[actuals]\nunmunge = \"/bin/false\"\n"+
		"[gpu.gpu80g]\nprofile = \"a100-80\"\n[gpu.gpu12g]\nprofile = \"rtx3060\"\n[[target]]\nfits = \"12GiB\"\nconstraint = \"gpu12g\"\n[[target]]\nfits = \"80GiB\"\nconstraint = \"gpu80g\"\n",
		c.mode, c.socket, filepath.Join(c.stateDir, "log.db"), filepath.Join(c.stateDir, "spool"), filepath.Join(c.dir, "scontrol"), address, filepath.Join(c.dir, "launch"), c.hold)
	must(c.t, os.WriteFile(c.config, []byte(text), 0o644))
}

// Write keeps the daemon's last words.
func (c *chaos) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines.Len() > 1<<20 {
		c.lines.Next(1 << 19)
	}
	return c.lines.Write(p)
}

// lastWords are what the daemon wrote last.
func (c *chaos) lastWords() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.lines.Bytes()[max(0, c.lines.Len()-8000):])
}

// start starts the daemon and notes when it says that it is ready.
func (c *chaos) start() {
	cmd := exec.Command(filepath.Join(c.dir, "gresized"), "-config", c.config)
	cmd.Env = append(append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(c.dir, "notify")), c.env...)
	cmd.Stdout, cmd.Stderr = c, c
	if c.as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	}
	c.mu.Lock()
	c.began = time.Now()
	c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		c.t.Errorf("start: %v", err)
		return
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	c.mu.Lock()
	c.daemon, c.exited = cmd, exited
	c.mu.Unlock()
}

// hear notes when the daemon says that it is ready or alive.
func (c *chaos) hear() {
	buffer := make([]byte, 4096)
	for {
		n, err := c.notify.Read(buffer)
		if err != nil {
			return
		}
		c.mu.Lock()
		took := time.Since(c.began)
		c.mu.Unlock()
		switch {
		case bytes.Contains(buffer[:n], []byte("READY=1")):
			c.h.note(check.Line{Kind: "ready", TookMillis: took.Milliseconds()})
			c.mu.Lock()
			c.ready = took
			c.mu.Unlock()
		case bytes.Contains(buffer[:n], []byte("WATCHDOG=1")):
			c.mu.Lock()
			c.pinged = time.Now()
			c.mu.Unlock()
		}
	}
}

func (c *chaos) signal(s syscall.Signal) (pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.daemon == nil {
		return 0
	}
	_ = c.daemon.Process.Signal(s)
	return c.daemon.Process.Pid
}

func (c *chaos) kill() {
	c.signal(syscall.SIGKILL)
	c.mu.Lock()
	exited := c.exited
	c.mu.Unlock()
	if exited != nil {
		<-exited
	}
}

// again starts the daemon when it has ended by itself, as systemd does.
func (c *chaos) again() {
	c.mu.Lock()
	exited, stopping := c.exited, c.stopping
	c.mu.Unlock()
	select {
	case <-exited:
		if !stopping {
			c.start()
		}
	default:
	}
}

// fault is one way to torment the daemon. It returns what undoes it, or nil.
type fault struct {
	name string
	do   func() (undo func())
}

func (c *chaos) faults() []fault {
	mood := func(what *string, value string) func() func() {
		return func() func() {
			c.cluster.set(what, value)
			return func() { c.cluster.set(what, "") }
		}
	}
	limit := func(resource int, low uint64) func() func() {
		return func() func() {
			pid := c.signal(0)
			var old unix.Rlimit
			if unix.Prlimit(pid, resource, nil, &old) != nil {
				return nil
			}
			low := unix.Rlimit{Cur: low, Max: old.Max}
			if unix.Prlimit(pid, resource, &low, nil) != nil {
				return nil
			}
			return func() { _ = unix.Prlimit(pid, resource, &old, nil) }
		}
	}
	return []fault{
		{"kill -9", func() func() { c.kill(); return c.start }},
		{"kill -9 and at once again", func() func() { c.kill(); c.start(); return nil }},
		{"SIGTERM", func() func() {
			began := time.Now()
			c.signal(syscall.SIGTERM)
			c.mu.Lock()
			exited := c.exited
			c.mu.Unlock()
			select {
			case <-exited:
			case <-time.After(10 * time.Second):
			}
			c.h.note(check.Line{Kind: "exit", TookMillis: time.Since(began).Milliseconds()})
			return c.start
		}},
		{"SIGSTOP", func() func() {
			c.signal(syscall.SIGSTOP)
			return func() { c.signal(syscall.SIGCONT) }
		}},
		{"disk full", c.fillDisk},
		{"no file descriptors", limit(unix.RLIMIT_NOFILE, 12)},
		{"reload", func() func() { c.signal(syscall.SIGHUP); return nil }},
		{"broken configuration", func() func() {
			sound, err := os.ReadFile(c.config)
			if err != nil || os.WriteFile(c.config+".new", append([]byte("nonsense = ["), sound...), 0o644) != nil {
				return nil
			}
			// Only a reload reads it: a start with it would rightly fail.
			_ = os.Rename(c.config+".new", c.config)
			c.signal(syscall.SIGHUP)
			time.Sleep(200 * time.Millisecond)
			_ = os.WriteFile(c.config, sound, 0o644)
			return nil
		}},
		{"scontrol refuses", mood(&c.cluster.commands, "refuse")},
		{"scontrol is slow", mood(&c.cluster.commands, "slow")},
		{"scontrol hangs", mood(&c.cluster.commands, "hang")},
		{"answers to updates are lost", mood(&c.cluster.commands, "lost")},
		{"no scontrol", func() func() {
			path := filepath.Join(c.dir, "scontrol")
			if os.Rename(path, path+".away") != nil {
				return nil
			}
			return func() { _ = os.Rename(path+".away", path) }
		}},
		{"probes refused", mood(&c.cluster.probes, "refuse")},
		{"probes die", mood(&c.cluster.probes, "die")},
		{"probes report garbage", mood(&c.cluster.probes, "garbage")},
		{"the launcher's answer is lost", mood(&c.cluster.probes, "unsure")},
		{"flood", func() func() {
			var held []net.Conn
			for range 300 {
				if connection, err := net.DialTimeout("unix", c.socket, 50*time.Millisecond); err == nil {
					_, _ = connection.Write([]byte("GRSZ\x00\x01"))
					held = append(held, connection)
				}
			}
			return func() {
				for _, connection := range held {
					connection.Close()
				}
			}
		}},
	}
}

// oneOf makes one of the faults for a while.
func (c *chaos) oneOf(faults []fault) {
	f := faults[c.random.IntN(len(faults))]
	c.h.note(check.Line{Kind: "fault", Name: f.name, On: true})
	undo := f.do()
	time.Sleep(time.Duration(200+c.random.IntN(1800)) * time.Millisecond)
	if undo != nil {
		undo()
	}
	c.h.note(check.Line{Kind: "fault", Name: f.name})
}

// run makes load and faults, and then waits until every job and every story has ended.
func (c *chaos) run(length time.Duration) {
	c.start()
	c.answering()
	end := time.Now().Add(length)
	ctx, cancel := context.WithDeadline(c.t.Context(), end)
	defer cancel()
	var load sync.WaitGroup
	for worker := range 3 {
		random := rand.New(rand.NewPCG(c.random.Uint64(), uint64(worker)))
		load.Go(func() {
			for ctx.Err() == nil {
				c.submit(random, false)
				time.Sleep(time.Duration(100+random.IntN(500)) * time.Millisecond)
			}
		})
	}
	faults := c.faults()
	for ctx.Err() == nil {
		c.again()
		c.oneOf(faults)
		time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond)
	}
	load.Wait()
	c.again()
	c.answering()
	time.Sleep(time.Second)
	calm := rand.New(rand.NewPCG(c.random.Uint64(), 9))
	for range 3 {
		c.submit(calm, true)
	}
	waitUntil(c.t, chaosHold+10*time.Second, "every job to start", c.cluster.settled)
	limit := 2*chaosHold + 10*time.Second
	if c.mode == "shadow" {
		limit += 2 * time.Minute // how long a stamped job may stay unseen
	}
	waitUntil(c.t, limit, "every story to end", func() bool { return c.unfinished() == 0 })
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	began := time.Now()
	c.signal(syscall.SIGTERM)
	<-c.exited
	c.h.note(check.Line{Kind: "exit", TookMillis: time.Since(began).Milliseconds()})
}

// answering waits until the socket answers.
func (c *chaos) answering() {
	waitUntil(c.t, 20*time.Second, "the daemon to answer", func() bool {
		c.again()
		connection, err := net.DialTimeout("unix", c.socket, time.Second)
		if err != nil {
			return false
		}
		connection.Close()
		return true
	})
}

// submit is what sbatch, slurmctld and the plugin do: whatever fails, the job is queued as it is. It returns how long the answer took.
func (c *chaos) submit(random *rand.Rand, calm bool) time.Duration {
	uid := uint32(1001 + random.IntN(3))
	request := &wire.Request{SlurmVersion: 0x160508, UserID: uid, SubmitUID: uid, GroupID: 100, Name: "train", WorkDir: "/w", TresPerNode: "gres:gpu:1", Features: "gpu80g",
		Argv: []string{"/w/job.sh"}, ArgvTotal: 1, Environment: []string{"A=1"}, EnvironmentTotal: 1}
	request.Script = "#!/bin/sh\n# " + strings.Repeat("x", random.IntN(8<<10)) + "\n"
	request.ScriptTotal = uint64(len(request.Script))
	began := time.Now()
	reply := c.ask(request)
	took := time.Since(began)
	l := check.Line{Kind: "submit", At: began.UnixMilli(), UID: uid, Asked: request.Features, TookMillis: took.Milliseconds(), Calm: calm && !c.steady && c.mode == "enforce"}
	j := &playedJob{uid: uid, name: request.Name, features: request.Features, eligible: time.Now(), runFor: runsFor}
	if reply != nil && reply.Verdict == wire.VerdictHold {
		l.Token, l.HoldMillis = reply.Token, int64(reply.HoldSeconds)*1000
		j.token = wire.TokenPrefix + reply.Token
		j.eligible = began.Add(time.Duration(reply.HoldSeconds) * time.Second)
	}
	id := c.cluster.add(j, &l)
	if l.HoldMillis > 0 && !calm && random.IntN(8) == 0 {
		act := []string{"lift", "cancel", "change"}[random.IntN(3)]
		wait := time.Duration(random.IntN(3000)) * time.Millisecond
		c.cluster.wait.Go(func() { time.Sleep(wait); c.cluster.owner(id, act) })
	}
	return took
}

// submitHeld is submit for a job that has to be held, by slurmctld's clock. It returns its id.
func (c *chaos) submitHeld() uint32 {
	c.t.Helper()
	request := sampleRequest()
	reply := c.ask(request)
	if reply == nil || reply.Verdict != wire.VerdictHold {
		c.t.Fatalf("the job is not held: %+v", reply)
	}
	c.cluster.mu.Lock()
	now := c.cluster.clock()
	c.cluster.mu.Unlock()
	return c.cluster.add(&playedJob{uid: request.UserID, name: request.Name, features: request.Features, token: wire.TokenPrefix + reply.Token,
		eligible: now.Add(time.Duration(reply.HoldSeconds) * time.Second), runFor: runsFor}, nil)
}

func (c *chaos) ask(request *wire.Request) *wire.Reply {
	connection, err := net.DialTimeout("unix", c.socket, pluginDeadline)
	if err != nil {
		return nil
	}
	defer connection.Close()
	if connection.SetDeadline(time.Now().Add(pluginDeadline)) != nil || wire.WriteRequest(connection, request) != nil {
		return nil
	}
	reply, err := wire.ReadReply(connection)
	if err != nil {
		return nil
	}
	return reply
}

func (c *chaos) open() (*decisionlog.Log, error) {
	return decisionlog.OpenReadOnly(context.Background(), filepath.Join(c.stateDir, "log.db"))
}

// missing is how many submissions the log knows to have been answered and not recorded.
func (c *chaos) missing() (n int64) {
	c.t.Helper()
	log, err := c.open()
	must(c.t, err)
	defer log.Close()
	lives, err := log.Lives(context.Background())
	must(c.t, err)
	for _, l := range lives {
		n += max(0, l.Answered-l.Recorded)
	}
	return n
}

func (c *chaos) unfinished() int {
	log, err := c.open()
	if err != nil {
		return -1
	}
	defer log.Close()
	stories, err := log.Unfinished(context.Background())
	if err != nil {
		return -1
	}
	return len(stories)
}

// rows puts the decision log into the history.
func (c *chaos) rows() {
	log, err := c.open()
	must(c.t, err)
	defer log.Close()
	var tokens []string
	must(c.t, log.Each(context.Background(), decisionlog.Filter{}, func(l decisionlog.Line) error {
		tokens = append(tokens, l.Job.Token)
		return nil
	}))
	slices.Sort(tokens)
	for _, token := range tokens {
		story, err := log.StoryByToken(context.Background(), token)
		must(c.t, err)
		l := check.Line{Kind: "row", Token: token, Job: story.Job.SlurmJobID, UID: story.Job.UID, Finished: story.Job.Finished}
		for _, e := range story.Events {
			l.Events = append(l.Events, check.Event{At: e.At.UnixMilli(), State: e.State})
		}
		for _, d := range story.Decisions {
			if d.Verdict == decision.Rewrite {
				l.After = append(l.After, d.Change.Result.Features)
			}
		}
		for _, p := range story.Probes {
			l.Probes = append(l.Probes, p.Name)
		}
		c.h.note(l)
	}
}
