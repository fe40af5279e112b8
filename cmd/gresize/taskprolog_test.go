package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gresize/gresize/daemon/epilog"
	"github.com/gresize/gresize/offload"
)

// TestTaskProlog: what is printed puts a plan under the batch script of the job that has one; whatever else happens, nothing is printed, nothing stays behind, and the exit status is 0.
func TestTaskProlog(t *testing.T) {
	dir := t.TempDir()
	munge := filepath.Join(dir, "munge") // its credential is the document itself
	if err := os.WriteFile(munge, []byte("#!/bin/sh\nexec cat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "vgpu"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vgpu", "gresize-audit.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", dir)
	plan := func(set func(*offload.Plan)) []byte {
		p := &offload.Plan{Schema: offload.Schema, TargetBytes: 1 << 30, HostBytes: 10, ExpandableSegments: true, Iterations: []offload.Iteration{{Prefixes: []uint32{1, 2}, Moves: []offload.Move{{Save: 0, Bytes: 5, Gone: 1, Back: 1}}}}}
		set(p)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	good := plan(func(*offload.Plan) {})
	asked := 0
	var answer epilog.Plan
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		var wanted epilog.Wanted
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil || r.URL.Path != epilog.PathPlan || wanted.JobID != 1000007 || wanted.Schema != epilog.SchemaPlan {
			t.Errorf("%s: %+v %v", r.URL.Path, wanted, err)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	batch := map[string]string{"SLURM_JOB_ID": "1000007", "CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_ID": "", "GRESIZE_OFFLOAD_PLAN": "", "PYTHONPATH": "/own", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_ALLOC_CONF": ""}
	for name, c := range map[string]struct {
		answer epilog.Plan
		env    map[string]string
		url    string
		asks   int
		lines  string
	}{
		"a plan":            {epilog.Plan{Body: good, Slowest: 1.05}, nil, "", 1, "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True\nexport GRESIZE_OFFLOAD_PLAN=FILE\nexport PYTHONPATH=" + dir + "/python:/own\nexport GRESIZE_OFFLOAD_SLOWEST=1.05\n"},
		"however slow":      {epilog.Plan{Body: good}, map[string]string{"SLURM_STEP_ID": "4294967291"}, "", 1, "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True\nexport GRESIZE_OFFLOAD_PLAN=FILE\nexport PYTHONPATH=" + dir + "/python:/own\n"},
		"no plan":           {epilog.Plan{}, nil, "", 1, ""},
		"a step":            {epilog.Plan{Body: good}, map[string]string{"SLURM_STEP_ID": "0"}, "", 0, ""},
		"has it already":    {epilog.Plan{Body: good}, map[string]string{"GRESIZE_OFFLOAD_PLAN": "/x"}, "", 0, ""},
		"no GPU":            {epilog.Plan{Body: good}, map[string]string{"CUDA_VISIBLE_DEVICES": ""}, "", 0, ""},
		"two GPUs":          {epilog.Plan{Body: good}, map[string]string{"CUDA_VISIBLE_DEVICES": "0,1"}, "", 0, ""},
		"no job":            {epilog.Plan{Body: good}, map[string]string{"SLURM_JOB_ID": "x"}, "", 0, ""},
		"nobody there":      {epilog.Plan{Body: good}, nil, "http://127.0.0.1:1", 0, ""},
		"no plan at all":    {epilog.Plan{Body: []byte("{")}, nil, "", 1, ""},
		"a forged one":      {epilog.Plan{Body: plan(func(p *offload.Plan) { p.Iterations[0].Moves[0].Back = 0 })}, nil, "", 1, ""},
		"no room":           {epilog.Plan{Body: plan(func(p *offload.Plan) { p.HostBytes = 1 << 47 })}, nil, "", 1, ""},
		"a long PYTHONPATH": {epilog.Plan{Body: good}, map[string]string{"PYTHONPATH": "/" + strings.Repeat("x", 4096)}, "", 1, ""},
		"one of two lines":  {epilog.Plan{Body: good}, map[string]string{"PYTHONPATH": "/a\nexport LD_PRELOAD=/b"}, "", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range batch {
				if own, ok := c.env[k]; ok {
					v = own
				}
				t.Setenv(k, v)
			}
			asked, answer = 0, c.answer
			url := server.URL
			if c.url != "" {
				url = c.url
			}
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"task-prolog", "--url", url, "--munge", munge}, &out, &errs)
			files := epilog.PlanFiles(1000007)
			got := regexp.MustCompile(epilog.PlansFolder+`/gresize-job1000007-\d+\.plan`).ReplaceAllString(out.String(), "FILE")
			if code != 0 || got != c.lines || asked != c.asks || len(files) != strings.Count(c.lines, "FILE") {
				t.Errorf("exit %d, asked %d times, left %q:\n%s%s", code, asked, files, out.String(), errs.String())
			}
			for _, file := range files {
				if data, err := os.ReadFile(file); err != nil || !bytes.Equal(data, c.answer.Body) {
					t.Errorf("%s %v", data, err)
				}
				_ = os.Remove(file)
			}
		})
	}
}
