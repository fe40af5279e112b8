package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplayWithAnotherTable: the log has a job that was changed to gpu12g, with an estimate of 8 GiB, and one that was left alone without one.
func TestReplayWithAnotherTable(t *testing.T) {
	db := sampleLog(t)
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	table := func(name, rows string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("version = 1\n"+rows), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	row := func(gib int, feature string) string {
		return fmt.Sprintf("[[target]]\nfits = \"%dGiB\"\nconstraint = %q\n", gib, feature)
	}
	for _, c := range []struct {
		name, with    string
		different     int64
		verdict, code string
		says          []string
	}{
		{"as it was", table("same", row(12, "gpu12g")+row(80, "gpu80g")), 0, "", "", []string{"1 job with an estimate", ": 0 differently", "1 of 2 jobs has no estimate", "release of Slurm is not in the log"}},
		{"a larger smallest row", table("larger", row(24, "gpu24g")+row(80, "gpu80g")), 1, "rewrite", "smaller_row_fits", []string{"gpu:1 gpu12g", "gpu:1 gpu24g", "NEEDED, WITH THE FILE"}},
		{"one row", table("one", row(80, "gpu80g")), 1, "keep", "already_smallest", []string{"already_smallest"}},
		{"only exact estimates", table("exact", "[policy]\nact_on = [\"exact\"]\n"+row(12, "gpu12g")+row(80, "gpu80g")), 1, "leave_alone", "confidence_too_low", []string{"leave alone"}},
		{"a card that it was not tried on", table("other", "[gpu.gpu12g]\nprofile = \"rtx3060\"\n"+row(12, "gpu12g")+row(80, "gpu80g")), 1, "leave_alone", "no_estimate_on_card", []string{"1 job would be tried on a card", "no_estimate_on_card: rtx3060", "rtx3060: 1. In shadow mode", "gresize estimate --gpu rtx3060"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := func(form ...string) string {
				var out, errs bytes.Buffer
				if code := run(t.Context(), append([]string{"replay", "--db", db, "--with", c.with}, form...), &out, &errs); code != exitOK {
					t.Fatal(code, errs.String())
				}
				return out.String()
			}
			text := call()
			for _, says := range c.says {
				if !strings.Contains(text, says) {
					t.Errorf("the replay does not say %q:\n%s", says, text)
				}
			}
			var sum replaySum
			if err := json.Unmarshal([]byte(call("--json")), &sum); err != nil || sum.Schema != schemaReplay || sum.Jobs != 2 || sum.WithoutEstimate != 1 || sum.Different != c.different || len(sum.Changes) != int(c.different) {
				t.Fatalf("%+v %v", sum, err)
			}
			if c.different == 1 && (string(sum.Changes[0].Verdict) != c.verdict || sum.Changes[0].Code != c.code) {
				t.Errorf("%+v", sum.Changes[0])
			}
			if rows, err := csv.NewReader(strings.NewReader(call("--csv"))).ReadAll(); err != nil || len(rows) != 1+int(c.different) {
				t.Errorf("%v %v", rows, err)
			}
		})
	}
	for args, says := range map[string]string{"": "--with FILE", "--with " + table("bad", "[gpu.a]\nprofile = \"nope\"\n"): ":3:1: gpu.a.profile", "--with x --slurm-version new": "no Slurm version"} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"replay", "--db", db}, strings.Fields(args)...), &out, &errs); code == exitOK || !strings.Contains(errs.String(), says) {
			t.Errorf("%s: %d %s", args, code, errs.String())
		}
	}
	if after, err := os.ReadFile(db); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the log was changed: %v", err)
	}
}
