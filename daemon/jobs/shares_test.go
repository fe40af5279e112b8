package jobs

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// TestWhichSharesAreLookedAt: shards where the site says what one stands for, MPS never.
func TestWhichSharesAreLookedAt(t *testing.T) {
	two := uint32(2)
	for _, c := range []struct {
		name, tres    string
		change        func(*wire.Request)
		without, with string
	}{
		{"shards", "gres/shard:20", nil, request.CodeSharesGPU, ""},
		{"many shards are one card", "gres/shard:22528", nil, request.CodeSharesGPU, ""},
		{"shards of a type", "gres/shard:a100:20", nil, request.CodeSharesGPU, ""},
		{"shards beside another resource", "gres/shard:20,gres/vram:4", nil, request.CodeSharesGPU, ""},
		{"no shards", "gres/shard:0", nil, request.CodeSharesGPU, request.CodeSharesGPU},
		{"shards for several tasks", "gres/shard:20", func(r *wire.Request) { r.NumTasks = &two }, request.CodeSharesGPU, request.CodeSharesGPU},
		{"shards of a whole job", "", func(r *wire.Request) { r.TresPerJob = "gres/shard:20" }, request.CodeSharesGPU, request.CodeSharesGPU},
		{"shards on two nodes", "gres/shard:20", func(r *wire.Request) { r.MinNodes = &two }, request.CodeSharesGPU, request.CodeSeveral},
		{"MPS", "gres/mps:50", nil, request.CodeSharesGPU, request.CodeSharesGPU},
		{"shards and a GPU", "gres/gpu:1,gres/shard:5", nil, request.CodeSeveral, request.CodeSeveral},
	} {
		r := sample()
		r.TresPerNode = c.tres
		if c.change != nil {
			c.change(r)
		}
		without, _ := ineligible(r, false)
		with, reason := ineligible(r, true)
		if without != c.without || with != c.with || (with == "") != (reason == "") {
			t.Errorf("%s: %q without and %q with a size of shards, want %q and %q", c.name, without, with, c.without, c.with)
		}
		if devicesOf(askedOf(r)) != 1 && c.name != "shards and a GPU" {
			t.Errorf("%s: tried on %d GPUs", c.name, devicesOf(askedOf(r)))
		}
	}
}

// shardSite is a bench on Slurm 24.11 whose site has shards of 1 GiB.
func shardSite(t *testing.T, mode Mode) *bench {
	b := typedSite(t, mode)
	b.change(func(s *Settings) { s.Rules.ShardBytes, s.Rules.ShardMax = gib, 40 })
	return b
}

// byGPU is a job that asks for memory and CPUs by its one GPU.
func byGPU() *wire.Request {
	r := typedJob("#!/bin/sh\nsrun python train.py\n")
	r.TresPerJob, r.MemPerTres, r.CPUsPerTres = "gres/gpu:1", "gres/gpu:8192", "gres/gpu:4"
	r.Environment = []string{"SECRET=1", "SLURM_GPUS=1", "SLURM_MEM_PER_GPU=8192", "SLURM_CPUS_PER_GPU=4"}
	r.EnvironmentTotal = 4
	return r
}

// TestWhatIsAskedByTheGPU becomes a request by the node at submit, so that shards are in reach; in shadow mode nothing is touched and the decision is the same.
func TestWhatIsAskedByTheGPU(t *testing.T) {
	b := shardSite(t, Enforce)
	r := byGPU()
	reply := b.manager.Answer(r)
	if err := reply.Validate(); err != nil || reply.Verdict != wire.VerdictHold || !slices.Equal(reply.EnvDrop, []string{"SLURM_MEM_PER_GPU", "SLURM_CPUS_PER_GPU", "SLURM_GPUS"}) {
		t.Fatalf("%+v %v", reply, err)
	}
	w := reply.Rewrite
	if w.MemPerTres == nil || *w.MemPerTres != "" || w.CPUsPerTres == nil || *w.CPUsPerTres != "" || w.PnMinMemory == nil || *w.PnMinMemory != 8192 || w.PnMinCPUs == nil || *w.PnMinCPUs != 4 || w.MinCPUs == nil || *w.MinCPUs != 4 ||
		w.Features != nil || w.TresPerJob != nil || w.TresPerNode != nil {
		t.Errorf("%+v", w)
	}
	b.slurm.add(client.Job{Name: r.Name, UserID: r.UserID, State: "PENDING", Reason: "BeginTime", EligibleAt: time.Now().Add(time.Minute),
		AdminComment: "gresize:v1:" + reply.Token, Request: request.Request{TresPerJob: "gres/gpu:1", MemPerNodeMiB: 8192}})
	b.report(1)
	b.until("the update", func() bool { b.slurm.mu.Lock(); defer b.slurm.mu.Unlock(); return len(b.slurm.updates) > 0 })
	if got := b.slurm.updates[0]; !strings.HasPrefix(got, "1001 101 [{TresPerJob } {TresPerNode gres/shard:") {
		t.Errorf("update %q", got)
	}
	if first := b.story(reply.Token).Events[0].Detail; !strings.Contains(first, "(--mem-per-gpu=8192M --cpus-per-gpu=4) is asked for by the node") {
		t.Errorf("the story begins with %q", first)
	}

	b = shardSite(t, Shadow)
	r = byGPU()
	reply = b.manager.Answer(r)
	if reply.Rewrite != (wire.Rewrite{}) || len(reply.EnvDrop) != 0 {
		t.Fatalf("a shadow rewrites: %+v", reply)
	}
	b.slurm.add(client.Job{Name: r.Name, UserID: r.UserID, State: "RUNNING", Reason: "None", EligibleAt: time.Now(), AdminComment: "gresize:v1:" + reply.Token, Request: askedOf(r)})
	b.report(1)
	b.until("a decision", func() bool { return len(b.story(reply.Token).Decisions) > 0 })
	if d := b.story(reply.Token).Decisions[0]; d.Code != decision.CodeNarrowed || d.Target.Shards == 0 {
		t.Errorf("decided %s: %s", d.Code, d.Reason)
	}
}

// TestWhatStaysByTheGPU: where it could mean something else, or nothing would be won by it.
func TestWhatStaysByTheGPU(t *testing.T) {
	two, none := uint32(2), shardSite(t, Enforce)
	none.change(func(s *Settings) { s.Rules.ShardBytes = 0 })
	old := shardSite(t, Enforce)
	shards := shardSite(t, Enforce)
	for _, c := range []struct {
		name   string
		bench  *bench
		change func(*wire.Request)
	}{
		{"no shards on this site", none, func(*wire.Request) {}},
		{"a release that cannot give them", old, func(r *wire.Request) { r.SlurmVersion = 0x160508 }},
		{"two GPUs", shards, func(r *wire.Request) { r.TresPerJob, r.TresPerNode = "", "gres/gpu:2" }},
		{"two tasks", shards, func(r *wire.Request) { r.NumTasks = &two }},
		{"the script reads the variable", shards, func(r *wire.Request) {
			r.Script = "#!/bin/sh\necho $SLURM_MEM_PER_GPU\n"
			r.ScriptTotal = uint64(len(r.Script))
		}},
		{"a number with a unit", shards, func(r *wire.Request) { r.MemPerTres = "gres/gpu:8G" }},
		{"memory by another resource", shards, func(r *wire.Request) { r.MemPerTres = "gres/vram:100" }},
		{"memory by the type", shards, func(r *wire.Request) { r.MemPerTres = "gres/gpu:a100:8192" }},
	} {
		r := byGPU()
		c.change(r)
		if reply := c.bench.manager.Answer(r); reply.Rewrite != (wire.Rewrite{}) || slices.Contains(reply.EnvDrop, "SLURM_MEM_PER_GPU") {
			t.Errorf("%s: %+v", c.name, reply)
		}
	}
}
