package decisionlog

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/decision"
)

// TestFromEachEarlierSchema opens files as earlier releases wrote them (tools/decisionlog/dump-fixture) and compares what the log says of their jobs.
func TestFromEachEarlierSchema(t *testing.T) {
	names, err := migrationNames()
	if err != nil {
		t.Fatal(err)
	}
	fixtures, err := filepath.Glob(filepath.Join("testdata", "schema-*.sql"))
	if err != nil || len(fixtures) != len(names)-1 {
		t.Fatalf("%d schemas and %d fixtures of earlier ones: %v", len(names), len(fixtures), err)
	}
	for _, fixture := range fixtures {
		t.Run(filepath.Base(fixture), func(t *testing.T) {
			text, err := os.ReadFile(fixture)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "log.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := connect(path, url.Values{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("PRAGMA journal_mode = WAL; " + string(text)); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenReadOnly(t.Context(), path); err == nil || !strings.Contains(err.Error(), "start gresized once") {
				t.Errorf("a reader met the earlier schema: %v", err)
			}
			l, err := Open(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			lines, err := l.List(t.Context(), 10, Filter{})
			if err != nil || len(lines) != 3 {
				t.Fatal(len(lines), err)
			}
			var tokens []string
			for _, line := range lines {
				tokens = append(tokens, line.Job.Token)
			}
			if diff := cmp.Diff([]string{"tokalone", "tokopen", "tokrewritten"}, tokens); diff != "" {
				t.Error(diff)
			}
			for verdict, want := range map[decision.Verdict]string{decision.Rewrite: "tokrewritten", decision.LeaveAlone: "tokalone"} {
				got, err := l.List(t.Context(), 10, Filter{Verdict: verdict})
				if err != nil || len(got) != 1 || got[0].Job.Token != want || got[0].Decision.Verdict != verdict {
					t.Errorf("%s: %+v %v", verdict, got, err)
				}
			}
			story, err := l.StoryByToken(t.Context(), "tokrewritten")
			if err != nil || len(story.Events) != 7 || len(story.Probes) != 1 || len(story.Estimates) != 1 || len(story.Decisions) != 2 || story.Job.TimeLimitMinutes != 0 || story.Job.SlurmVersion != "" {
				t.Errorf("%+v %v", story, err)
			}
			// The daemon goes on with the open job.
			open, err := l.Unfinished(t.Context())
			if err != nil || len(open) != 1 {
				t.Fatalf("%+v %v", open, err)
			}
			if err := l.Advance(t.Context(), Transition{Job: open[0].Job.ID, From: "held", To: "released", At: at, Finished: true, Decision: &Decision{At: at, Verdict: decision.Keep, Code: "already_smallest"}}); err != nil {
				t.Fatal(err)
			}
			if kept, err := l.List(t.Context(), 10, Filter{Verdict: decision.Keep}); err != nil || len(kept) != 1 || kept[0].Job.Token != "tokopen" {
				t.Errorf("%+v %v", kept, err)
			}
			for _, q := range manualQueries(t) {
				if _, err := rowsOf(t.Context(), l.db, q); err != nil {
					t.Errorf("%v:\n%s", err, q)
				}
			}
			if diff := cmp.Diff(schemaOf(t, l), schemaOf(t, first(openLog(t)))); diff != "" {
				t.Errorf("an old file and a new one differ: %s", diff)
			}
		})
	}
}

func first(l *Log, _ string) *Log { return l }

func schemaOf(t *testing.T, l *Log) []string {
	t.Helper()
	rows, err := l.db.Query("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	if err := each(rows, func() error {
		var text string
		err := rows.Scan(&text)
		all = append(all, text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
