package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/jobs"
	"github.com/gresize/gresize/slurm/request"
)

func TestKindsAreTheSitesWords(t *testing.T) {
	own := map[string]bool{"gpu80g": true, "gpu12g": true}
	for _, c := range []struct {
		request request.Request
		own     map[string]bool
		want    string
	}{
		{request.Request{TresPerNode: "gres:gpu:1"}, own, AnyGPU},
		{request.Request{TresPerNode: "gres:gpu:a100:2"}, own, "a100"},
		{request.Request{TresPerNode: "gres/gpu:1", Features: "ib&gpu80g"}, own, "gpu80g"},
		{request.Request{TresPerNode: "gres/gpu:1", Features: "ib&gpu80g"}, nil, "ib&gpu80g"},
		{request.Request{TresPerNode: "gres/gpu:1", Features: "skylake"}, own, AnyGPU},
		{request.Request{TresPerNode: "gres/gpu:1", Features: "gpu12g|gpu80g"}, own, "gpu12g|gpu80g"},
		// The other nodes of the alternative may have any card.
		{request.Request{TresPerNode: "gres/gpu:1", Features: "ib|gpu80g"}, own, AnyGPU},
		{request.Request{TresPerNode: "gres/shard:4"}, own, "shard"},
	} {
		if got := Kind(c.request, c.own); got != c.want {
			t.Errorf("%s is %q, want %q", c.request, got, c.want)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		mode, state string
		verdict     decision.Verdict
		code        string
		want        Outcome
	}{
		{"enforce", jobs.StateVerified, decision.Rewrite, decision.CodeSmaller, Changed},
		{"shadow", jobs.StateShadowed, decision.Rewrite, decision.CodeSmaller, WouldChange},
		{"enforce", jobs.StateRestored, decision.Rewrite, decision.CodeSmaller, NotCarriedOut},
		{"enforce", jobs.StateAbandoned, decision.Rewrite, decision.CodeSmaller, NotCarriedOut},
		{"enforce", jobs.StateUpdating, decision.Rewrite, decision.CodeSmaller, Open},
		{"enforce", jobs.StateReleased, decision.Keep, decision.CodeAlready, Right},
		{"enforce", jobs.StateReleased, decision.LeaveAlone, decision.CodeNeedsMore, TooSmall},
		{"enforce", jobs.StateReleased, decision.LeaveAlone, decision.CodeConfidence, Unknown},
		{"enforce", jobs.StateLeftAlone, decision.LeaveAlone, "array_job", NotTried},
		{"enforce", jobs.StateAbandoned, "", "", Unknown},
		{"enforce", jobs.StateProbing, "", "", Open},
	} {
		if got := OutcomeOf(c.mode, c.state, c.verdict, c.code); got != c.want {
			t.Errorf("%s %s %s %s: %s, want %s", c.mode, c.state, c.verdict, c.code, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	large := request.Request{TresPerNode: "gres:gpu:2", Features: "gpu80g"}
	small := request.Request{TresPerNode: "gres:gpu:2", Features: "gpu12g"}
	r := Make(decisionlog.Span{Jobs: 10, Tasks: 24, Users: 3}, []decisionlog.Group{
		{Asked: large, Now: small, Mode: "shadow", State: jobs.StateShadowed, Verdict: decision.Rewrite, Code: decision.CodeSmaller, Jobs: 4, Tasks: 4, LimitedJobs: 3, LimitMinutes: 180, UnlimitedJobs: 1},
		{Asked: large, Now: small, Mode: "enforce", State: jobs.StateRestored, Verdict: decision.Rewrite, Code: decision.CodeSmaller, Jobs: 1, Tasks: 1, LimitedJobs: 1, LimitMinutes: 60},
		{Asked: small, Mode: "enforce", State: jobs.StateLeftAlone, Verdict: decision.LeaveAlone, Code: "array_job", Jobs: 5, Tasks: 19, LimitedJobs: 5, LimitMinutes: 600},
	}, decisionlog.Truth{Known: 4}, nil)
	want := []Card{
		{Kind: "gpu12g", Asked: 5, Needed: 9, TasksAsked: 19, TasksNeeded: 23, GPUHoursAsked: 20, GPUHoursNeeded: 26, GPUHoursFreed: -6, GPUHoursAdded: 6},
		{Kind: "gpu80g", Asked: 5, Needed: 1, TasksAsked: 5, TasksNeeded: 1, GPUHoursAsked: 8, GPUHoursNeeded: 2, GPUHoursFreed: 6, WithoutLimit: 1},
	}
	if !slices.Equal(r.Cards, want) || r.Total != (Card{Kind: "total", Asked: 10, Needed: 10, TasksAsked: 24, TasksNeeded: 24, GPUHoursAsked: 28, GPUHoursNeeded: 28, GPUHoursFreed: 6, GPUHoursAdded: 6, WithoutLimit: 1}) {
		t.Errorf("%+v\n%+v", r.Cards, r.Total)
	}
	text := strings.Join(r.NotKnown, "\n")
	for _, says := range []string{"1 of 10 jobs gave no time limit", "4 changes were only recorded", "Of 5 of 10 jobs the need is not known", "Of 4 of 10 jobs it is known how they ended"} {
		if !strings.Contains(text, says) {
			t.Errorf("the report does not say %q:\n%s", says, text)
		}
	}
}

// TestWordsOfAnEarlierTable: what a rewrite gave is a kind of card, even if the table has another word for it today.
func TestWordsOfAnEarlierTable(t *testing.T) {
	own := map[string]bool{"gpu80g": true}
	r := Make(decisionlog.Span{Jobs: 1}, []decisionlog.Group{{Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "ib&gpu80g"}, Now: request.Request{TresPerNode: "gres:gpu:1", Features: "ib&small"},
		Mode: "shadow", State: jobs.StateShadowed, Verdict: decision.Rewrite, Jobs: 1}}, decisionlog.Truth{}, own)
	if len(r.Cards) != 2 || r.Cards[0].Kind != "gpu80g" || r.Cards[1].Kind != "small" || len(own) != 1 {
		t.Errorf("%+v %v", r.Cards, own)
	}
}

// TestNothingIsLost: whatever the groups are, the sums are theirs, and hours that leave one kind arrive at another.
func TestNothingIsLost(t *testing.T) {
	words := []string{"", "a", "b", "a&b", "a|c", "["}
	rapid.Check(t, func(t *rapid.T) {
		var jobsIn int64
		var hoursIn float64
		var groups []decisionlog.Group
		for range rapid.IntRange(0, 20).Draw(t, "groups") {
			limited := rapid.Int64Range(0, 5).Draw(t, "limited")
			g := decisionlog.Group{
				Asked: request.Request{TresPerNode: rapid.SampledFrom([]string{"", "gres:gpu:1", "gres:gpu:x:3"}).Draw(t, "gres"), Features: rapid.SampledFrom(words).Draw(t, "features")},
				Now:   request.Request{Features: rapid.SampledFrom(words).Draw(t, "now")}, Mode: rapid.SampledFrom([]string{"shadow", "enforce"}).Draw(t, "mode"),
				State: rapid.SampledFrom(append(slices.Clone(jobs.LastStates), jobs.OpenStates...)).Draw(t, "state"), Verdict: rapid.SampledFrom([]decision.Verdict{"", decision.Rewrite, decision.Keep, decision.LeaveAlone}).Draw(t, "verdict"),
				Jobs: limited + 1, LimitedJobs: limited, LimitMinutes: limited * 30,
			}
			jobsIn += g.Jobs
			hoursIn += float64(limited) / 2 * gpusOf(g.Asked)
			groups = append(groups, g)
		}
		r := Make(decisionlog.Span{Jobs: jobsIn}, groups, decisionlog.Truth{}, nil)
		var outcomes int64
		for _, line := range r.Outcomes {
			outcomes += line.Jobs
		}
		freed := 0.0
		for _, c := range r.Cards {
			freed += c.GPUHoursFreed
		}
		if outcomes != jobsIn || r.Total.Asked != jobsIn || r.Total.Needed != jobsIn || math.Abs(r.Total.GPUHoursAsked-hoursIn) > 1e-9 || math.Abs(freed) > 1e-9 {
			t.Fatalf("%+v", r)
		}
	})
}
