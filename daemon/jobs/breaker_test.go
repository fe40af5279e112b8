package jobs

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/wire"
)

var sixInARow = Breaker{InRow: 6, Pause: time.Minute}

// TestBreaker plays the breaker by a clock of its own: each line is an event of an owner, and what is admitted afterwards.
func TestBreaker(t *testing.T) {
	const alice, bob, mallory, carol = 1, 2, 3, 4
	b := newBreaker(slog.New(slog.DiscardHandler))
	now := time.Now()
	n := 0
	fail := func(uid uint32, times int) {
		for range times {
			n++
			b.failed(sixInARow, uid, fmt.Sprint("t", n), "probe_lost", now)
		}
	}
	open := func(what string, uid uint32, want bool) (token string) {
		t.Helper()
		n++
		token = fmt.Sprint("t", n)
		if why, admitted := b.admit(uid, token, now); admitted == want {
			t.Errorf("%s: owner %d admitted %v (%s)", what, uid, admitted, why)
		}
		return token
	}
	fail(mallory, 100)
	open("a hundred failures of one owner", mallory, true)
	open("a hundred failures of one owner", alice, false)
	fail(alice, 2)
	open("and two of another", bob, false)
	b.worked(bob)
	fail(alice, 2)
	fail(bob, 2)
	open("a success in between", carol, false)
	fail(carol, 1)
	fail(alice, 3)
	open("five count for all", carol, false)
	fail(carol, 1)
	open("six in a row, of three owners", 99, true)

	now = now.Add(time.Minute)
	trial := open("the pause is over", bob, false)
	open("one trial at a time", carol, true)
	if _, again := b.admit(bob, trial, now); !again {
		t.Error("the trial itself is not admitted again")
	}
	b.over(bob, trial)
	trial = open("a trial that told nothing makes room", bob, false)
	b.failed(sixInARow, bob, trial, "probe_refused", now)
	open("the trial failed", carol, true)
	now = now.Add(time.Minute)
	open("whose trial has failed is not tried next", bob, true)
	open("another owner is", 99, false)
	b.worked(99)
	open("a trial that worked", bob, false)
	open("the owner whose own breaker is open waits for a trial of its own", mallory, false)
	open("which is one", mallory, true)
	if b.opened != 2 {
		t.Errorf("opened %d times", b.opened)
	}
}

// TestBreakerOff: 0 never opens.
func TestBreakerOff(t *testing.T) {
	b := newBreaker(slog.New(slog.DiscardHandler))
	for i := range 1000 {
		b.failed(Breaker{Pause: time.Minute}, uint32(i), "t", "x", time.Now())
	}
	if _, admitted := b.admit(1, "u", time.Now()); !admitted {
		t.Error("opened")
	}
}

// TestProbesThatAllFail: with probes that are all refused the seventh job is not held, of whomever; as soon as one trial works all are.
func TestProbesThatAllFail(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	settings := *b.manager.settings()
	settings.Probe.Breaker = Breaker{InRow: 6, Pause: 300 * time.Millisecond}
	b.manager.Configure(settings)
	b.slurm.submit = func(launch.Request) (uint32, error) { return 0, &launch.RefusedError{Detail: "no partition probe"} }
	of := func(uid uint32) *wire.Request { r := sample(); r.UserID = uid; return r }
	for i := range 6 { // each is asked for twice
		_, token := b.submit(of(uint32(1001 + i%3)))
		b.ends(token, StateReleased, estimator.CodeProbeRefused)
	}
	if f := b.manager.ProbesFailing(); f.Since.IsZero() || f.Opened != 1 || !strings.Contains(f.Why, "no partition probe") {
		t.Fatalf("%+v", f)
	}
	if reply := b.manager.Answer(of(1009)); reply.Verdict != wire.VerdictPass {
		t.Fatalf("held: %+v", reply)
	}
	time.Sleep(300 * time.Millisecond)
	// The trial, which has no sandbox: that is no success.
	b.slurm.submit = nil
	_, token := b.submit(of(1004))
	if reply := b.manager.Answer(of(1005)); reply.Verdict != wire.VerdictPass {
		t.Fatalf("held beside the trial: %+v", reply)
	}
	b.until("the trial's probe", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.asked) == 13 })
	if err := b.manager.ProbeFailure(b.slurm.asked[12].Name, b.slurm.asked[12].Key, estimator.Reason{Code: estimator.CodeNoSandbox, Detail: "max_user_namespaces is 0"}); err != nil {
		t.Fatal(err)
	}
	b.ends(token, StateReleased, "confidence_too_low")
	if all := b.story(token).Estimates; len(all) != 1 || all[0].Estimator != "named_first" {
		t.Errorf("what is not known is said in the name of the site's first estimator: %+v", all)
	}
	if f := b.manager.ProbesFailing(); f.Since.IsZero() || !strings.Contains(f.Why, "max_user_namespaces") {
		t.Fatalf("%+v", f)
	}
	time.Sleep(300 * time.Millisecond)
	_, token = b.submit(of(1005))
	b.report(14)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	if f := b.manager.ProbesFailing(); !f.Since.IsZero() {
		t.Errorf("%+v", f)
	}
	b.submit(of(1004))
}

// TestBreakerLetsWaitingJobsGo: jobs that wait for a place when the breaker opens are not kept for nothing.
func TestBreakerLetsWaitingJobsGo(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	settings := *b.manager.settings()
	settings.Probe.Breaker = Breaker{InRow: 2, Pause: time.Minute}
	settings.Probe.MaxRunning = 1
	b.manager.Configure(settings)
	refuse := make(chan struct{})
	b.slurm.submit = func(launch.Request) (uint32, error) {
		<-refuse
		return 0, &launch.RefusedError{Detail: "down"}
	}
	var tokens []string
	for range 5 {
		_, token := b.submit(sample())
		tokens = append(tokens, token)
	}
	close(refuse)
	codes := map[string]int{}
	for _, token := range tokens {
		b.until("the end", func() bool { return b.story(token).Job.Finished })
		codes[b.story(token).Decisions[0].Code]++
	}
	if codes[estimator.CodeProbeRefused] < 2 || codes[decision.CodeProbesFailing] == 0 {
		t.Errorf("%v", codes)
	}
	if len(b.slurm.asked) >= 10 { // twice each
		t.Error("every one was tried")
	}
}
