package jobs

import (
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/slurm/client"
	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

func TestLimitOf(t *testing.T) {
	set := func(keys ...string) request.Change {
		var c request.Change
		for _, k := range keys {
			c.Set = append(c.Set, request.Assignment{Key: k, Value: "x"})
		}
		return c
	}
	gres, memory, features := set("TresPerNode"), set("MinMemoryNode"), set("Features")
	for _, c := range []struct {
		reason string
		change request.Change
		want   limited
	}{
		{"AssocMaxGRESPerJob", gres, single}, {"AssocMaxGRESPerNode", gres, single}, {"QOSMaxGRESPerJob", gres, single}, {"QOSMinGRES", gres, single},
		{"QOSMinMemory", memory, single}, {"AssocMaxMemPerJob", memory, single}, {"AssocMaxBillingPerJob", gres, single},
		{"AssocGrpGRES", gres, shared}, {"QOSGrpGRES", gres, shared}, {"QOSMaxGRESPerUser", gres, shared}, {"AssocGrpMemLimit", memory, shared},
		// A constraint is nobody's limit: the original meets the same.
		{"AssocMaxGRESPerJob", features, unlimited}, {"AssocGrpGRES", memory, unlimited}, {"AssocGrpMemLimit", gres, unlimited},
		{"AssocGrpCpuLimit", gres, unlimited}, {"QOSMaxJobsPerUserLimit", gres, unlimited}, {"AssocGrpGRESMinutes", features, unlimited},
		{"Resources", gres, unlimited}, {"Priority", gres, unlimited}, {"None", gres, unlimited}, {"", gres, unlimited},
	} {
		if got := limitOf(c.reason, c.change); got != c.want {
			t.Errorf("%s with %v: %d, want %d", c.reason, c.change.Set, got, c.want)
		}
	}
}

// TestALimitAgainstAChangedJob: a job that was changed to what its owner may not have gets its request back, and one whose limit is the original's too keeps the change.
func TestALimitAgainstAChangedJob(t *testing.T) {
	for _, c := range []struct{ reason, state, code string }{
		{"AssocMaxGRESPerJob", StateRestored, decision.CodeLimit},
		{"QOSMaxJobsPerUserLimit", StateVerified, decision.CodeWaiting},
	} {
		b := newBench(t, Enforce, time.Minute)
		b.change(func(s *Settings) {
			for i := range s.Rules.Rows {
				s.Rules.Rows[i].Target.Counted = "vram:12"
			}
		})
		r := sample()
		r.TresPerNode = r.TresPerNode + ",gres:vram:80"
		id, token := b.submit(r)
		b.report(1)
		b.until("the update", func() bool { return b.story(token).Job.State == StateUpdated })
		b.slurm.change(id, func(j *client.Job) { j.Reason = c.reason })
		b.ends(token, c.state, c.code)
	}
}

// TestAJobThatSlurmNeverJudges: where Slurm says nothing of a changed job, it keeps the change as long as a start is planned for it, and gets its request back else.
func TestAJobThatSlurmNeverJudges(t *testing.T) {
	for _, c := range []struct {
		reason        string
		planned, seen bool
		want          bool
	}{{"InvalidAccount", false, false, true}, {"None", false, true, true}, {"None", false, false, false}, {"InvalidAccount", true, true, false}, {"None", true, true, false}, {"Resources", false, true, false}, {"Priority", false, true, false}} {
		j, l := client.Job{State: "PENDING", Reason: c.reason}, &trackedJob{unaccounted: c.seen}
		if c.planned {
			j.StartAt = time.Now().Add(time.Hour)
		}
		if _, got := l.unjudged(j, release.Newest); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestAJobOfNoAccount: a job that gets no other reason than none is never judged by the releases that pass over jobs of no account.
func TestAJobOfNoAccount(t *testing.T) {
	for text, want := range map[string]bool{"23.02.8": false, "23.11.11": true, "24.05.8": true, "24.11.5": false, "26.05.5": false} {
		v, err := release.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for account, want := range map[string]bool{"": want, "physics": false} {
			if _, got := new(trackedJob).unjudged(client.Job{State: "PENDING", Reason: "None", Account: account}, v); got != want {
				t.Errorf("%s, account %q: %v", text, account, got)
			}
		}
	}
}
