package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/epilog"
)

// TestActualAdd plays munge and gresized: what is sent is what was said, and what gresized refuses is told.
func TestActualAdd(t *testing.T) {
	dir := t.TempDir()
	munge := filepath.Join(dir, "munge")
	if err := os.WriteFile(munge, []byte("#!/bin/sh\n[ \"$1\" = --socket="+dir+"/m ] && exec cat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var got epilog.Told
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			got, err = epilog.ParseTold(body)
		}
		if err != nil || r.URL.Path != epilog.PathTold || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		if status != http.StatusOK {
			http.Error(w, "not a credential of root or SlurmUser of this cluster", status)
			return
		}
		_ = json.NewEncoder(w).Encode(epilog.ToldAnswer{JobID: got.JobID, Run: 1, Outcome: "completed", EstimateBytes: 20 << 30})
	}))
	t.Cleanup(server.Close)
	conf := filepath.Join(dir, "gresize.toml")
	if err := os.WriteFile(conf, []byte("version = 1\n[probe]\nurl = \""+server.URL+"/\"\n[actuals]\nmunge_socket = \""+dir+"/m\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = run(t.Context(), append([]string{"actual", "add", "--config", conf, "--munge", munge}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, out, errs := call("--job", "123", "--run", "1", "--node", "gpu07", "--gpu-memory", "17.5GiB", "--outcome", "completed")
	if want := "job 123, run 1 (completed): 17.50 GiB of GPU memory, -12.5 % of the upper end of the estimate, 20.00 GiB\n"; code != exitOK || out != want {
		t.Errorf("%d %q %s, want %q", code, out, errs, want)
	}
	if got.JobID != 123 || got.Run == nil || *got.Run != 1 || got.Node != "gpu07" || got.PeakBytes != 35<<29 || got.Outcome != "completed" {
		t.Errorf("%+v", got)
	}
	if code, _, _ := call("--job", "123", "--gpu-memory", "1MiB"); code != exitOK || got.Run != nil || got.Outcome != "" {
		t.Errorf("%d %+v", code, got)
	}
	for _, bad := range [][]string{{}, {"--job", "123"}, {"--gpu-memory", "1GiB"}, {"--job", "123", "--gpu-memory", "17"}, {"--job", "123", "--gpu-memory", "1GiB", "--outcome", "well"},
		{"--job", "123", "--gpu-memory", "1GiB", "--run", "-1"}, {"--job", "123", "--gpu-memory", "1GiB", "--node", "a b"}, {"--job", "-1", "--gpu-memory", "1GiB"}, {"--job", "123", "--gpu-memory", "4000TiB"}} {
		if code, out, _ := call(bad...); code != exitUsage {
			t.Errorf("%q: %d %s", bad, code, out)
		}
	}
	if err := os.WriteFile(munge, []byte("#!/bin/sh\necho 'munge: Error: Failed to access \"/run/munge/munge.socket.2\"' >&2; exit 6\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call("--job", "123", "--gpu-memory", "1GiB"); code != exitError || !strings.Contains(errs, "is munged running") || !strings.Contains(errs, `Failed to access "/run/munge/munge.socket.2"`) {
		t.Errorf("%d %s", code, errs)
	}
	if err := os.WriteFile(munge, []byte("#!/bin/sh\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	status = http.StatusForbidden
	if code, _, errs := call("--job", "123", "--gpu-memory", "1GiB"); code != exitError || !strings.Contains(errs, "root or SlurmUser") {
		t.Errorf("%d %s", code, errs)
	}
}
