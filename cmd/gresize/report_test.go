package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/report"
)

func TestReportForms(t *testing.T) {
	db := filterLog(t)
	var out, errs bytes.Buffer
	call := func(args ...string) string {
		t.Helper()
		out.Reset()
		if code := run(t.Context(), append([]string{"report", "--db", db}, args...), &out, &errs); code != exitOK {
			t.Fatal(args, code, errs.String())
		}
		return out.String()
	}
	text := call()
	for _, says := range []string{"5 jobs of 2 users", "would have been changed (shadow mode) (40.0 %)", "asked for the right card", "any GPU", "5 of 5 jobs gave no time limit", "What these figures do not say"} {
		if !strings.Contains(text, says) {
			t.Errorf("the report does not say %q:\n%s", says, text)
		}
	}
	var sum struct {
		Schema string
		report.Report
	}
	if err := json.Unmarshal([]byte(call("--json", "--user", "4000000001")), &sum); err != nil || sum.Schema != schemaReport || sum.Jobs != 4 || sum.Total.WithoutLimit != 4 || len(sum.NotKnown) < 3 {
		t.Errorf("%+v %v", sum, err)
	}
	if rows, err := csv.NewReader(strings.NewReader(call("--csv"))).ReadAll(); err != nil || len(rows) < 6 || rows[0][0] != "section" {
		t.Errorf("%v %v", rows, err)
	}
	if text := call("--user", "1"); !strings.Contains(text, "No jobs match.") {
		t.Error(text)
	}
}
