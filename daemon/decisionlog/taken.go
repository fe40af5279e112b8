package decisionlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// TakenFrom is the row of the job whose probe found the answer that this job was given; 0: its own. The row may have been deleted since.
func (l *Log) TakenFrom(ctx context.Context, job int64) (int64, error) {
	var from int64
	err := l.db.QueryRowContext(ctx, `SELECT from_job FROM estimates WHERE job = ? AND from_job IS NOT NULL ORDER BY id DESC LIMIT 1`, job).Scan(&from)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("read estimates: %w", err)
	}
	return from, nil
}
