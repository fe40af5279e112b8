package jobs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/wire"
)

const alice, mallory = 1001, 1002

func of(uid uint32) *wire.Request {
	r := sample()
	r.UserID = uid
	return r
}

// TestBudgets: one user takes half of the places at most, the next one half of what is left, and another always finds some; each has bytes of its own.
func TestBudgets(t *testing.T) {
	m := newBench(t, Off, time.Minute).manager
	took := map[uint32]int{}
	fill := func(uid uint32, bytes int) (why string) {
		for why == "" {
			if why = m.reserve(uid, bytes); why == "" {
				took[uid]++
			}
		}
		return why
	}
	fill(mallory, 100)
	for uid := range uint32(5) {
		fill(2000+uid, 100)
	}
	if took[mallory] != 2048 || took[2000] != 1024 || took[2004] != leastJobs {
		t.Errorf("%v", took)
	}
	for range 64 {
		if why := m.reserve(alice, 100); why != "" {
			t.Fatalf("after six floods: %s", why)
		}
	}
	m = newBench(t, Off, time.Minute).manager
	took = map[uint32]int{}
	if why := fill(mallory, 1<<20); took[mallory] != 64 || !strings.Contains(why, "take 67108864 bytes") {
		t.Errorf("%d: %s", took[mallory], why)
	}
	if why := m.reserve(alice, 1<<20); why != "" {
		t.Error(why)
	}
	// What is given back is free again.
	for range 64 {
		m.unreserve(mallory, 1<<20)
	}
	if why := m.reserve(mallory, 1<<20); why != "" || len(m.owners) != 2 {
		t.Errorf("%q, %d owners", why, len(m.owners))
	}
}

// TestRefusedSubmissionsAreForgotten: a job that Slurm refuses after the plugin was asked keeps no place and no script; one that comes late all the same is let go as it is.
func TestRefusedSubmissionsAreForgotten(t *testing.T) {
	b := newBench(t, Enforce, 5*time.Minute)
	const refused = 300
	var tokens []string
	for range refused {
		reply := b.manager.Answer(of(mallory))
		if reply.Verdict != wire.VerdictHold {
			t.Fatalf("%+v", reply)
		}
		tokens = append(tokens, reply.Token)
	}
	b.until("all rows", func() bool { return b.manager.OpenJobs() == refused })
	// Time goes by.
	b.manager.mu.Lock()
	for _, l := range b.manager.open {
		l.job.SubmittedAt = l.job.SubmittedAt.Add(-unseenAfter)
	}
	b.manager.mu.Unlock()
	b.until("their places", func() bool { return b.manager.OpenJobs() == 0 })
	b.manager.mu.Lock()
	remembered, owned := len(b.manager.open), *b.manager.of(mallory)
	b.manager.mu.Unlock()
	if remembered > maxUnseen || owned.jobs != 0 || owned.bytes != 0 {
		t.Errorf("%d remembered, %+v", remembered, owned)
	}
	left := 0
	for _, token := range tokens {
		if _, err := b.manager.config.Spool.Job(token); err == nil {
			left++
		}
	}
	if left != 0 {
		t.Errorf("%d scripts are left", left)
	}
	// One that slurmctld was slow to make.
	b.manager.mu.Lock()
	var late string
	for token := range b.manager.open {
		late = token
		break
	}
	b.manager.mu.Unlock()
	b.slurm.add(client.Job{Name: "train", UserID: mallory, State: "PENDING", Reason: "BeginTime", EligibleAt: b.story(late).Job.HoldUntil, AdminComment: "gresize:v1:" + late, Request: askedOf(of(mallory))})
	b.ends(late, StateReleased, decision.CodeSpoolLost)
	_, token := b.submit(of(alice))
	b.report(1)
	b.until("another's update", func() bool { return b.story(token).Job.State == StateUpdated })
}

// quietly measures how long a user's jobs wait until they are changed, one after the other.
func (b *bench) waits(uid uint32, n int) (p50, p99 time.Duration) {
	var waits []time.Duration
	for range n {
		began := time.Now()
		_, token := b.submit(of(uid))
		b.until("the update of a user's job", func() bool { return b.story(token).Job.State == StateUpdated })
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	return waits[n/2], waits[n-1]
}

// TestAFloodOfOneUserDelaysNoOther: 900 held jobs of one user, whose probes take all the places that one may have: another's jobs are changed in at most twice the time that they take alone.
func TestAFloodOfOneUserDelaysNoOther(t *testing.T) {
	b := newBenchThatLooks(t, Enforce, 5*time.Minute, 500*time.Millisecond)
	settings := *b.manager.settings()
	settings.Probe.MaxRunning = 8
	b.manager.Configure(settings)
	const probeTakes = 2 * time.Second
	var out sync.WaitGroup
	defer out.Wait()
	b.slurm.submit = func(r launch.Request) (uint32, error) {
		id := b.slurm.add(client.Job{Name: r.Name, UserID: r.UID, State: "RUNNING"})
		out.Go(func() {
			time.Sleep(probeTakes)
			_ = b.manager.ProbeBundle(r.Name, r.Key, []byte("bundle"))
		})
		return id, nil
	}
	defer b.manager.Close() // before what is out is waited for
	const jobs = 8
	p50, p99 := b.waits(alice, jobs)
	flood := 900
	for range flood {
		b.submit(of(mallory))
	}
	p50Flood, p99Flood := b.waits(alice, jobs)
	b.manager.mu.Lock()
	left := b.manager.of(mallory).jobs
	b.manager.mu.Unlock()
	t.Logf("quiet p50 %s p99 %s; with %d jobs of another user p50 %s p99 %s, %d of them still there", p50.Round(time.Millisecond), p99.Round(time.Millisecond), flood, p50Flood.Round(time.Millisecond), p99Flood.Round(time.Millisecond), left)
	if p99Flood > 2*p99 {
		t.Errorf("p99 %s, more than twice %s", p99Flood, p99)
	}
	if left < flood/2 {
		t.Errorf("the flood was over: %d left", left)
	}
}

// TestPlacesAmongProbes: whose turn it is.
func TestPlacesAmongProbes(t *testing.T) {
	m := newBench(t, Off, time.Minute).manager
	settings := *m.settings()
	settings.Probe.MaxRunning = 8
	m.Configure(settings)
	n := 0
	take := func(uid uint32, account string) bool {
		n++
		l := &trackedJob{}
		l.job.Token, l.job.UID, l.job.Account = fmt.Sprint(n), uid, account
		m.mu.Lock() // the loop looks through them meanwhile
		m.open[l.job.Token] = l
		m.mu.Unlock()
		return m.place(l, &probe{name: fmt.Sprint(n)})
	}
	for i := range 8 {
		if got := take(mallory, fmt.Sprint("made-up", i)); got != (i < 6) {
			t.Errorf("place %d of one user: %v", i, got)
		}
	}
	for i := range 3 {
		if got := take(alice, "physics"); got != (i < 2) {
			t.Errorf("place %d of another user, of two that are left: %v", i, got)
		}
	}
	m.mu.Lock()
	for _, p := range m.probes {
		if p.uid == mallory {
			m.freeLocked(p)
			break
		}
	}
	m.mu.Unlock()
	// mallory has five out and two that wait, alice two and one that waits.
	if take(mallory, "x") {
		t.Error("who has more out goes first")
	}
	if !take(alice, "physics") {
		t.Error("who has fewer out does not")
	}
}
