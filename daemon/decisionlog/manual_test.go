package decisionlog

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	sqlBlock  = regexp.MustCompile("(?s)```sql\n(.*?)```")
	shellText = regexp.MustCompile(`sqlite3 [^'\n]*'(SELECT [^']+)'`)
)

// manualQueries are the queries of docs/decisionlog.md.
func manualQueries(t *testing.T) []string {
	t.Helper()
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "decisionlog.md"))
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, m := range sqlBlock.FindAllStringSubmatch(string(manual), -1) {
		for _, q := range strings.SplitAfter(m[1], ";\n") {
			if strings.TrimSpace(q) != "" {
				queries = append(queries, q)
			}
		}
	}
	for _, m := range shellText.FindAllStringSubmatch(string(manual), -1) {
		queries = append(queries, m[1])
	}
	if len(queries) < 8 {
		t.Fatalf("only %d queries in the manual", len(queries))
	}
	return queries
}

// TestManualQueries runs every query of the manual for an operator who may only read. Each finds rows in a log that has what it asks for.
func TestManualQueries(t *testing.T) {
	l := filledLog(t, 200)
	story, err := os.ReadFile(filepath.Join("testdata", "operators.sql"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.db.Exec(string(story)); err != nil {
		t.Fatal(err)
	}
	var number int
	var name, path string
	if err := l.db.QueryRow("PRAGMA database_list").Scan(&number, &name, &path); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReadOnly(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, q := range manualQueries(t) {
		if n, err := rowsOf(t.Context(), r.db, q); err != nil || n == 0 {
			t.Errorf("%d rows, %v:\n%s", n, err, q)
		}
	}
}

func rowsOf(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	values := make([]any, len(columns))
	for i := range values {
		values[i] = new(any)
	}
	return n, each(rows, func() error { n++; return rows.Scan(values...) })
}
