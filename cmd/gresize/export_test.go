package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/decisionlog"
)

func TestExportWritesEveryRow(t *testing.T) {
	db := sampleLog(t)
	call := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"export", "--db", db}, args...), &out, &errs); code != exitOK {
			t.Fatal(args, code, errs.String())
		}
		return out.String()
	}
	for table, want := range map[string]int{"": 2, "decision_list": 2, "jobs": 2, "events": 5, "probes": 1, "estimates": 1, "decisions": 2, "actuals": 0} {
		args := strings.Fields(table)
		lines := bufio.NewScanner(strings.NewReader(call(args...)))
		var objects []map[string]any
		for lines.Scan() {
			var object map[string]any
			if err := json.Unmarshal(lines.Bytes(), &object); err != nil {
				t.Errorf("%s: %v: %s", table, err, lines.Text())
			}
			objects = append(objects, object)
		}
		if len(objects) != want {
			t.Errorf("%s: %d lines, want %d", table, len(objects), want)
		}
		switch table {
		case "jobs":
			if asked, ok := objects[0]["asked"].(map[string]any); !ok || asked["features"] != "gpu80g" || objects[0]["job_name"] != "tr\x1b[2Jain" {
				t.Errorf("%v", objects[0])
			}
		case "probes":
			if _, there := objects[0]["key_sha256"]; there {
				t.Error("the hash of a key was exported")
			}
		}
		rows, err := csv.NewReader(strings.NewReader(call(append(args, "--csv")...))).ReadAll()
		if err != nil || len(rows) != want+min(want, 1) {
			t.Errorf("%s: %d rows of CSV, %v", table, len(rows), err)
		}
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"export", "--db", db, "sqlite_schema"}, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), strings.Join(decisionlog.Exports(), ", ")) {
		t.Error(code, errs.String())
	}
}
