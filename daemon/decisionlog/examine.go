package decisionlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/mattn/go-sqlite3"
)

// examineBudget bounds the look at the file before the daemon answers; what a larger file needs is done by Examine meanwhile.
const examineBudget = 250 * time.Millisecond

// damagedSuffix is the name of a file beside the log that says that Examine has found damage in it: the next Open begins a new one.
const damagedSuffix = "-damaged"

var errDamaged = errors.New("the decision log is damaged")

// examine has SQLite look at every page. A page that was overwritten is not seen when the file is opened, but on its first use. It is done
// when the whole file was seen within the budget.
func examine(ctx context.Context, db *sql.DB, budget time.Duration) (done bool, err error) {
	if budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, budget)
		defer cancel()
	}
	var verdict string
	err = db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict)
	var failed sqlite3.Error
	switch {
	case err == nil && verdict == "ok":
		return true, nil
	case err == nil:
		return true, fmt.Errorf("%w: %s", errDamaged, verdict)
	case ctx.Err() != nil || errors.As(err, &failed) && failed.Code == sqlite3.ErrInterrupt:
		return false, nil
	}
	return false, fmt.Errorf("examine decision log: %w", err)
}

func foundDamaged(path string) bool {
	_, err := os.Lstat(path + damagedSuffix)
	return err == nil
}

// Examine looks at the whole file, beside the daemon's own connection, where Open did not have the time. Damage is an error, and is noted beside the
// file: the next Open moves both aside and begins a new log.
func (l *Log) Examine(ctx context.Context) error {
	if l.examined {
		return nil
	}
	db, err := connect(l.path, url.Values{"mode": {"ro"}, "_query_only": {"true"}})
	if err != nil {
		return err
	}
	_, err = examine(ctx, db, 0)
	err = errors.Join(err, db.Close())
	if !damaged(err) {
		return err
	}
	if noteErr := os.WriteFile(l.path+damagedSuffix, []byte(err.Error()+"\n"), 0o600); noteErr != nil && !errors.Is(noteErr, fs.ErrExist) {
		return errors.Join(err, noteErr)
	}
	return err
}
