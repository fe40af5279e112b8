package offload

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestRegions: PyTorch's allocator over a plan's regions on a virtual card, as in a job. Random iterations, with others between them, never see two blocks that overlap; what does
// not deviate takes the regions and nothing else; all is given back. A program that the regions are of no use for runs without, and is told why.
func TestRegions(t *testing.T) {
	lib := libDir(t)
	run := func(p *Plan, cards int, args ...string) (string, error) {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "job.plan")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		env, err := vgpu.Environment(vgpu.Options{LibDir: lib, WithoutPython: true, Devices: cards}, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(torchtest.Python(t, "2.6.0"), append([]string{"testdata/regions.py"}, args...)...)
		cmd.Env = append(append(os.Environ(), env...), vgpu.PythonPath(lib, os.Environ()), "GRESIZE_OFFLOAD_PLAN="+path)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	plan := &Plan{Schema: Schema, TargetBytes: 1 << 30, Iterations: []Iteration{{Prefixes: []uint32{1}, Moves: []Move{}}}, Regions: []int64{800 << 20}}
	programs, iterations := 2, 10
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		programs, iterations = 40, 300
	}
	out, err := run(plan, 1, strconv.Itoa(programs), strconv.Itoa(iterations))
	if err != nil || !strings.Contains(out, "no two overlap, nothing stays behind") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(strings.TrimSpace(out))
	if strings.Contains(out, "gresize: ") {
		t.Errorf("something is said of a plan that fits:\n%s", out)
	}
	// A plan of something else is carried out as far as it goes, and what it is of is said before the first step.
	other := *plan
	other.TorchVersion, other.GPU, other.TargetBytes = "1.0", "Abacus", 1<<40
	out, err = run(&other, 1, "1", "2")
	for _, says := range []string{"the plan was made for PyTorch 1.0, and this is 2.6.0", "the plan was made for Abacus, and this is NVIDIA H100", "the plan takes up to 1024.00 GiB, and the card has"} {
		if err != nil || !strings.Contains(out, says) {
			t.Errorf("%v, no %q in\n%s", err, says, out)
		}
	}
	// Under gresize run it is refused.
	t.Setenv("GRESIZE_OFFLOAD_STRICT", "1")
	for says, set := range map[string]func(*Plan){
		"the plan was made for PyTorch 1.0":     func(p *Plan) { p.TorchVersion = "1.0" },
		"the plan was made for Abacus":          func(p *Plan) { p.GPU = "Abacus" },
		"the plan takes up to 1024.00 GiB, and": func(p *Plan) { p.TargetBytes = 1 << 40 },
	} {
		other := *plan
		set(&other)
		if out, err := run(&other, 1, "1", "2"); err == nil || !strings.Contains(out, says) || !strings.Contains(out, "gresize run --target SIZE") || strings.Contains(out, "Traceback") || strings.Contains(out, "overlap") {
			t.Errorf("%v, no %q alone in\n%s", err, says, out)
		}
	}
	if out, err := run(plan, 1, "1", "2"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Setenv("GRESIZE_OFFLOAD_STRICT", "")
	if out, err := run(plan, 2, "1", "1"); err == nil || !strings.Contains(out, "2 cards are visible") || !strings.Contains(out, "there are no regions") {
		t.Errorf("two cards: %v\n%s", err, out)
	}
	plan.Regions = []int64{1 << 45}
	if out, err := run(plan, 1, "1", "1"); err == nil || !strings.Contains(out, "the plan's regions are not taken: CUDA out of memory") || !strings.Contains(out, "there are no regions") {
		t.Errorf("more than there is: %v\n%s", err, out)
	}
}

// TestFitRegions: one region holds what two sizes that never live together need; expandable segments need none, and what cannot fit gets none.
func TestFitRegions(t *testing.T) {
	const mib = 1 << 20
	program := func(steps ...int) *replay.Program { // n makes a block of n MiB, -n ends the first of that size
		p := &replay.Program{Version: allocator.Version{Major: 2, Minor: 6}}
		live := map[int][]int32{}
		for _, n := range steps {
			if n > 0 {
				p.Ops = append(p.Ops, replay.Op{Kind: replay.OpAlloc, Block: int32(p.Blocks), Bytes: uint64(n) * mib})
				live[n] = append(live[n], int32(p.Blocks))
				p.Blocks++
				continue
			}
			p.Ops = append(p.Ops, replay.Op{Kind: replay.OpFree, Block: live[-n][0]})
			live[-n] = live[-n][1:]
		}
		return p
	}
	fit := func(p *replay.Program, config allocator.Config, bytes int64) ([]int64, foreseen) {
		t.Helper()
		regions, f, err := fitRegions(p, config, bytes)
		if err != nil {
			t.Fatal(err)
		}
		return regions, f
	}
	other := program(300, -300, 400, -400, 300, -300)
	if regions, f := fit(other, allocator.Config{}, 450*mib); len(regions) != 1 || !f.roomy || f.peakBytes > 450*mib {
		t.Errorf("%d, %+v", regions, f)
	}
	if regions, f := fit(other, allocator.Config{}, replay.Unlimited); len(regions) != 1 || f.peakBytes != 400*mib {
		t.Errorf("the least: %d, %+v", regions, f)
	}
	if regions, f := fit(other, allocator.Config{}, 800*mib); regions != nil || !f.roomy {
		t.Errorf("no region is needed: %d, %+v", regions, f)
	}
	if regions, f := fit(other, allocator.Config{ExpandableSegments: true}, 450*mib); regions != nil || !f.fits {
		t.Errorf("expandable segments: %d, %+v", regions, f)
	}
	if regions, f := fit(other, allocator.Config{}, 350*mib); regions != nil || f.fits {
		t.Errorf("it cannot fit: %d, %+v", regions, f)
	}
	// What is tried as two regions is as large as one.
	for _, sizes := range candidates(1000 * mib) {
		if sum := (&Plan{Regions: sizes}).RegionBytes(); sum < 900*mib || sum > 1070*mib || sizes[len(sizes)-1] < 0 || sizes[0] < sizes[len(sizes)-1] {
			t.Errorf("%d", sizes)
		}
	}
}

// TestInOrder: the fastest come first, of those as fast the one that leaves most room; after three, those without regions.
func TestInOrder(t *testing.T) {
	peaks := map[*Plan]int64{}
	plan := func(name string, stall, peak int64, regions ...int64) *Plan {
		p := &Plan{TorchVersion: name, BaseNanos: 1000, TotalNanos: 1000 + stall, Regions: regions}
		peaks[p] = peak
		return p
	}
	found := []*Plan{plan("d", 300, 5, 1), plan("b", 5, 8, 1), plan("a", 0, 9), plan("c", 100, 7, 1), plan("e", 400, 5, 1), plan("f", 500, 5)}
	names := ""
	for _, p := range inOrder(found, peaks) {
		names += p.TorchVersion
	}
	if names != "bacfde" {
		t.Error(names)
	}
}
