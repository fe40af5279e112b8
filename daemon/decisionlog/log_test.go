package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/daemon/decision"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/slurm/request"
)

var at = time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)

func openLog(t *testing.T) (*Log, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log with blank.db")
	l, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

func sampleJob(token string) Job {
	return Job{Token: token, Mode: "enforce", UID: 1001, GID: 100, Name: "train\xff", Partition: "gpu", WorkDir: "/home/a b", Asked: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu80g"},
		Profile: "a100-80", Fingerprint: "f", ScriptSHA256: "s", SubmittedAt: at, HoldUntil: at.Add(time.Minute), TimeLimitMinutes: 90, SlurmVersion: "22.05.8", Tasks: 1}
}

func TestWholeStory(t *testing.T) {
	ctx := t.Context()
	l, path := openLog(t)
	ids, err := l.AddJobs(ctx, NewJob{Job: sampleJob("tok"), First: Event{At: at, State: "held", Detail: "first"}})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	answer := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "vgpu", GPU: "a100-80", Confidence: estimator.High, Fits: true, Steps: 4, Reasons: []estimator.Reason{{Code: "workspace_bounded"}},
		Ranks: []estimator.Rank{{PeakReservedBytes: 5, ComfortableBytes: 5, ComfortableHighBytes: 7}}}
	decision := Decision{At: at, Verdict: decision.Rewrite, Code: "smaller_row_fits", Reason: "because", MarginBytes: 1, NeedBytes: 8, Target: request.Target{Constraint: "gpu12g"},
		Change: request.Change{Set: []request.Assignment{{Key: "Features", Value: "gpu12g"}}, Result: request.Request{TresPerNode: "gres:gpu:1", Features: "gpu12g"}}}
	for _, step := range []Transition{
		{From: "held", To: "found", SlurmJobID: 7}, {From: "found", To: "probing", NewProbe: &Probe{Name: "p1", KeySHA256: "hash"}},
		{From: "probing", To: "reported", Reported: &Probe{Name: "p1", BundleSHA256: "sum", BundleBytes: 9}}, {From: "reported", To: "estimated", Estimate: &answer},
		{From: "estimated", To: "decided", Decision: &decision, Code: decision.Code}, {From: "decided", To: "verified", Finished: true, NodeList: "gpu1"},
	} {
		step.Job, step.At = id, at
		if err := l.Advance(ctx, step); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetProbeJob(ctx, "p1", 8); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenReadOnly(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	story, err := reader.Story(ctx, 7)
	if err != nil {
		t.Fatal(err)
	}
	want := sampleJob("tok")
	want.ID, want.State, want.Finished, want.SlurmJobID, want.UpdatedAt, want.NodeList, want.Name = id, "verified", true, 7, at, "gpu1", "train\uFFFD"
	if diff := cmp.Diff(want, story.Job); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Decision{decision}, story.Decisions); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]estimator.Estimate{answer}, story.Estimates); diff != "" {
		t.Error(diff)
	}
	if len(story.Events) != 7 || len(story.Probes) != 1 || story.Probes[0].SlurmJobID != 8 || story.Probes[0].BundleBytes != 9 {
		t.Errorf("%+v %+v", story.Events, story.Probes)
	}
	lines, err := reader.List(ctx, 10, Filter{})
	if err != nil || len(lines) != 1 || lines[0].Decision == nil || lines[0].Confidence != "high" || lines[0].ComfortableHighBytes != 7 {
		t.Errorf("%+v %v", lines, err)
	}
	other := uint32(5)
	if lines, err = reader.List(ctx, 10, Filter{UID: &other}); err != nil || len(lines) != 0 {
		t.Errorf("jobs of another user: %+v %v", lines, err)
	}
	if _, err := reader.StoryByToken(ctx, "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := reader.AddJobs(ctx, NewJob{Job: sampleJob("x"), First: Event{At: at, State: "held"}}); err == nil {
		t.Error("a log that was opened for reading was written")
	}
	if open, err := l.Unfinished(ctx); err != nil || len(open) != 0 {
		t.Errorf("%v %v", open, err)
	}
}

func TestTransitionsAreGuarded(t *testing.T) {
	ctx := t.Context()
	l, _ := openLog(t)
	ids, err := l.AddJobs(ctx, NewJob{Job: sampleJob("tok"), First: Event{At: at, State: "held"}})
	if err != nil {
		t.Fatal(err)
	}
	id := ids[0]
	if err := l.Advance(ctx, Transition{Job: id, From: "found", To: "probing", At: at}); !errors.Is(err, ErrStateChanged) {
		t.Errorf("from a state in which it is not: %v", err)
	}
	// One part that cannot be stored undoes the whole transition.
	if err := l.Advance(ctx, Transition{Job: id, From: "held", To: "found", At: at, NewProbe: &Probe{Name: "p"}, Decision: &Decision{Verdict: "reject"}}); err == nil {
		t.Error("a verdict that does not exist was stored")
	}
	story, err := l.StoryByToken(ctx, "tok")
	if err != nil || story.Job.State != "held" || len(story.Probes) != 0 || len(story.Events) != 1 {
		t.Errorf("half a transition was stored: %+v %v", story, err)
	}
	if err := l.Advance(ctx, Transition{Job: id, From: "held", To: "abandoned", At: at, Finished: true}); err != nil {
		t.Fatal(err)
	}
	if err := l.Advance(ctx, Transition{Job: id, From: "abandoned", To: "held", At: at}); !errors.Is(err, ErrStateChanged) {
		t.Errorf("a finished job was moved: %v", err)
	}
	if _, err := l.AddJobs(ctx, NewJob{Job: sampleJob("tok"), First: Event{At: at, State: "held"}}); err == nil {
		t.Error("a token was stored twice")
	}
}

func TestFileIsPrivateAndFullySynced(t *testing.T) {
	l, path := openLog(t)
	if _, err := l.AddJobs(t.Context(), NewJob{Job: sampleJob("tok"), First: Event{At: at, State: "held"}}); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", suffix, info, err)
		}
	}
	var synchronous int
	if err := l.db.QueryRow("PRAGMA synchronous").Scan(&synchronous); err != nil || synchronous != 2 {
		t.Errorf("synchronous %d %v", synchronous, err)
	}
}

func TestNewerSchemaIsRefusedByName(t *testing.T) {
	l, path := openLog(t)
	if _, err := l.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	l.Close()
	for name, open := range map[string]func(context.Context, string) (*Log, error){"writer": Open, "reader": OpenReadOnly} {
		_, err := open(t.Context(), path)
		if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "99") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if files, _ := filepath.Glob(path + ".corrupt-*"); len(files) != 0 {
		t.Errorf("a newer file was moved: %v", files)
	}
}

func TestDamagedFileIsMovedAside(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"foreign": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("no database at all ", 100)), 0o600)
		},
		"header": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(make([]byte, 4096), 0)
			return err
		},
		// What is not seen when the file is opened: a page of each table, a file that is cut, and damage that was found while the daemon ran.
		"table jobs":   overwritePageOf("jobs"),
		"table events": overwritePageOf("events"),
		"half a file": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, info.Size()/2/4096*4096)
		},
		"found later": func(path string) error {
			l := &Log{path: path} // as one that Open had no time to look at
			if err := l.Examine(context.Background()); err != nil {
				return fmt.Errorf("a sound file: %w", err)
			}
			if err := overwritePageOf("jobs")(path); err != nil {
				return err
			}
			if err := l.Examine(context.Background()); !errors.Is(err, errDamaged) && !damaged(err) {
				return fmt.Errorf("the damage was not found: %w", err)
			}
			if _, err := os.Stat(path + damagedSuffix); err != nil {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := openLog(t)
			for i := range 200 {
				if _, err := l.AddJobs(t.Context(), NewJob{Job: sampleJob(fmt.Sprint(i)), First: Event{At: at, State: "held"}}); err != nil {
					t.Fatal(err)
				}
			}
			l.Close()
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			l, err := Open(t.Context(), path)
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("a new log after %s", took)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if l.Replaced == "" || !strings.HasPrefix(l.Replaced, path+".corrupt-") {
				t.Errorf("moved to %q", l.Replaced)
			}
			if _, err := os.Stat(l.Replaced); err != nil {
				t.Error(err)
			}
			if open, err := l.Unfinished(t.Context()); err != nil || len(open) != 0 {
				t.Errorf("%d jobs in a new log: %v", len(open), err)
			}
			if _, err := l.AddJobs(t.Context(), NewJob{Job: sampleJob("tok"), First: Event{At: at, State: "held"}}); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := Open(t.Context(), t.TempDir()); err == nil {
		t.Error("a folder was opened as a log")
	}
}

// overwritePageOf spoils the first page of a table.
func overwritePageOf(table string) func(string) error {
	return func(path string) error {
		db, err := connect(path, url.Values{})
		if err != nil {
			return err
		}
		var page, bytes int64
		err = errors.Join(db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = ?", table).Scan(&page), db.QueryRow("PRAGMA page_size").Scan(&bytes), db.Close())
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte(strings.Repeat("damage! ", int(bytes/8))), (page-1)*bytes)
		return errors.Join(err, f.Close())
	}
}

func TestReaderWhileTheDaemonWrites(t *testing.T) {
	l, path := openLog(t)
	const rows = 200
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range rows {
			if _, err := l.AddJobs(context.Background(), NewJob{Job: sampleJob(fmt.Sprint(i)), First: Event{At: at, State: "held"}}); err != nil {
				t.Error(err)
			}
		}
	})
	last := 0
	for last < rows && !t.Failed() {
		r, err := OpenReadOnly(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := r.List(t.Context(), rows, Filter{})
		if err != nil || len(lines) < last {
			t.Fatalf("%d rows after %d: %v", len(lines), last, err)
		}
		last = len(lines)
		r.Close()
	}
	wait.Wait()
}

// TestManualNamesEverything holds docs/decisionlog.md to the schema.
func TestManualNamesEverything(t *testing.T) {
	l, _ := openLog(t)
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "decisionlog.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := l.db.Query("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(names) < 8 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if !strings.Contains(string(manual), "| `"+name+"` |") {
			t.Errorf("the manual does not name %s", name)
		}
		if _, err := l.db.Exec("SELECT * FROM " + name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
