// Package decisionlog owns the SQLite file in which every step of gresize is a
// row before it is acted upon: its schema, its migrations, appending and
// reading. It is the only user of SQLite and decides nothing.
package decisionlog

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/internal/regular"
)

// minSQLite is the first release without the race between a write and a checkpoint of the WAL.
const minSQLite = 3051003

// synchronousFull is the value of PRAGMA synchronous that survives a power cut.
const synchronousFull = 2

//go:embed migrations/*.sql
var migrationFiles embed.FS

// ErrNoLog says that the file is something else than a decision log.
var ErrNoLog = errors.New("no decision log")

// ErrNewerSchema says that the file was written by a later release; it is refused, never renamed or changed.
var ErrNewerSchema = errors.New("the decision log was written by a newer gresize")

// Log is an open decision log. It is safe for concurrent use.
type Log struct {
	db *sql.DB
	// Replaced is where a damaged file was moved to when a new one had to be begun, or "".
	Replaced string

	observer func(Observation)
	// wrote is when a write last succeeded, in Unix nanoseconds; see Writable.
	wrote atomic.Int64
	path  string
	// examined says that Open had the time to look at the whole file.
	examined bool
}

// Open opens the log for the daemon and brings its schema up to date. A damaged file is moved aside
// and a new one is begun: the log must not keep the daemon from answering.
func Open(ctx context.Context, path string) (*Log, error) {
	l, err := open(ctx, path)
	if err == nil && foundDamaged(path) {
		err = errors.Join(errDamaged, l.Close())
	}
	if err == nil || !damaged(err) {
		return l, err
	}
	aside := path + ".corrupt-" + time.Now().UTC().Format("20060102T150405Z")
	for _, suffix := range []string{"", "-wal", "-shm", damagedSuffix} {
		if renameErr := os.Rename(path+suffix, aside+suffix); renameErr != nil && !errors.Is(renameErr, fs.ErrNotExist) {
			return nil, fmt.Errorf("move the damaged decision log aside: %w", errors.Join(renameErr, err))
		}
	}
	if l, err = open(ctx, path); err != nil {
		return nil, err
	}
	l.Replaced = aside
	return l, nil
}

// OpenReadOnly opens the log of a daemon that may be running. It changes nothing.
func OpenReadOnly(ctx context.Context, path string) (*Log, error) {
	if err := regular.Check(path); err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	// SQLite says no more than that it cannot open the file. It is not opened here to find out: closing it would end the locks that this process has on it.
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK, unix.AT_EACCESS); err != nil {
		return nil, fmt.Errorf("open decision log: %w", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	db, err := connect(path, url.Values{"mode": {"ro"}, "_query_only": {"true"}})
	if err != nil {
		return nil, err
	}
	have, want, err := versions(ctx, db)
	if err == nil {
		err = ours(ctx, db, path)
	}
	switch {
	case damaged(err):
		err = fmt.Errorf("%s: it is %w, or a damaged one: %w", path, ErrNoLog, err)
	case err != nil:
	case have == 0:
		err = fmt.Errorf("%s: it is %w: there is nothing in it (start gresized once, it begins one)", path, ErrNoLog)
	case have > want:
		err = newer(path, have, want)
	case have < want:
		err = fmt.Errorf("the decision log %s has schema %d and this gresize reads %d: start gresized once, it brings the file up to date", path, have, want)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Log{db: db}, nil
}

// Close ends the use of the log.
func (l *Log) Close() error { return l.db.Close() }

// writableFor is how long a write that succeeded answers the question of Writable.
const writableFor = time.Second

// Writable says why no row can be written now, nil when one can. It writes when nobody has just done so.
func (l *Log) Writable(ctx context.Context) error {
	if time.Since(time.Unix(0, l.wrote.Load())) < writableFor {
		return nil
	}
	err := l.inTransaction(ctx, func(tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version))
		return err
	})
	if err != nil {
		return fmt.Errorf("the decision log cannot be written: %w", err)
	}
	return nil
}

// Ping asks whether the file still answers.
func (l *Log) Ping(ctx context.Context) error {
	var one int
	return l.db.QueryRowContext(ctx, "SELECT 1 FROM jobs UNION ALL SELECT 1 LIMIT 1").Scan(&one)
}

func connect(path string, query url.Values) (*sql.DB, error) {
	query.Set("_busy_timeout", "5000")
	query.Set("_foreign_keys", "true")
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	source := url.URL{Scheme: "file", Path: absolute, RawQuery: query.Encode()}
	db, err := sql.Open("sqlite3", source.String())
	if err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	// One connection: writes are in order, and the WAL has one writer.
	db.SetMaxOpenConns(1)
	return db, nil
}

func open(ctx context.Context, path string) (*Log, error) {
	if _, number, _ := sqlite3.Version(); number < minSQLite {
		return nil, fmt.Errorf("open decision log: SQLite %d is too old, %d is needed", number, minSQLite)
	}
	// The file names jobs and folders of users: nobody but its owner reads it. SQLite gives the -wal and -shm files the same mode.
	file, err := regular.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("open decision log: %w", err)
	}
	db, err := connect(path, url.Values{"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"}})
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, db, path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l := &Log{db: db, path: path}
	if l.examined, err = examine(ctx, db, examineBudget); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return l, nil
}

func prepare(ctx context.Context, db *sql.DB, path string) error {
	have, want, err := versions(ctx, db)
	if err == nil {
		err = ours(ctx, db, path)
	}
	if err != nil {
		return err
	}
	if have > want {
		return newer(path, have, want)
	}
	if err := migrate(ctx, db, have); err != nil {
		return err
	}
	var journal string
	var synchronous int
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return fmt.Errorf("open decision log: %w", err)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return fmt.Errorf("open decision log: %w", err)
	}
	if journal != "wal" || synchronous != synchronousFull {
		return fmt.Errorf("open decision log: journal mode %q and synchronous %d, want wal and %d (is %s on a network file system?)", journal, synchronous, synchronousFull, path)
	}
	return nil
}

// ours refuses the database of another program: a reader would find nothing in it, and the daemon would put its tables there. An empty file is a log that is about to be begun.
func ours(ctx context.Context, db *sql.DB, path string) error {
	var things, columns int
	err := db.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM sqlite_master), (SELECT count(*) FROM pragma_table_info('jobs') WHERE name IN ('token', 'fingerprint', 'submitted_at'))").Scan(&things, &columns)
	if err != nil {
		return fmt.Errorf("open decision log: %w", err)
	}
	if things > 0 && columns < 3 {
		return fmt.Errorf("%s is an SQLite file and %w: it has no table of jobs; name the file that gresized writes (log.path)", path, ErrNoLog)
	}
	return nil
}

func newer(path string, have, want int) error {
	return fmt.Errorf("%w: %s has schema %d, this program knows up to %d; install the newer release again, or move the file away to begin a new log", ErrNewerSchema, path, have, want)
}

func versions(ctx context.Context, db *sql.DB) (have, want int, err error) {
	names, err := migrationNames()
	if err != nil {
		return 0, 0, err
	}
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return 0, 0, fmt.Errorf("open decision log: %w", err)
	}
	return have, len(names), nil
}

func migrationNames() ([]string, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	sort.Strings(names)
	return names, nil
}

// migrate runs the steps after version have, each in a transaction of its own.
func migrate(ctx context.Context, db *sql.DB, have int) error {
	names, err := migrationNames()
	if err != nil {
		return err
	}
	for i, name := range names[have:] {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("migrate decision log: %w", err)
		}
		if _, err := tx.ExecContext(ctx, string(text)+fmt.Sprintf("\nPRAGMA user_version = %d;", have+i+1)); err != nil {
			return errors.Join(fmt.Errorf("migrate decision log with %s: %w", name, err), tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("migrate decision log with %s: %w", name, err)
		}
	}
	return nil
}

func damaged(err error) bool {
	var failed sqlite3.Error
	return errors.Is(err, errDamaged) || errors.As(err, &failed) && (failed.Code == sqlite3.ErrCorrupt || failed.Code == sqlite3.ErrNotADB)
}
