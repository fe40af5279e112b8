package decisionlog

import (
	"encoding/json"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestForeignFile: another program's database is called what it is, whatever version it says, and keeps every byte.
func TestForeignFile(t *testing.T) {
	for name, text := range map[string]string{
		"no version":      "CREATE TABLE photos (id INTEGER)",
		"its own version": "CREATE TABLE photos (id INTEGER); PRAGMA user_version = 3",
		"a later version": "CREATE TABLE photos (id INTEGER); PRAGMA user_version = 99",
		"jobs of its own": "CREATE TABLE jobs (id INTEGER, token TEXT)",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "photos.db")
			db, err := connect(path, url.Values{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(text); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			_, readErr := OpenReadOnly(t.Context(), path)
			_, writeErr := Open(t.Context(), path)
			for _, err := range []error{readErr, writeErr} {
				if err == nil || !strings.Contains(err.Error(), "no decision log") || strings.Contains(err.Error(), "start gresized") {
					t.Errorf("%v", err)
				}
			}
			if db, err = connect(path, url.Values{}); err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var tables int
			if err := db.QueryRow("SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil || tables != 1 {
				t.Errorf("%d tables, %v", tables, err)
			}
			if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) > 0 {
				t.Errorf("moved to %q", aside)
			}
		})
	}
	empty := filepath.Join(t.TempDir(), "log.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(t.Context(), empty); err == nil || !strings.Contains(err.Error(), "start gresized once") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestNoTimeHidesOtherRows has times in rows that no JSON can say.
func TestNoTimeHidesOtherRows(t *testing.T) {
	l, err := Open(t.Context(), filepath.Join(t.TempDir(), "log.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	times := []int64{math.MaxInt64, math.MinInt64, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Now().UnixMilli()}
	for i, ms := range times {
		at := time.Now()
		ids, err := l.AddJobs(t.Context(), NewJob{Job: Job{Token: string(rune('a' + i)), Mode: "shadow", SubmittedAt: at}, First: Event{At: at, State: "held"}})
		if err != nil {
			t.Fatal(err)
		}
		job := ids[0]
		if _, err := l.db.Exec("UPDATE jobs SET submitted_at = ?, updated_at = ?, begin_at = ?, hold_until = ? WHERE id = ?", ms, ms, ms, ms, job); err != nil {
			t.Fatal(err)
		}
		if _, err := l.db.Exec("UPDATE events SET at = ?", ms); err != nil {
			t.Fatal(err)
		}
	}
	lines, err := l.List(t.Context(), 10, Filter{})
	if err != nil || len(lines) != len(times) {
		t.Fatal(len(lines), err)
	}
	for _, line := range lines {
		if _, err := json.Marshal(line); err != nil {
			t.Errorf("%s: %v", line.Job.Token, err)
		}
		line.Job.SubmittedAt = line.Job.SubmittedAt.In(time.FixedZone("far", 14*3600))
		if _, err := json.Marshal(line); err != nil {
			t.Errorf("%s, elsewhere: %v", line.Job.Token, err)
		}
		story, err := l.StoryByToken(t.Context(), line.Job.Token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(story); err != nil {
			t.Errorf("story of %s: %v", line.Job.Token, err)
		}
	}
}
