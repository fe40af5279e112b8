package decisionlog

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// answeredSuffix is the name of the file beside the log that holds the number of the life and how many submissions it has answered. It is written at each
// answer and never synced: it outlives kill -9, and after a power cut it is not asked.
const answeredSuffix = "-answered"

// Life numbers the submissions that are answered between one start of the daemon and its end.
type Life struct {
	log *Log
	id  int64

	mu       sync.Mutex
	answered int64
	file     *os.File
}

// Missing is a life that is over of which not every answer has a row.
type Missing struct {
	Life, Answered, Recorded int64
	Began                    time.Time
}

// BeginLife closes the account of the life before, begins another one, and returns of the one before what is missing, nil when nothing is or it is not known.
func (l *Log) BeginLife(ctx context.Context, now time.Time) (*Life, *Missing, error) {
	file, err := os.OpenFile(l.path+answeredSuffix, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("begin a life: %w", err)
	}
	life := &Life{log: l, file: file}
	missing, err := l.beginLife(ctx, now, life)
	if err == nil {
		err = life.note()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("begin a life: %w", errors.Join(err, file.Close()))
	}
	return life, missing, nil
}

func (l *Log) beginLife(ctx context.Context, now time.Time, life *Life) (missing *Missing, err error) {
	var last [16]byte
	if _, err := life.file.ReadAt(last[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	before, answered := int64(binary.BigEndian.Uint64(last[:8])), int64(binary.BigEndian.Uint64(last[8:]))
	err = l.inTransaction(ctx, func(tx *sql.Tx) error {
		// After a power cut the file may be older than the rows: such a number says nothing.
		if _, err := tx.ExecContext(ctx, `UPDATE lives SET answered = ? WHERE id = ? AND ended_at IS NULL AND recorded <= ?`, answered, before, answered); err != nil {
			return err
		}
		var m Missing
		var began int64
		switch err := tx.QueryRowContext(ctx, `SELECT id, began_at, answered, recorded FROM lives WHERE id = (SELECT max(id) FROM lives) AND answered > recorded`).Scan(&m.Life, &began, &m.Answered, &m.Recorded); {
		case err == nil:
			m.Began = time.UnixMilli(began)
			missing = &m
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		done, err := tx.ExecContext(ctx, `INSERT INTO lives (began_at) VALUES (?)`, millis(now))
		if err != nil {
			return err
		}
		life.id, err = done.LastInsertId()
		return err
	})
	return missing, err
}

// Next is the number of the next submission, and of its life. A nil Life numbers nothing.
func (f *Life) Next() (life, number int64) {
	if f == nil {
		return 0, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answered++
	// What cannot be noted is missing in the account only if the daemon is killed, too.
	_ = f.note()
	return f.id, f.answered
}

func (f *Life) note() error {
	var now [16]byte
	binary.BigEndian.PutUint64(now[:8], uint64(f.id))
	binary.BigEndian.PutUint64(now[8:], uint64(f.answered))
	_, err := f.file.WriteAt(now[:], 0)
	return err
}

// End closes the account. Nothing may be answered any more.
func (f *Life) End(ctx context.Context, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.log.db.ExecContext(ctx, `UPDATE lives SET ended_at = ?, answered = ? WHERE id = ?`, millis(now), f.answered, f.id)
	if err = errors.Join(err, f.file.Close()); err != nil {
		return fmt.Errorf("end a life: %w", err)
	}
	return nil
}

// Lives returns what every life has answered and recorded, oldest first; Answered is -1 where it is not known.
func (l *Log) Lives(ctx context.Context) ([]Missing, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT id, began_at, coalesce(answered, -1), recorded FROM lives ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("read lives: %w", err)
	}
	var all []Missing
	return all, each(rows, func() error {
		var m Missing
		var began int64
		err := rows.Scan(&m.Life, &began, &m.Answered, &m.Recorded)
		m.Began = time.UnixMilli(began)
		all = append(all, m)
		return err
	})
}
