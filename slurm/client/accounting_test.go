package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sacctOutput has the form of sacct 24.11 with --parsable2 --noconvert; gpumem is counted in bytes. A user cannot write into any of these columns.
const sacctOutput = `7|1001|FAILED|1:0|90|billing=1,cpu=8,gres/gpu=2,mem=4096M,node=1||
7.batch|1001|FAILED|1:0|90|cpu=8,gres/gpu=2,mem=4096M,node=1|cpu=00:01:20,energy=0,fs/disk=100,gres/gpumem=11811160064,gres/gpuutil=98,mem=3072M,pages=0,vmem=0|cpu=00:01:20,mem=3221225472
7.0|1001|FAILED|1:0|90|cpu=8,gres/gpu=2,mem=4096M,node=1|mem=3739648|mem=7479296
7.extern||COMPLETED|0:0|90|billing=1|gres/gpumem=5|
8|1001|RUNNING|0:0|10|gres/gpu=1||
9|1002|CANCELLED by 1002|0:15|5|gres/gpu:a100=1,gres/gpu=1||
10|1001|TIMEOUT|0:0|3600|gres/gpu=1|gres/gpumem=7.5G,mem=x|mem=
12_3|1001|COMPLETED|0:0|1|x|y|z
broken
13|x|COMPLETED|0:0|1|||
14.batch|1001|COMPLETED|0:0|1||gres/gpumem=9G|mem=1G
15|1001|COMPLETED|0:0|1|gres/gpu=1|gres/gpumem=9G
`

func TestParseAccounting(t *testing.T) {
	want := []Accounted{{JobID: 7, UID: 1001, State: "FAILED", Exit: "1:0", Elapsed: 90 * time.Second, GPUs: 2, PeakBytes: 11811160064, HostPeakBytes: 3 << 30}, {JobID: 8, UID: 1001, State: "RUNNING", Exit: "0:0", Elapsed: 10 * time.Second, GPUs: 1},
		{JobID: 9, UID: 1002, State: "CANCELLED", Exit: "0:15", Elapsed: 5 * time.Second, GPUs: 1}, {JobID: 10, UID: 1001, State: "TIMEOUT", Exit: "0:0", Elapsed: time.Hour, GPUs: 1, PeakBytes: 15 << 29}}
	if diff := cmp.Diff(want, parseAccounting(sacctOutput)); diff != "" {
		t.Error(diff)
	}
}

func FuzzParseAccounting(f *testing.F) {
	f.Add(sacctOutput)
	f.Add("1|2|COMPLETED|0:0|9999999999|gres/gpu=NaN|gres/gpumem=1e308T|mem=1e308T")
	f.Fuzz(func(t *testing.T, text string) {
		for _, a := range parseAccounting(text) {
			if a.PeakBytes < 0 || a.PeakBytes > mostBytes || a.HostPeakBytes < 0 || a.HostPeakBytes > mostBytes || a.GPUs < 0 || a.Elapsed < 0 {
				t.Fatalf("%+v", a)
			}
		}
	})
}

// TestSacct runs programs in the place of sacct: one that answers, and those that answer late, too much, in another language or not at all.
func TestSacct(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// What a German administrator has in the daemon's environment must not reach sacct.
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("SACCT_FORMAT", "JobName")
	t.Setenv("SLURM_TIME_FORMAT", "relative")
	c := New(Config{ConfPath: "/etc/slurm.conf", AccountingTimeout: time.Second})
	jobs, err := c.Accounting(t.Context(), write("good", "printf '%s\\n' \"$@\" >"+dir+"/args; env >"+dir+"/env\nprintf '7|1001|COMPLETED|0:0|1|||\\n'\n"), []uint32{7, 8})
	if err != nil || len(jobs) != 1 {
		t.Errorf("%+v %v", jobs, err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil || !strings.Contains(string(args), "--jobs=7,8\n") || !strings.Contains(string(args), "--noconvert\n") {
		t.Errorf("%q %v", args, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil || !strings.Contains(string(env), "LC_ALL=C\n") || !strings.Contains(string(env), "SLURM_CONF=/etc/slurm.conf\n") || strings.Contains(string(env), "SACCT_FORMAT") || strings.Contains(string(env), "SLURM_TIME_FORMAT") {
		t.Errorf("%s %v", env, err)
	}
	for _, w := range []struct{ name, path, says string }{
		{"disabled", write("disabled", "echo 'Slurm accounting storage is disabled' >&2; exit 1\n"), "disabled"},
		{"flood", write("flood", "exec head -c 20000000 /dev/zero\n"), "more than"},
		{"slow, with a child that holds its output", write("slow", "sleep 100 & sleep 100\n"), "no answer within 1s"},
		{"absent", filepath.Join(dir, "none"), "no such file"},
	} {
		begin := time.Now()
		if jobs, err := c.Accounting(t.Context(), w.path, []uint32{7}); err == nil || !strings.Contains(err.Error(), w.says) || len(jobs) != 0 {
			t.Errorf("%s: %v %v", w.name, jobs, err)
		}
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("%s: %s", w.name, took)
		}
	}
	// A sacct that prints as people write: nothing is known then, which is better than a wrong number.
	jobs, err = c.Accounting(t.Context(), write("comma", "printf '7|1001|COMPLETED|0:0|1|gres/gpu=1||\\n7.0|1001|COMPLETED|0:0|1||gres/gpumem=7,5G,mem=1,5G|\\n'\n"), []uint32{7})
	if err != nil || len(jobs) != 1 || jobs[0].PeakBytes != 0 || jobs[0].HostPeakBytes != 0 {
		t.Errorf("%+v %v", jobs, err)
	}
}
