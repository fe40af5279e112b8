package decisionlog

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	sqlBlock  = regexp.MustCompile("(?s)```sql\n(.*?)```")
	shellText = regexp.MustCompile(`sqlite3 [^'"\n]*(?:'(SELECT [^']+)'|"(SELECT [^"]+)")`)
)

// manualQueries are the queries of every page of the manual: those of docs/decisionlog.md, and what any other page has a reader type.
func manualQueries(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	var queries []string
	for _, page := range append(pages, filepath.Join("..", "..", "README.md"), filepath.Join("..", "..", "RELIABILITY.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := queriesOf(string(text))
		if mentions := strings.Count(string(text), "```sql\n"); len(found) < mentions {
			t.Errorf("%s: %d queries were read of %d blocks", page, len(found), mentions)
		}
		queries = append(queries, found...)
	}
	if len(queries) < 8 {
		t.Fatalf("only %d queries in the manual", len(queries))
	}
	return queries
}

// queriesOf are the queries of one page: blocks of SQL, and what is given to sqlite3 in a line for the shell.
func queriesOf(page string) (queries []string) {
	for _, m := range sqlBlock.FindAllStringSubmatch(page, -1) {
		for _, q := range strings.SplitAfter(m[1], ";\n") {
			if strings.TrimSpace(q) != "" {
				queries = append(queries, q)
			}
		}
	}
	for _, m := range shellText.FindAllStringSubmatch(page, -1) {
		queries = append(queries, m[1]+m[2])
	}
	return queries
}

func TestQueriesOfAPageAreFound(t *testing.T) {
	page := "text\n```sql\nSELECT 1;\nSELECT 2\nFROM x;\n```\n```sh\nsqlite3 -readonly /a.db 'SELECT 3'\nsqlite3 /a.db \"SELECT 'four'\"\nsqlite3 /a.db \".backup '/b'\"\n```\n"
	if got, want := queriesOf(page), []string{"SELECT 1;\n", "SELECT 2\nFROM x;\n", "SELECT 3", "SELECT 'four'"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
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
