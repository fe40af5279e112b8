package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryJSONNamesItsForm: whoever reads what --json prints finds there which form it has.
func TestEveryJSONNamesItsForm(t *testing.T) {
	log, bundle := monthLog(t), "../../estimator/methods/bundled/testdata/vgpu.bundle"
	form := regexp.MustCompile(`^gresize\.[a-z-]+/[0-9]+$`)
	for _, args := range [][]string{
		{"simulate", bundle}, {"simulate", bundle, "--check"}, {"plan", bundle, "--effort", "1"}, {"gpu", "show", "t4"}, {"gpu", "list"},
		{"log", "--db", log}, {"report", "--db", log}, {"replay", "--db", log, "--with", filepath.Join("..", "..", "packaging", "gresize.toml")},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append(args, "--json"), &out, &errs); code != exitOK {
			t.Errorf("%q: exit code %d\n%s", args, code, errs.String())
			continue
		}
		var one struct{ Schema string }
		err := json.Unmarshal(out.Bytes(), &one)
		if args[1] == "list" {
			all := []struct{ Schema string }{}
			if err = json.Unmarshal(out.Bytes(), &all); len(all) > 0 {
				one = all[0]
			}
		}
		if err != nil || !form.MatchString(one.Schema) {
			t.Errorf("%q: %v, form %q:\n%.300s", args, err, one.Schema, out.String())
		}
	}
}
