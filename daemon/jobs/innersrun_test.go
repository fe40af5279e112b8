package jobs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// typedSite is a bench on Slurm 24.11 whose table has GPU types, all of the same card.
func typedSite(t *testing.T, mode Mode) *bench {
	b := newBench(t, mode, time.Minute)
	b.manager.config.Version = release.Version{Major: 24, Minor: 11, Micro: 5}
	settings := *b.manager.settings()
	settings.Rules.Rows = []policy.Row{{FitsBytes: 12 * gib, Target: request.Target{Gres: "gpu:small:1"}}, {FitsBytes: 80 * gib, Target: request.Target{Gres: "gpu:big:1"}}}
	b.manager.Configure(settings)
	return b
}

func typedJob(script string) *wire.Request {
	r := sample()
	r.SlurmVersion, r.TresPerNode, r.TresPerJob, r.Features = 0x180b05, "", "gres/gpu:big:1", ""
	r.Script, r.ScriptTotal = script, uint64(len(script))
	r.Environment = []string{"SECRET=1", "SLURM_GPUS=big:1"}
	r.EnvironmentTotal = 2
	return r
}

func TestVariablesThatContradictAreDropped(t *testing.T) {
	b := typedSite(t, Enforce)
	r := typedJob("#!/bin/sh\nsrun python train.py\n")
	reply := b.manager.Answer(r)
	if reply.Verdict != wire.VerdictHold || !slices.Equal(reply.EnvDrop, []string{"SLURM_GPUS"}) || reply.Validate() != nil {
		t.Fatalf("reply %+v: %v", reply, reply.Validate())
	}
	b.slurm.add(client.Job{Name: r.Name, UserID: r.UserID, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(time.Minute),
		AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)})
	b.report(1)
	b.until("the update", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.updates) > 0 })
	if want := "1001 101 [{TresPerJob gres/gpu:small:1}]"; b.slurm.updates[0] != want {
		t.Errorf("update %q, want %q", b.slurm.updates[0], want)
	}
}

func TestAScriptKeepsTheVariablesThatItReads(t *testing.T) {
	b := typedSite(t, Enforce)
	r := typedJob("#!/bin/sh\ntorchrun --nproc-per-node=${SLURM_GPUS#*:} train.py\n")
	reply := b.manager.Answer(r)
	if reply.Verdict != wire.VerdictHold || len(reply.EnvDrop) != 0 {
		t.Fatalf("reply %+v", reply)
	}
	b.slurm.add(client.Job{Name: r.Name, UserID: r.UserID, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(time.Minute),
		AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)})
	b.report(1)
	b.until("a decision", func() bool { return len(b.story(reply.Token).Decisions) > 0 })
	if d := b.story(reply.Token).Decisions[0]; d.Code != decision.CodeAlready || !strings.Contains(d.Reason, "an srun inside the job would still ask for type big") {
		t.Errorf("decided %s: %s", d.Code, d.Reason)
	}
}

func TestShadowDropsNothingAndDecidesTheSame(t *testing.T) {
	b := typedSite(t, Shadow)
	r := typedJob("#!/bin/sh\nsrun python train.py\n")
	reply := b.manager.Answer(r)
	if reply.Verdict != wire.VerdictHold || len(reply.EnvDrop) != 0 || reply.HoldSeconds != 0 {
		t.Fatalf("reply %+v", reply)
	}
	b.slurm.add(client.Job{Name: r.Name, UserID: r.UserID, State: "RUNNING", Reason: "None", EligibleAt: time.Now(), AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)})
	b.report(1)
	b.until("a decision", func() bool { return len(b.story(reply.Token).Decisions) > 0 })
	if d := b.story(reply.Token).Decisions[0]; d.Code != decision.CodeSmaller {
		t.Errorf("decided %s: %s", d.Code, d.Reason)
	}
}
