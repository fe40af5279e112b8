package check

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// sound is a job that is held, probed, changed and started.
func sound() []Line {
	return []Line{
		{Kind: "ready", At: 900, TookMillis: 50},
		{Kind: "submit", At: 1000, Job: 7, UID: 1001, Asked: "big", Token: "t", HoldMillis: 20000, TookMillis: 3},
		{Kind: "probe", At: 2000, Name: "p", UID: 1001},
		{Kind: "look", At: 3000, Job: 7},
		{Kind: "update", At: 3100, Job: 7, UID: 1001, Asked: "small"},
		{Kind: "start", At: 3150, Job: 7, Asked: "small"},
		{Kind: "exit", At: 9000, TookMillis: 10},
		{Kind: "row", At: 9100, Token: "t", UID: 1001, Finished: true, After: []string{"small"}, Probes: []string{"p"}, Events: []Event{
			{1001, "held"}, {1500, "found"}, {1600, "probing"}, {2900, "reported"}, {2950, "estimated"}, {2960, "decided"}, {3000, "updating"}, {3110, "updated"}, {4000, "verified"}}},
	}
}

// TestEveryBrokenPromiseIsSeen breaks one promise at a time in a sound history: a checker that says nothing then proves nothing.
func TestEveryBrokenPromiseIsSeen(t *testing.T) {
	at := func(kind string, change func(*Line)) func([]Line) []Line {
		return func(all []Line) []Line {
			change(&all[slices.IndexFunc(all, func(l Line) bool { return l.Kind == kind })])
			return all
		}
	}
	without := func(kind string) func([]Line) []Line {
		return func(all []Line) []Line {
			return slices.DeleteFunc(all, func(l Line) bool { return l.Kind == kind })
		}
	}
	before := func(kind string, more ...Line) func([]Line) []Line {
		return func(all []Line) []Line {
			return slices.Insert(all, slices.IndexFunc(all, func(l Line) bool { return l.Kind == kind }), more...)
		}
	}
	for _, c := range []struct {
		says  string
		spoil func([]Line) []Line
	}{
		{"", func(all []Line) []Line { return all }},
		{"never started", without("start")},
		{"after its hold", at("start", func(l *Line) { l.At = 30000 })},
		{"started twice", before("exit", Line{Kind: "start", At: 8000, Job: 7})},
		{"in the name of 0", at("update", func(l *Line) { l.UID = 0 })},
		{"never held", at("submit", func(l *Line) { l.HoldMillis = 0 })},
		{"after it had started", before("exit", Line{Kind: "update", At: 8000, Job: 7, UID: 1001, Asked: "small"})},
		{"changed 2 times", before("start", Line{Kind: "update", At: 3120, Job: 7, UID: 1001, Asked: "tiny"})},
		{"its owner had acted", before("look", Line{Kind: "owner", At: 2990, Job: 7, Name: "change", Asked: "mine"})},
		{"before a row said so", at("update", func(l *Line) { l.At = 2990 })},
		{"no decision says so", at("row", func(l *Line) { l.After = []string{"other"} })},
		{"has no row", without("row")},
		{"two rows", before("exit", sound()[7])},
		{"goes from decided to updated", at("row", func(l *Line) { l.Events = slices.Delete(l.Events, 6, 7) })},
		{"does not end", at("row", func(l *Line) { l.Events = l.Events[:8] })},
		{"does not end", at("row", func(l *Line) { l.Finished = false })},
		{"ran as 1002", at("probe", func(l *Line) { l.UID = 1002 })},
		{"has 7 probes", at("row", func(l *Line) { l.Probes = make([]string, 7) })},
		{"took 2500 ms", at("submit", func(l *Line) { l.TookMillis = 2500 })},
		{"took 6000 ms to end", at("exit", func(l *Line) { l.TookMillis = 6000 })},
		{"never submitted", without("submit")},
		{"calm time", func(all []Line) []Line {
			all[1].Calm = true
			return without("update")(all)
		}},
	} {
		var text strings.Builder
		for _, l := range c.spoil(sound()) {
			if err := json.NewEncoder(&text).Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		_, broken, err := History(strings.NewReader(text.String()), Played)
		if err != nil {
			t.Fatal(err)
		}
		if found := strings.Join(broken, "\n"); c.says == "" && found != "" || !strings.Contains(found, c.says) {
			t.Errorf("want %q, got %q", c.says, found)
		}
	}
	if _, _, err := History(strings.NewReader(`{"kind":"surprise"}`), Played); err == nil {
		t.Error("a line of an unknown kind was passed over")
	}
}
