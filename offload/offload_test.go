package offload

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/planning/swap"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// libDir builds the virtual GPU and the Python layers.
func libDir(t *testing.T) string {
	t.Helper()
	out, objects := filepath.Join(t.TempDir(), "lib"), t.TempDir()
	make := exec.Command("make", "-s", "-C", "../estimator/vgpu", "OUT="+out, "OBJ="+objects, "RELEASES=2.6.0")
	if text, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// TestEqualToTheBit: random programs have the same losses and gradients with a random plan, and each planted fault is found.
func TestEqualToTheBit(t *testing.T) {
	lib := libDir(t)
	env, err := vgpu.Environment(vgpu.Options{LibDir: lib}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	run := func(fault string, args ...string) (string, error) {
		cmd := exec.Command(torchtest.Python(t, "2.6.0"), append([]string{"testdata/equal.py"}, args...)...)
		cmd.Env = append(append(os.Environ(), env...), "FAULT="+fault)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	programs, steps := 8, 12
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		programs, steps = 60, 200
	}
	out, err := run("", strconv.Itoa(programs), strconv.Itoa(steps))
	if err != nil || !strings.Contains(out, ", 0 wrong") || strings.Contains(out, " 0 moves") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(strings.TrimSpace(out))
	if out, err := run("", "changed"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for fault, says := range map[string]string{"no wait": "still read", "wrong block": "3 wrong"} {
		if out, err := run(fault, "3", "6"); err == nil || !strings.Contains(out, says) {
			t.Errorf("%s is not found: %v\n%s", fault, err, out)
		}
	}
	if out, err := run("another plan", "3", "6"); err != nil || !strings.Contains(out, " 0 moves, 0 iterations followed, 0 wrong") {
		t.Errorf("the plan of another program: %v\n%s", err, out)
	}
}

// TestFit: a program whose activations are most of what it needs runs on a card of half the size, with a plan that was carried out there; a target that nothing
// reaches is refused with what is needed; one that is large enough needs no plan.
func TestFit(t *testing.T) {
	card, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	options := probe.Options{Command: []string{torchtest.Python(t, "2.6.0"), "deep.py"}, Dir: "testdata", GPU: card, Budget: 5 * time.Minute, LibDir: libDir(t), NoSandbox: true}
	fit := func(target int64) (*Fitted, error) {
		return Fit(t.Context(), options, target, swap.PublishedLink, func(string) {})
	}
	const mib = int64(1) << 20
	f, err := fit(700 * mib)
	if err != nil {
		t.Fatalf("%v, before: %+v", err, f)
	}
	before, _ := f.Before.Largest()
	after, _ := f.After.Largest()
	if f.Plan == nil || before.ComfortableBytes < 1000*mib || after.ComfortableBytes > 700*mib || f.Carried.Moves == 0 || f.Carried.Followed < 3 || f.Plan.HostBytes == 0 {
		t.Errorf("before %d MiB, after %d MiB, %+v, %+v", before.ComfortableBytes/mib, after.ComfortableBytes/mib, f.Carried, f.Plan)
	}
	if f, err := fit(8192 * mib); err != nil || f.Plan != nil {
		t.Errorf("it fits as it is: %v %+v", err, f.Plan)
	}
	if _, err := fit(420 * mib); err == nil {
		t.Error("a plan for less than the parameters")
	} else {
		t.Log(err)
	}
}

func valid() *Plan {
	return &Plan{Schema: Schema, HostBytes: 10, Iterations: []Iteration{{Prefixes: []uint32{1, 2, 3}, Moves: []Move{{Save: 0, Bytes: 5, Gone: 2, Back: 3}, {Save: 2, Bytes: 5, Gone: 3, Back: 3}}}}}
}

// TestBadPlans: what makes no sense is refused, by the program and by the layer in the job, and names the field.
func TestBadPlans(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(p *Plan){
		"schema":      func(p *Plan) { p.Schema = "other" },
		"iterations":  func(p *Plan) { p.Iterations = nil },
		"prefixes":    func(p *Plan) { p.Iterations[0].Prefixes = nil },
		"moves":       func(p *Plan) { p.Iterations[0].Moves[1].Save = 3 },
		"moves twice": func(p *Plan) { p.Iterations[0].Moves[1].Save = 0 },
		"moves back":  func(p *Plan) { p.Iterations[0].Moves[0].Back = 1 },
		"moves bytes": func(p *Plan) { p.Iterations[0].Moves[0].Bytes = 0 },
		"host_bytes":  func(p *Plan) { p.HostBytes = -1 },
	} {
		p := valid()
		change(p)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "job.plan")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		field, _, _ := strings.Cut(name, " ")
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		layer := exec.Command("python3", "-c", "import sys\nfrom gresize_offload import plan\ntry:\n plan.read(sys.argv[1])\nexcept plan.Refused as e:\n print(e)", path)
		layer.Env = append(os.Environ(), "PYTHONPATH=python")
		if out, err := layer.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(path)) {
			t.Errorf("%s: the layer: %v %s", name, err, out)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	data, err := json.Marshal(valid())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "job.plan")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if p, err := ReadFile(path); err == nil && len(p.Iterations) == 0 {
			t.Error("an empty plan")
		}
	})
}

func FuzzReadSaved(f *testing.F) {
	f.Add([]byte(`{"saved":1,"lost":0}
{"begin":1,"at":[3,0]}
{"save":0,"at":[4,0],"prefix":7,"address":4096,"bytes":2097152,"device":0}
{"take":0,"of":1,"at":[9,2]}
{"step":1,"at":[12,8]}
`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := readSaved(data)
		if err != nil {
			return
		}
		for _, it := range s.iterations {
			if it.saves() != len(it.prefixes()) {
				t.Errorf("%d saved, %d named", it.saves(), len(it.prefixes()))
			}
		}
	})
}
