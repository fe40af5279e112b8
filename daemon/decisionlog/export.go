package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// exports are the tables and views that can be exported, each with an id, and their columns: all but the hash of a probe's key, which is nobody's business.
var exports = map[string]string{
	"jobs": "*", "events": "*", "estimates": "*", "decisions": "*", "actuals": "*", "rescues": "*", "decision_list": "*", "actual_list": "*",
	"probes": "id, job, name, slurm_job_id, requested_at, reported_at, bundle_sha256, bundle_bytes",
}

// ErrNoTable says that there is no such table to export.
var ErrNoTable = errors.New("no such table")

// Exports are the names that Export knows.
func Exports() []string { return slices.Sorted(maps.Keys(exports)) }

// HoldsJSON says whether a column of a table holds a JSON document.
func HoldsJSON(column string) bool {
	return column == "asked" || column == "body" || column == "target" || column == "change" || column == "ranks" || column == "margin"
}

// Export calls write for every row of a table, by id, page by page: whoever reads slowly must not keep the daemon's WAL from being written back.
// A value is an int64, a float64, a string or nil.
func (l *Log) Export(ctx context.Context, table string, write func(columns []string, values []any) error) error {
	what, known := exports[table]
	if !known {
		return fmt.Errorf("%w: %.40q is none of %s", ErrNoTable, table, strings.Join(Exports(), ", "))
	}
	query := `SELECT ` + what + ` FROM ` + table + ` WHERE id > ? ORDER BY id LIMIT ?`
	last := int64(0)
	for {
		page, columns, err := l.exportPage(ctx, query, last)
		if err != nil {
			return fmt.Errorf("export %s: %w", table, err)
		}
		at := slices.Index(columns, "id")
		for _, values := range page {
			if err := write(columns, values); err != nil {
				return err
			}
		}
		if len(page) < pageJobs {
			return nil
		}
		last = page[len(page)-1][at].(int64)
	}
}

func (l *Log) exportPage(ctx context.Context, query string, after int64) (page [][]any, columns []string, err error) {
	rows, err := l.db.QueryContext(ctx, query, after, pageJobs)
	if err != nil {
		return nil, nil, err
	}
	if columns, err = rows.Columns(); err != nil {
		return nil, nil, errors.Join(err, rows.Close())
	}
	err = each(rows, func() error {
		values := make([]any, len(columns))
		places := make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		page = append(page, values)
		return rows.Scan(places...)
	})
	return page, columns, err
}
