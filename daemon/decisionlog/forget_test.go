package decisionlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/gresize/gresize/daemon/decision"
)

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(query, err)
	}
	return n
}

// TestForgetIsBoundedAndSparesOpenJobs: the oldest go first, no more than asked for at once, with all that belongs to them.
func TestForgetIsBoundedAndSparesOpenJobs(t *testing.T) {
	l := filledLog(t, 500)
	if _, err := l.db.Exec("UPDATE jobs SET finished = 0, state = 'probing' WHERE id IN (1, 40, 450); INSERT INTO actuals (job, at, source, outcome, peak_bytes) VALUES (2, 0, 'reported', 'completed', 1), (499, 0, 'reported', 'completed', 1)"); err != nil {
		t.Fatal(err)
	}
	before := instant(1795000000000 + 90000 + 401*1000) // job 401 ended then, and is not older
	var deleted []int64
	for {
		n, err := l.Forget(t.Context(), before, 150)
		if err != nil {
			t.Fatal(err)
		}
		deleted = append(deleted, n)
		if n == 0 {
			break
		}
		if len(deleted) == 1 && count(t, l.db, "SELECT min(id) FROM jobs WHERE finished = 1") != 153 {
			t.Error("the oldest did not go first")
		}
	}
	if fmt.Sprint(deleted) != "[150 150 98 0]" {
		t.Errorf("%v", deleted)
	}
	if n := count(t, l.db, "SELECT count(*) FROM jobs WHERE id IN (1, 40, 450)"); n != 3 {
		t.Errorf("%d of 3 open jobs are left", n)
	}
	if n := count(t, l.db, "SELECT count(*) FROM jobs"); n != 102 {
		t.Errorf("%d jobs are left", n)
	}
	for _, table := range []string{"events", "estimates", "decisions", "actuals"} {
		if n := count(t, l.db, "SELECT count(*) FROM "+table+" WHERE job NOT IN (SELECT id FROM jobs)"); n != 0 {
			t.Errorf("%d rows of %s have lost their job", n, table)
		}
		if count(t, l.db, "SELECT count(*) FROM "+table) == 0 {
			t.Errorf("nothing is left of %s", table)
		}
	}
}

// TestBackupWhileTheDaemonWrites makes backups in the manual's two ways while jobs are written, and reads them as a log.
func TestBackupWhileTheDaemonWrites(t *testing.T) {
	l, path := openLog(t)
	ctx, stop := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := l.AddJobs(context.Background(), NewJob{Job: sampleJob(fmt.Sprint(i)), First: Event{At: at, State: "held"}, Decision: &Decision{At: at, Verdict: decision.Keep, Code: "already_smallest"}}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond)
		}
	})
	defer wait.Wait()
	defer stop()
	for name, backup := range map[string]func(from *Log, to string) error{
		"VACUUM INTO": func(from *Log, to string) error {
			_, err := from.db.Exec("VACUUM INTO ?", to)
			return err
		},
		".backup": onlineBackup,
	} {
		// Some jobs are there, and more arrive meanwhile.
		for have := 0; have < 50; have = count(t, l.db, "SELECT count(*) FROM jobs") {
			time.Sleep(5 * time.Millisecond)
		}
		reader, err := OpenReadOnly(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		// The operator's sqlite3 may write a file of its own; the log itself is only read.
		if _, err := reader.db.Exec("PRAGMA query_only = off"); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "backup.db")
		if err := backup(reader, to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
		copied, err := Open(t.Context(), to)
		if err != nil || copied.Replaced != "" {
			t.Fatalf("%s: %v", name, err)
		}
		jobs := count(t, copied.db, "SELECT count(*) FROM jobs")
		if jobs < 50 || count(t, copied.db, "SELECT count(*) FROM events") != jobs || count(t, copied.db, "SELECT count(*) FROM decisions") != jobs {
			t.Errorf("%s: %d jobs, and not as many events and decisions", name, jobs)
		}
		var sound string
		if err := copied.db.QueryRow("PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
			t.Errorf("%s: %s %v", name, sound, err)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
}

// onlineBackup is what .backup of the sqlite3 program does.
func onlineBackup(from *Log, to string) error {
	db, err := sql.Open("sqlite3", to)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	target, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer target.Close()
	source, err := from.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer source.Close()
	return target.Raw(func(t any) error {
		return source.Raw(func(s any) error {
			copying, err := t.(*sqlite3.SQLiteConn).Backup("main", s.(*sqlite3.SQLiteConn), "main")
			if err != nil {
				return err
			}
			_, err = copying.Step(-1)
			return errors.Join(err, copying.Finish())
		})
	})
}
