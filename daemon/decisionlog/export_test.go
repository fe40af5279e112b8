package decisionlog

import (
	"errors"
	"slices"
	"testing"
)

// TestExportCrossesPages: no row is lost or repeated where one page ends and the next begins.
func TestExportCrossesPages(t *testing.T) {
	const jobs = 2*pageJobs + 7
	l := filledLog(t, jobs)
	for _, table := range Exports() {
		var total int
		if err := l.db.QueryRow("SELECT count(*) FROM " + table).Scan(&total); err != nil {
			t.Fatal(err)
		}
		var last int64
		n := 0
		if err := l.Export(t.Context(), table, func(columns []string, values []any) error {
			id := values[slices.Index(columns, "id")].(int64)
			if id <= last {
				t.Fatalf("%s: row %d after %d", table, id, last)
			}
			last = id
			n++
			return nil
		}); err != nil || n != total || total == 0 && !slices.Contains([]string{"actuals", "actual_list", "probes", "rescues"}, table) {
			t.Errorf("%s: %d of %d rows, %v", table, n, total, err)
		}
	}
	full := errors.New("disk full")
	if err := l.Export(t.Context(), "jobs", func([]string, []any) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}
