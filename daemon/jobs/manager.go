package jobs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/heartbeat"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// Limits on the work in hand.
const (
	// queueLength bounds the submissions that wait to be written to the log; more are passed.
	queueLength = 1024
	// maxOpen bounds the jobs that are looked after at once; more are passed.
	maxOpen = 4096
	// maxSteps bounds the jobs that are advanced at the same moment.
	maxSteps = 8
	// turn is how long a loop works, calls to others aside, before it is taken to be stuck.
	turn = 5 * time.Second
)

// Estimator turns the bundle of a job's probe into an estimate for a GPU profile.
type Estimator interface {
	Estimate(ctx context.Context, job estimator.Job, bundle *os.File, profile string) (estimator.Estimate, error)
}

// Slurm is what is needed of the cluster; *client.Client is the real one.
type Slurm interface {
	EachJob(ctx context.Context, each func(client.Job)) error
	Job(ctx context.Context, id uint32) (client.Job, error)
	Update(ctx context.Context, owner, id uint32, set []request.Assignment, start client.Start) error
	Cancel(ctx context.Context, id uint32) error
}

// Margins is what jobs have really used, as far as it decides on the margin of the next one.
type Margins interface {
	Margin(*estimator.Estimate) (policy.Calibrated, decisionlog.Margin)
}

// Launcher submits probes; *launch.Client is the real one.
type Launcher interface {
	Submit(ctx context.Context, r launch.Request) (uint32, error)
}

// Mode says how far the manager may go.
type Mode string

// The modes.
const (
	Off     Mode = "off"
	Shadow  Mode = "shadow"
	Enforce Mode = "enforce"
)

// ProbeOptions are how a probe is submitted.
type ProbeOptions struct {
	Partition string
	// Account and QOS replace the job's own when they are not empty.
	Account, QOS     string
	URL              string
	TimeLimitMinutes int
	CPUs             int
	MemoryMiB        int
	Steps            int
	Budget           time.Duration
	MaxRunning       int
	// Breaker keeps jobs from being held where probes fail.
	Breaker Breaker
	// StartWithin is how long a job waits for its probe to begin; 0: until its hold is over.
	StartWithin time.Duration
}

// Settings are what a Manager may be told anew while it runs.
type Settings struct {
	Mode  Mode
	Hold  time.Duration
	Watch time.Duration
	// MaxWait is how long a changed job may wait for a card before it gets its request back; 0: as long as it takes.
	MaxWait time.Duration
	// Arrays says whether job arrays are looked at.
	Arrays bool
	Probe  ProbeOptions
	Rules  policy.Rules
	// Cache says when an earlier answer is good for a later job.
	Cache Cache
	// ProfileOf chooses the GPU profile on which a request is probed.
	ProfileOf func(request.Request) string
}

// Config is everything that a Manager needs.
type Config struct {
	Settings
	Version release.Version
	// Release is that of gresize: an answer of another one is not taken from the cache. Empty: any is.
	Release string

	Log       *decisionlog.Log
	Spool     *spool.Spool
	Slurm     Slurm
	Launcher  Launcher
	Estimator Estimator
	// EstimatorName is that of the first estimator that the site named; what gresized itself could not find out is said in its name.
	EstimatorName string
	// Numbers gives each submission its number; nil: they have none.
	Numbers Numbers
	// Margins knows what is known of the margin of an estimate; nil: nothing is.
	Margins Margins
	Logger  *slog.Logger
	// Poll is the time between two looks at the queue; 0: one second.
	Poll time.Duration
	// LaunchSettle is how long after a restart a probe of which nothing is known may still appear; 0: 15 s.
	LaunchSettle time.Duration
	// Heartbeat, when set, is told how every loop goes on.
	Heartbeat *heartbeat.Monitor
	// Failpoint, when set, is called with "<state>:written" after a row and "<state>:acted" after the action that it announced, "look" before
	// a look at the queue and "answer" before an answer.
	Failpoint func(name string)
}

// Manager looks after jobs. Make it with New, start it with Open, end it with Close.
type Manager struct {
	config Config
	// current replaces config.Settings; see Configure.
	current atomic.Pointer[Settings]
	queue   chan submission
	wake    chan struct{}
	wait    sync.WaitGroup
	cancel  context.CancelFunc
	// backlogged and dropped count submissions that wait to be written, and those that were given up.
	backlogged, dropped atomic.Int64
	// controller is the release of the slurmctld that asked last, as its SLURM_VERSION_NUMBER; 0: none has asked.
	controller atomic.Uint32
	breaker    *breaker
	// blindSince is since when no look at the queue has been answered; nil: the last one was.
	blindSince atomic.Pointer[time.Time]

	mu     sync.Mutex
	open   map[string]*trackedJob // by token
	probes map[string]*probe      // by the probe's name
	// inWork are the submissions and jobs that have a place, owners what each user has in work, rota the users whose jobs wait for a step, workers those who take them.
	inWork  int
	owners  map[uint32]*owner
	rota    []uint32
	workers int
	// readings are the bundles that are being read, by whose they are.
	readings map[uint32]int
	// rows are the owners' budgets of rows, rowsTold when the journal last said that one was spent.
	rows     map[uint32]rowBudget
	rowsTold time.Time
	// unwritten is what cannot be recorded at this moment.
	unwritten unwritten
	// lastQueue is the latest look at the queue.
	lastQueue *queueView
	// proofs are the daemon's questions to itself that are under way, by the name of the job that they pretend; see Prove.
	proofs map[string]chan struct{}
}

// trackedJob is one open job. Its fields belong to the goroutine that has set busy.
type trackedJob struct {
	job decisionlog.Job
	// holdEnds is HoldUntil by a clock that nobody sets.
	holdEnds time.Time
	estimate *estimator.Estimate
	decision *decisionlog.Decision
	probe    *probe
	attempts int
	// cardsTried counts the cards on which the job was tried: one that would get another card is tried on that card too. reported counts the estimates.
	cardsTried, reported int
	// plan is the search for a plan for a smaller card; nil: none is made. It is written under Manager.mu.
	plan *planTry
	// seen are the estimates on the present card: of an array, one for each task that was tried.
	seen []estimator.Estimate
	// array says that the job is one.
	array bool
	// report is what arrived from the probe; it belongs to Manager.mu.
	report *report
	// bytes are what its script and environment take in the spool; unseen says that no job was seen for it. They belong to Manager.mu.
	bytes  int
	unseen bool
	// receiving says that a bundle of the probe is being written to the spool; it belongs to Manager.mu.
	receiving bool
	// since is when the present state was reached, or when this daemon took it over.
	since time.Time
	// fromJob is the row of the job whose probe found the estimate, 0: its own; verified is one whose files were found unchanged.
	fromJob, verified int64
	// code is that of the latest transition.
	code string
	// considered is the since of the state in which the log was asked whether the job needs a probe: one that waits for a place does not ask again.
	considered time.Time
	// tries counts failed calls in the present state.
	tries int
	// unaccounted says that Slurm takes the changed job for one of an invalid account.
	unaccounted bool
	// freed says that the job was let go while nothing could be written.
	freed bool
	busy  bool
}

// probe is one probe whose report is awaited.
type probe struct {
	name       string
	keySHA256  [sha256.Size]byte
	slurmJobID uint32
	token      string
	uid        uint32
	account    string
	// nth is how many tasks of an array were tried before.
	nth int
	// missingSince is when the probe's job was first found to be gone without a report.
	missingSince time.Time
	// refused is why it was not submitted, refusedAt when that was said.
	refused   string
	refusedAt time.Time
}

type submission struct {
	job      decisionlog.Job
	first    decisionlog.Event
	decision *decisionlog.Decision
	payload  *spool.Job
	// proof is closed when its turn has come; such a submission is none.
	proof chan struct{}
}

// queueView is one look at the queue, reduced to the jobs that matter.
type queueView struct {
	at      time.Time
	byToken map[string][]client.Job
	byID    map[uint32]client.Job
	byName  map[string][]client.Job
}

// New makes a manager; it starts nothing.
func New(config Config) *Manager {
	if config.Poll == 0 {
		config.Poll = time.Second
	}
	if config.LaunchSettle == 0 {
		config.LaunchSettle = 15 * time.Second
	}
	if config.Failpoint == nil {
		config.Failpoint = func(string) {}
	}
	m := &Manager{config: config, queue: make(chan submission, queueLength), wake: make(chan struct{}, 1),
		breaker: newBreaker(config.Logger), open: map[string]*trackedJob{}, probes: map[string]*probe{}, owners: map[uint32]*owner{}, readings: map[uint32]int{}, rows: map[uint32]rowBudget{}, proofs: map[string]chan struct{}{}}
	m.Configure(config.Settings)
	return m
}

// Configure puts other settings in force, from the next step of each job on. A job that is held keeps the end of its hold.
func (m *Manager) Configure(s Settings) { m.current.Store(&s) }

// settings are those in force.
func (m *Manager) settings() *Settings { return m.current.Load() }

// Mode is the mode in force.
func (m *Manager) Mode() Mode { return m.settings().Mode }

// OpenProbes is how many probes are asked for and have not reported.
func (m *Manager) OpenProbes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.probes)
}

// Open takes up every unfinished job of the log and starts looking after them.
func (m *Manager) Open(ctx context.Context) error {
	stories, err := m.config.Log.Unfinished(ctx)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, s := range stories {
		m.adopt(s)
		keep[s.Job.Token] = true
	}
	if err := m.config.Spool.Keep(keep); err != nil {
		return err
	}
	ctx, m.cancel = context.WithCancel(ctx)
	m.wait.Go(func() { m.write(ctx) })
	m.wait.Go(func() { m.loop(ctx) })
	m.poke()
	return nil
}

// Close stops. Jobs stay as they are; the next Open goes on.
func (m *Manager) Close() {
	m.cancel()
	m.wait.Wait()
}

// adopt goes on with a job of the log.
func (m *Manager) adopt(s decisionlog.Story) {
	l := &trackedJob{job: s.Job, attempts: len(s.Probes), reported: len(s.Estimates), since: time.Now()}
	l.holdEnds = endOfHold(s.Job, l.since, m.settings().Hold)
	l.cardsTried, l.seen = cardsTriedOf(s)
	m.inWork++
	m.of(s.Job.UID).jobs++
	if payload, err := m.config.Spool.Job(s.Job.Token); err == nil {
		l.array = payload.Array != nil
		l.bytes = payload.Bytes()
		m.of(s.Job.UID).bytes += l.bytes
	}
	// An estimate of an earlier look is not the one that a probe is to bring.
	if n := len(s.Estimates); n > 0 && !slices.Contains([]string{StateFound, StateProbing, StateReported}, s.Job.State) {
		l.estimate = &s.Estimates[n-1]
	}
	if n := len(s.Events); n > 0 {
		l.code = s.Events[n-1].Code
	}
	if n := len(s.Decisions); n > 0 {
		l.decision = &s.Decisions[n-1]
	}
	l.adoptPlan(s)
	if n := len(s.Probes); n > 0 && s.Job.State == StateProbing {
		last := s.Probes[n-1]
		p := &probe{name: last.Name, slurmJobID: last.SlurmJobID, token: s.Job.Token, uid: s.Job.UID, account: s.Job.Account, nth: len(l.seen)}
		if sum, err := hex.DecodeString(last.KeySHA256); err == nil && len(sum) == sha256.Size {
			p.keySHA256 = [sha256.Size]byte(sum)
			m.probes[p.name] = p
			m.of(p.uid).probes++
		}
		// Looked for before a probe can report to this life: what is found later may be half of a report that is just coming.
		l.probe, l.report = p, m.stored(s.Job.Token)
	}
	m.open[s.Job.Token] = l
	m.config.Logger.Info("job taken up", "token", s.Job.Token, "slurm_job_id", s.Job.SlurmJobID, "state", s.Job.State)
}

// cardsTriedOf reads from a story on how many cards its job was tried, and the estimates on the last one. Estimates of one card stand together; the last of an
// array's, which sums them up, ends its look.
func cardsTriedOf(s decisionlog.Story) (tried int, seen []estimator.Estimate) {
	for i, e := range s.Estimates {
		if i == 0 || e.GPU != s.Estimates[i-1].GPU {
			tried, seen = tried+1, nil
		}
		seen = append(seen, e)
	}
	if tried > 0 && seen[0].GPU != s.Job.Profile {
		// The next card was chosen and not looked at yet.
		return tried, nil
	}
	return tried, seen
}

// Answer decides what the plugin is to do with a submission. It answers from memory; the row is written right after.
func (m *Manager) Answer(r *wire.Request) *wire.Reply {
	pass, settings := &wire.Reply{Verdict: wire.VerdictPass}, m.settings()
	m.config.Failpoint("answer")
	if settings.Mode == Off {
		return pass
	}
	m.compareReleases(r.SlurmVersion)
	now := time.Now()
	s := submission{job: describe(r, settings, now), first: decisionlog.Event{At: now}}
	var array *spool.Array
	if r.ArrayInx != "" {
		// One that is not understood is left alone below.
		if array, _ = triedOf(r.ArrayInx); array != nil {
			s.job.Tasks = int64(array.Count)
		}
	}
	code, reason := ineligible(r, settings.Rules.ShardBytes > 0)
	if code == "" && r.ArrayInx != "" && !settings.Arrays {
		code, reason = decision.CodeArray, "it is an array, and the site does not want arrays to be probed"
	}
	if code == "" {
		if outside := settings.Rules.Scope.Outside(whose(s.job), false); outside != "" {
			code, reason = decision.CodeOutsideScope, outside
		}
	}
	if code == "" {
		if ok, _ := m.canWrite(); !ok {
			code, reason = decision.CodeLogUnwritable, "the decision log or the spool cannot be written at this moment"
		}
	}
	if code == "" {
		if since := m.blindSince.Load(); since != nil && now.Sub(*since) > blindPatience {
			code, reason = decision.CodeQueueUnreadable, "the queue cannot be read, so no job is found in it"
		}
	}
	if code == "" {
		if why, admitted := m.breaker.admit(s.job.UID, s.job.Token, now); !admitted {
			code, reason = decision.CodeProbesFailing, why
		}
	}
	size := sizeOf(r)
	if code == "" {
		if reason = m.reserve(s.job.UID, size); reason != "" {
			m.breaker.over(s.job.UID, s.job.Token)
			code = decision.CodeBusy
		}
	}
	if code != "" {
		if !m.mayAddRow(s.job.UID, now) {
			return pass
		}
		s.job.Finished, s.job.Profile = true, ""
		s.first.State, s.first.Code, s.first.Detail = StateLeftAlone, code, reason
		s.decision = &decisionlog.Decision{At: now, Verdict: decision.LeaveAlone, Code: code, Reason: "the job was left alone: " + reason}
		m.enqueue(s)
		return pass
	}
	s.payload = &spool.Job{Array: array, Script: []byte(r.Script), Argv: byteSlices(r.Argv), Environment: byteSlices(r.Environment), Tasks: tasksOf(r), MemMiB: memPerNode(r)}
	// In shadow mode nothing is dropped and nothing rewritten, but the decision is the one that enforcing would make.
	targets, options := settings.Rules.Targets(), request.Options{Version: m.releaseOf(&s.job), Own: settings.Rules.Own}
	asked := s.job.Asked
	byNode, rewritten := request.ByNode{}, false
	if oneTask(r) {
		if byNode, rewritten = asked.ByNode(targets, options, r.Environment, r.Script); rewritten {
			asked, s.payload.ByNode = byNode.Request, true
		}
	}
	inner := asked.InnerSrun(targets, options, r.Environment, r.Script)
	s.payload.InnerSrunClear = inner.Clear
	reply := &wire.Reply{Verdict: wire.VerdictHold, Token: s.job.Token}
	s.first.State, s.first.Detail = StateStamped, "shadow mode: the job is only stamped"
	if settings.Mode == Enforce {
		reply.HoldSeconds = uint32(settings.Hold / time.Second)
		s.job.HoldUntil = now.Add(settings.Hold)
		s.first.State, s.first.Detail = StateHeld, fmt.Sprintf("the plugin was told to hold the job for %s at most", settings.Hold)
		if reply.EnvDrop = append(byNode.Drop, inner.Drop...); len(reply.EnvDrop) > 0 {
			s.first.Detail += ", and to take " + strings.Join(reply.EnvDrop, ", ") + " out of its environment, which an srun in it would follow"
		}
		if rewritten {
			s.job.Asked = asked
			if settings.Rules.Host.Lower {
				s.job.Asked.MemPerNodeMiB = byNode.MemMiB
			}
			reply.Rewrite = wire.ByNode(r, byNode.MemMiB, byNode.CPUs)
			s.first.Detail += fmt.Sprintf("; what it asks for by its one GPU (%s) is asked for by the node, which means the same and leaves shards open", byTheGPU(byNode))
		}
	}
	if array != nil {
		s.first.Detail += fmt.Sprintf("; an array of %s, tried: %s", quantity.Count(array.Count, "task"), tried(array))
	}
	s.job.State = s.first.State
	if !m.enqueue(s) {
		m.breaker.over(s.job.UID, s.job.Token)
		m.unreserve(s.job.UID, size)
		return pass
	}
	return reply
}

// compareReleases keeps the release of the slurmctld that asks, and says, once for each, that it is not known or not that of scontrol.
func (m *Manager) compareReleases(number uint32) {
	if number == 0 || m.controller.Swap(number) == number {
		return
	}
	v := release.OfNumber(number)
	if why := v.Untried(); why != "" {
		m.config.Logger.Warn("this release of Slurm is not known", "why", why)
	}
	if why := release.Beside(m.config.Version, v); why != "" {
		m.config.Logger.Warn("slurmctld is of another release than scontrol", "slurmctld", v.String(), "scontrol", m.config.Version.String(), "why", why)
	}
}

// releaseOf is the release in whose words a job is changed: that of the slurmctld that asked last, for scontrol hands the words on as they are, whatever its own.
func (m *Manager) releaseOf(j *decisionlog.Job) release.Version {
	if number := m.controller.Load(); number != 0 {
		return release.OfNumber(number)
	}
	if v, err := release.Parse(j.SlurmVersion); err == nil {
		return v
	}
	return m.config.Version
}

// byTheGPU is what was asked for by the GPU, in sbatch's words.
func byTheGPU(b request.ByNode) string {
	var words []string
	if b.MemMiB > 0 {
		words = append(words, fmt.Sprintf("--mem-per-gpu=%dM", b.MemMiB))
	}
	if b.CPUs > 0 {
		words = append(words, fmt.Sprintf("--cpus-per-gpu=%d", b.CPUs))
	}
	return strings.Join(words, " ")
}

func describe(r *wire.Request, settings *Settings, now time.Time) decisionlog.Job {
	asked := askedOf(r)
	if settings.Rules.Host.Lower {
		asked.MemPerNodeMiB = memPerNode(r)
	}
	script := sha256.Sum256([]byte(r.Script))
	j := decisionlog.Job{Token: newToken(), Mode: string(settings.Mode), UID: r.UserID, GID: r.GroupID, Name: r.Name, Partition: r.Partition, Account: r.Account, QOS: r.QOS,
		WorkDir: r.WorkDir, Asked: asked, Profile: settings.ProfileOf(asked), Fingerprint: fingerprint(r), ScriptSHA256: hex.EncodeToString(script[:]), SubmittedAt: now}
	if r.SlurmVersion != 0 {
		j.SlurmVersion = release.OfNumber(r.SlurmVersion).String()
	}
	switch limit := r.TimeLimit; {
	case limit == nil:
	case *limit == wire.InfiniteMinutes:
		j.TimeLimitMinutes = decisionlog.NoTimeLimit
	default:
		j.TimeLimitMinutes = int64(*limit)
	}
	if begin := time.Unix(int64(min(r.BeginTime, 1<<40)), 0); begin.After(now) {
		j.BeginAt = begin
	}
	return j
}

// whose is what a job said of itself when it was submitted.
func whose(j decisionlog.Job) policy.Who {
	return policy.Who{Partition: j.Partition, Account: j.Account, QOS: j.QOS, UID: j.UID}
}

func (m *Manager) enqueue(s submission) bool {
	if m.config.Numbers != nil {
		s.job.Life, s.job.Number = m.config.Numbers.Next()
	}
	select {
	case m.queue <- s:
		return true
	default:
		m.dropped.Add(1)
		m.config.Logger.Error("submission not recorded: the queue to the log is full", "token", s.job.Token)
		return false
	}
}

// poke asks the loop for a look without waiting for its next turn.
func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// loop looks at the queue, at most once in each Poll however many jobs are open, and advances every job that it can.
func (m *Manager) loop(ctx context.Context) {
	var lastLook time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	beat := m.config.Heartbeat.Begin("the loop over the jobs", turn)
	defer beat.End()
	ctx = heartbeat.With(ctx, beat)
	for {
		beat.Wait(m.config.Poll)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
			timer.Reset(m.config.Poll)
		}
		beat.Turn()
		m.mu.Lock()
		idle := len(m.open) == 0 && m.unwritten.since.IsZero() && m.blindSince.Load() == nil
		m.mu.Unlock()
		if idle {
			continue
		}
		looked := time.Since(lastLook) >= m.config.Poll
		if looked {
			m.config.Failpoint("look")
			view, err := m.look(ctx)
			lastLook = time.Now()
			switch {
			case err != nil && m.blindSince.Load() == nil && ctx.Err() == nil:
				since := lastLook
				m.blindSince.Store(&since)
				m.config.Logger.Error("the queue cannot be read; held jobs start as asked when their hold passes, and while that lasts no more are held", "error", err)
			case err == nil && m.blindSince.Swap(nil) != nil:
				m.config.Logger.Info("the queue can be read again")
			}
			if err == nil {
				m.mu.Lock()
				m.lastQueue = view
				m.mu.Unlock()
			}
		}
		if looked {
			m.tryToWrite(ctx)
		}
		m.advanceReady(ctx, looked)
	}
}

func (m *Manager) look(ctx context.Context) (*queueView, error) {
	m.mu.Lock()
	wanted := make(map[uint32]bool, 2*len(m.open))
	for _, l := range m.open {
		if !l.busy && l.job.SlurmJobID != 0 {
			wanted[l.job.SlurmJobID] = true
		}
	}
	for _, p := range m.probes {
		wanted[p.slurmJobID] = true
	}
	m.mu.Unlock()
	view := &queueView{at: time.Now(), byToken: map[string][]client.Job{}, byID: map[uint32]client.Job{}, byName: map[string][]client.Job{}}
	err := m.config.Slurm.EachJob(ctx, func(j client.Job) {
		token, isProbe := j.Token(), strings.HasPrefix(j.Name, launch.NamePrefix)
		if token != "" {
			view.byToken[token] = append(view.byToken[token], j)
		}
		if isProbe {
			view.byName[j.Name] = append(view.byName[j.Name], j)
		}
		if token != "" || isProbe || wanted[j.ID] {
			view.byID[j.ID] = j
		}
	})
	return view, err
}

// advance makes a transition durable and then carries it over into memory.
func (m *Manager) advance(ctx context.Context, l *trackedJob, t decisionlog.Transition) error {
	t.Job, t.From, t.At = l.job.ID, l.job.State, time.Now()
	if err := m.config.Log.Advance(ctx, t); err != nil {
		m.config.Logger.Error("transition not recorded, so not made", "token", l.job.Token, "from", t.From, "to", t.To, "error", err)
		if ctx.Err() == nil && !errors.Is(err, decisionlog.ErrStateChanged) {
			m.notWritten()
		}
		return err
	}
	l.job.State, l.job.Finished, l.since, l.code, l.tries = t.To, t.Finished, t.At, t.Code, 0
	m.waitNot(l)
	if t.SlurmJobID != 0 {
		l.job.SlurmJobID = t.SlurmJobID
	}
	m.config.Logger.Info("job moved", "token", l.job.Token, "slurm_job_id", l.job.SlurmJobID, "from", t.From, "to", t.To, "code", t.Code, "detail", t.Detail)
	m.say(l.job, t.Decision)
	m.config.Failpoint(t.To + ":written")
	return nil
}

// finish makes the last transition of a job and forgets what was kept for it.
func (m *Manager) finish(ctx context.Context, l *trackedJob, t decisionlog.Transition) {
	t.Finished = true
	if m.advance(ctx, l, t) != nil {
		return
	}
	m.breaker.over(l.job.UID, l.job.Token)
	m.mu.Lock()
	m.forgetLocked(l)
	p := l.probe
	if p != nil {
		m.freeLocked(p)
	}
	m.mu.Unlock()
	if p != nil {
		m.cancelProbe(ctx, l, p)
	}
	if err := m.config.Spool.Remove(l.job.Token); err != nil {
		m.config.Logger.Warn("spool not cleaned", "token", l.job.Token, "error", err)
	}
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newToken is 130 bits that nobody can guess.
func newToken() string { return randomWord(16) }

func randomWord(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails: the runtime ends the program first
	return lowerBase32.EncodeToString(b)
}

func byteSlices(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, t := range texts {
		out[i] = []byte(t)
	}
	return out
}
