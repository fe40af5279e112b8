package jobs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"

	"github.com/gresize/gresize/daemon/policy"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
	"github.com/gresize/gresize/slurm/wire"
)

// TestScriptsThatNobodyWouldWrite: each is either left alone with a reason, or kept byte for byte for the probe.
func TestScriptsThatNobodyWouldWrite(t *testing.T) {
	for _, c := range []struct{ name, script, code string }{
		{"empty", "", wire.SkipNoScript},
		{"without #!", "true\n", decision.CodeOddScript},
		{"an indented #!", "  #!/bin/sh\ntrue\n", decision.CodeOddScript},
		{"a byte order mark", "\xef\xbb\xbf#!/bin/sh\n", decision.CodeOddScript},
		{"a program", "\x7fELF\x02\x01\x01" + strings.Repeat("\xff", 1000), decision.CodeOddScript},
		{"4 MB", "#!/bin/sh\n" + strings.Repeat("x", wire.MaxScriptBytes-10), decision.CodeCut},
		{"Latin-1", "#!/bin/sh\n# caf\xe9\n", ""},
		{"CRLF", "#!/bin/sh\r\ntrue\r\n", ""},
		{"one long line", "#!/bin/sh\n#GRESIZE" + strings.Repeat(" ", 500_000) + "offset\n", ""},
		{"opt-out with CRLF", "#!/bin/sh\r\n#GRESIZE off\r\n", wire.SkipOptOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, Enforce, time.Minute)
			r := sample()
			r.Script, r.ScriptTotal = c.script, uint64(len(c.script))
			if c.code == decision.CodeCut {
				r.ScriptTotal = 4 << 20
			}
			if code, _ := ineligible(r, false); code != c.code {
				t.Fatalf("code %q, want %q", code, c.code)
			}
			if c.code != "" {
				if reply := b.manager.Answer(r); reply.Verdict != wire.VerdictPass {
					t.Errorf("%+v", reply)
				}
				return
			}
			_, token := b.submit(r)
			b.until("the probe", func() bool { return b.story(token).Job.State == StateProbing })
			if kept, err := b.manager.config.Spool.Job(token); err != nil || string(kept.Script) != c.script {
				t.Errorf("the probe would run another script: %v", err)
			}
		})
	}
}

// TestRequestsThatNoReleasePrints are left alone or understood, and never change what they do not name.
func TestRequestsThatNoReleasePrints(t *testing.T) {
	rules := newBench(t, Shadow, time.Minute).manager.settings().Rules
	rules.ShardBytes, rules.ShardMax = gib, 80
	for _, text := range []string{"gres:gpu:1:2:3", "gpu::", "gres/gres/gpu:1", "gpu:-1", "gpu:1e9", "gpu:99999999999999999999", "gpu:0x2", "gpu:a b:1", "gpu(1)", "gres:gpu:\xff:1",
		strings.Repeat("gpu:1,", 10_000), "gres:gpu:18446744073709551615", "gpu=1=2", "GPU:\u0661", "gres:gpu:1,,", "gres:gpu:1;gres:gpu:1", "gpu:1K",
		"gres/shard:18446744073709551615", "shard:-1", "gres/shard:1K", "gres:shard", "shard:a:b:1", "gres/mps:", "gres/mps:1000000%", "gres/shard:1,gres/shard:2"} {
		r := sample()
		r.TresPerNode = text
		code, reason := ineligible(r, true)
		if code != "" {
			if reason == "" {
				t.Errorf("%.60q is left alone without a reason", text)
			}
			continue
		}
		// What could be the name of a GPU type is tried, and its size is not in the site's table.
		estimate, err := sevenGiB{}.Estimate(t.Context(), estimator.Job{}, bundleOf(t), "a100-80")
		if err != nil {
			t.Fatal(err)
		}
		d := rules.Decide(policy.Input{Asked: askedOf(r), Estimate: estimate, Version: release.Version{Major: 24, Minor: 11}})
		for _, a := range d.Change.Set {
			if a.Key != "Features" && !(a.Key == "TresPerNode" && strings.Contains(text, "shard") && strings.Contains(a.Value, "shard:")) {
				t.Errorf("%.60q: %s=%s is sent", text, a.Key, a.Value)
			}
		}
	}
}

// slowly is a controller that takes its time for every answer.
type slowly struct {
	*cluster
	pause time.Duration
}

func (s slowly) EachJob(ctx context.Context, each func(client.Job)) error {
	time.Sleep(s.pause)
	return s.cluster.EachJob(ctx, each)
}

func (s slowly) Job(ctx context.Context, id uint32) (client.Job, error) {
	time.Sleep(s.pause)
	return s.cluster.Job(ctx, id)
}

func (s slowly) Update(ctx context.Context, owner, id uint32, set []request.Assignment, start client.Start) error {
	time.Sleep(s.pause)
	return s.cluster.Update(ctx, owner, id, set, start)
}

// TestASlowControllerSlowsNoSubmission: the plugin is answered from memory, and the job comes to its end all the same.
func TestASlowControllerSlowsNoSubmission(t *testing.T) {
	b := newBench(t, Enforce, time.Minute)
	b.manager.Close()
	config := b.manager.config
	config.Slurm = slowly{b.slurm, 300 * time.Millisecond}
	b.manager = New(config)
	if err := b.manager.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	id, token := b.submit(sample())
	worst := time.Duration(0)
	for range 50 {
		begin := time.Now()
		b.manager.Answer(sample())
		worst = max(worst, time.Since(begin))
	}
	if worst > 100*time.Millisecond {
		t.Errorf("an answer took %s while the controller takes 300 ms", worst)
	}
	b.report(1)
	b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
	b.slurm.change(id, func(j *client.Job) { j.State, j.NodeList = "RUNNING", "gpu1" })
	b.ends(token, StateVerified, decision.CodeRunning)
}
