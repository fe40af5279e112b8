package offload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// libDir builds the virtual GPU and the Python layers.
func libDir(t testing.TB) string {
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
	if err != nil || !strings.Contains(out, ", 0 wrong") || strings.Contains(out, " 0 moves") || strings.Contains(out, " 0 of states") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Log(strings.TrimSpace(out))
	if out, err := run("", "changed"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("", "two"); err != nil || !strings.Contains(out, "a second optimizer makes a step: the optimizer's state stays on the card") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run("", "leaves"); err != nil || strings.Count(out, "is none of the plan's: what differs stays on the card") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	for fault, says := range map[string]string{"no wait": "still read", "leaves unwaited": "memory is free that a copy still reads", "wrong block": "3 wrong"} {
		if out, err := run(fault, "3", "6"); err == nil || !strings.Contains(out, says) {
			t.Errorf("%s is not found: %v\n%s", fault, err, out)
		}
	}
	if out, err := run("another plan", "3", "6"); err != nil || !strings.Contains(out, " 0 moves, ") || !strings.Contains(out, " 0 iterations followed, 0 wrong") ||
		!strings.Contains(out, "tensor 0 of the first iteration is none of the plan's: another program or another batch") {
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
	has := func(f *Fitted, code string) bool {
		return f.After.HasReason(code)
	}
	expandable := false
	fit := func(target int64) (*Fitted, error) {
		return Fit(t.Context(), Request{Run: options, TargetBytes: target, Expandable: expandable, Link: swap.PublishedLink, Tell: func(what string) { t.Log(what) }})
	}
	const mib = int64(1) << 20
	f, err := fit(700 * mib)
	if err != nil {
		t.Fatalf("%v, before: %+v", err, f)
	}
	before, _ := f.Before.Largest()
	after, _ := f.After.Largest()
	if f.Plan == nil || before.ComfortableBytes < 1000*mib || after.ComfortableBytes > 700*mib || f.Carried.Moves == 0 || f.Carried.Followed < 3 || f.Plan.HostBytes == 0 ||
		has(f, estimator.CodeValuesBounded) || f.Tried != 1 || f.Carried.Revived > 0 || f.Carried.Late > 0 || f.Plan.Slowdown == nil || f.Plan.Slowdown.Low > f.Plan.Slowdown.High {
		t.Errorf("before %d MiB, after %d MiB, %+v, %+v", before.ComfortableBytes/mib, after.ComfortableBytes/mib, f.Carried, f.Plan)
	}
	if f, err := fit(8192 * mib); err != nil || f.Plan != nil {
		t.Errorf("it fits as it is: %v %+v", err, f.Plan)
	}
	if f, err := fit(420 * mib); err == nil || f.SmallestBytes <= 420*mib || f.SmallestBytes > 700*mib {
		t.Errorf("a plan for less than the parameters: %v, %+v", err, f)
	} else if smallest, err := fit(f.SmallestBytes + f.SmallestBytes/20); err != nil || smallest.Plan == nil {
		t.Errorf("the smallest target, %d MiB: %v", f.SmallestBytes/mib, err)
	}
	// The state of the optimizer leaves between its steps.
	expandable, options.Command[1] = true, "momentum.py"
	if f, err = fit(1200 * mib); err != nil || f.Plan == nil || len(f.Plan.State) == 0 || f.Carried.StateMoves < 3 {
		t.Errorf("%v, before: %+v, after: %+v, %+v", err, f.Before, f.After, f.Carried)
	}
	// One region serves what PyTorch's segments for each size do not: nothing has to be given back.
	expandable, options.Command[1] = false, "cached.py"
	if f, err = fit(700 * mib); err != nil || f.Plan == nil || f.Plan.Moves() > 0 || len(f.Plan.Regions) == 0 || f.Carried.RegionBytes != f.Plan.RegionBytes() || has(f, estimator.CodeNearCapacity) {
		t.Errorf("%v, before: %+v, after: %+v", err, f.Before, f.After)
	}
	// What fits where PyTorch gives back its cache fits, and says what it costs. A region is of one stream.
	options.Command = append(options.Command, "beside")
	if f, err = fit(700 * mib); err != nil || f.Plan == nil || f.Plan.Moves() > 0 || !has(f, estimator.CodeNearCapacity) {
		t.Errorf("%v, before: %+v, after: %+v", err, f.Before, f.After)
	}
}

// TestAnotherBatch: a plan of another batch is refused before the first step where somebody asked for it by hand; in a job that was given it the program runs as without it.
func TestAnotherBatch(t *testing.T) {
	lib := libDir(t)
	env, err := vgpu.Environment(vgpu.Options{LibDir: lib, WithoutPython: true, Devices: 1}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(valid())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "job.plan")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, strict := range []string{"1", ""} {
		cmd := exec.Command(torchtest.Python(t, "2.6.0"), "-c", "import runpy, torch\ntorch.optim.Optimizer.zero_grad = lambda *_: print('a step begins')\nrunpy.run_path('testdata/deep.py')\nprint('trained')")
		cmd.Env = append(append(os.Environ(), env...), vgpu.PythonPath(lib, os.Environ()), "GRESIZE_OFFLOAD_PLAN="+path, "GRESIZE_OFFLOAD_STRICT="+strict)
		out, err := cmd.CombinedOutput()
		text := string(out)
		if !strings.Contains(text, "tensor 0 of the first iteration is none of the plan's: another program or another batch") || !strings.Contains(text, "make a plan for it with gresize run --target SIZE") {
			t.Errorf("strict %q: %v\n%s", strict, err, text)
		}
		if refused := strict != ""; refused != (err != nil) || refused == strings.Contains(text, "trained") || refused && (strings.Count(text, "a step begins") != 1 || strings.Contains(text, "Traceback")) {
			t.Errorf("strict %q: %v\n%s", strict, err, text)
		}
	}
}

// TestEnvironment: what the plan says of the allocator is put beside what is set already, where PyTorch reads it.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"nothing is set", "A=1", "A=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		{"others are", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"},
		{"it is", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False,max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"},
		{"twice", "PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_CUDA_ALLOC_CONF=b:1", "PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_CUDA_ALLOC_CONF=b:1,expandable_segments:True"},
		{"empty", "PYTORCH_CUDA_ALLOC_CONF=", "PYTORCH_CUDA_ALLOC_CONF= PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		{"the newer name", "PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_ALLOC_CONF=b:1", "PYTORCH_CUDA_ALLOC_CONF=a:1 PYTORCH_ALLOC_CONF=b:1,expandable_segments:True"},
	} {
		before := strings.Fields(c.before)
		if got := strings.Join((&Plan{ExpandableSegments: true}).Environment(before), " "); got != c.after {
			t.Errorf("%s: %s, want %s", c.name, got, c.after)
		}
		if got := strings.Join((&Plan{}).Environment(before), " "); got != c.before || strings.Join(before, " ") != c.before {
			t.Errorf("%s: %s without the plan", c.name, got)
		}
	}
}

// TestStays: what of an optimizer's state is not moved is said, with the reason.
func TestStays(t *testing.T) {
	iteration := func(number int, updates bool) string {
		text := fmt.Sprintf(`{"begin":%d,"at":[0,0]}
{"save":0,"at":[0,0],"prefix":1,"address":4096,"bytes":4096}
{"take":0,"of":%d,"at":[0,0]}
`, number, number)
		if updates {
			text += fmt.Sprintf(`{"updates":%d,"at":[0,0]}
`, number)
		}
		return text
	}
	step := func(optimizers int, state string) string {
		return fmt.Sprintf(`{"step":1,"state":%s,"optimizers":%d,"at":[0,0]}
`, state, optimizers)
	}
	const large = "[[8192,3145728],[16777216,1024]]"
	for name, c := range map[string]struct{ lines, says string }{
		"one, after each iteration": {iteration(1, true) + step(1, large) + iteration(2, true), ""},
		"none":                      {iteration(1, false) + iteration(2, false), ""},
		"accumulated":               {iteration(1, true) + step(1, large) + iteration(2, false) + iteration(3, true), "3.0 MiB of the optimizer's state: not every iteration is followed by a step of it, iteration 2 for one"},
		"two":                       {iteration(1, true) + step(2, "[]") + iteration(2, true), "the state of 2 optimizers: only that of a single one"},
		"nothing that could move":   {iteration(1, true) + step(1, "[[8192,1024]]") + iteration(2, false) + iteration(3, true), ""},
		"an older record":           {iteration(1, true) + strings.Replace(step(1, large), `,"optimizers":1`, "", 1) + iteration(2, true), ""},
	} {
		s, err := readSaved([]byte(`{"saved":1,"lost":0}` + "\n" + c.lines))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := (&record{saved: s}).stays(); !strings.Contains(got, c.says) || (c.says == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}

// TestTheHostChangesNoPlan: two runs of a program that differ in the host's time alone lay the same time between the events.
func TestTheHostChangesNoPlan(t *testing.T) {
	card, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSaved([]byte(`{"saved":1,"lost":0}
{"begin":1,"at":[0,0],"calls":0}
{"save":0,"at":[0,0],"prefix":1,"address":4096,"bytes":4096,"calls":1}
{"take":0,"of":1,"at":[0,0],"calls":2}
{"begin":2,"at":[0,0],"calls":3}
`))
	if err != nil {
		t.Fatal(err)
	}
	with := func(hostSeconds float64) times {
		product := utilization.Operator{Name: "mm", Kind: "product", Type: "fp32", FLOPs: 1e12, Bytes: 1e9, Launches: 1, Blocks: 4096, Count: 3}
		return newTimes(s, &utilization.Stream{Step: 1, ProcessorSeconds: []float64{hostSeconds}, Operators: []utilization.Operator{product}, Calls: []int32{0, 0, 0}}, card)
	}
	quick, slow := with(1e-3), with(10)
	if gaps := quick.gaps[1]; len(gaps) != 3 || gaps[0] <= 0 || !reflect.DeepEqual(quick.gaps, slow.gaps) || quick.step.Value != slow.step.Value {
		t.Errorf("%+v with a quick host, %+v with a slow one", quick, slow)
	}
	if quick.step.High >= slow.step.High {
		t.Errorf("a step takes %v with a quick host, %v with a slow one", quick.step, slow.step)
	}
}

// TestForeseen: what leaves is freed at its event and asked for again, and the same iteration of the record that was planned never takes more than the plan's bytes.
func TestForeseen(t *testing.T) {
	const mib = 1 << 20
	program := &replay.Program{Version: allocator.Version{Major: 2, Minor: 6}}
	var lines []string
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	note(`{"saved":1,"lost":0}`)
	allocs, frees := 0, 0
	alloc := func(block int32, bytes uint64) {
		program.Ops = append(program.Ops, replay.Op{Kind: replay.OpAlloc, Block: block, Bytes: bytes})
		program.Answers = append(program.Answers, replay.Answer{HasAddr: true, Addr: uint64(block+1) << 32})
		allocs++
	}
	free := func(block int32) {
		program.Ops = append(program.Ops, replay.Op{Kind: replay.OpFree, Block: block})
		program.Answers = append(program.Answers, replay.Answer{})
		frees++
	}
	const layers, each = 12, 40 * mib
	for step := range int32(3) {
		note(`{"begin":%d,"at":[%d,%d]}`, step+1, allocs, frees)
		for i := range int32(layers) {
			block := step*layers + i
			alloc(block, each)
			note(`{"save":%d,"at":[%d,%d],"prefix":%d,"address":%d,"bytes":%d}`, i, allocs, frees, i+1, uint64(block+1)<<32, each)
			if i > 0 {
				note(`{"alone":%d,"at":[%d,%d]}`, i-1, allocs, frees)
			}
		}
		for i := int32(layers - 1); i >= 0; i-- {
			note(`{"take":%d,"of":%d,"at":[%d,%d]}`, i, step+1, allocs, frees)
			free(step*layers + i)
		}
	}
	program.Blocks = allocs
	lives, err := planning.OfProgram(program)
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSaved([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	r := newRecord(program, lives, s)
	plan, err := r.plan(t.Context(), Options{AllocatorBytes: 6 * each, Link: swap.PublishedLink})
	if err != nil || plan.Moves() < 6 {
		t.Fatalf("%+v, %v", plan, err)
	}
	with, err := r.with(plan)
	if err != nil {
		t.Fatal(err)
	}
	after, err := planning.OfProgram(with)
	if err != nil {
		t.Fatal(err)
	}
	if bound := layout.LiveBound(after.Blocks); bound > 6*each || len(after.Blocks) != allocs+3*plan.Moves() {
		t.Errorf("%d MiB live at once, %d blocks of %d and %d moves", bound/mib, len(after.Blocks), allocs, plan.Moves())
	}
	for bytes, fits := range map[int64]bool{6*each + 20*mib: true, 5 * each: false} {
		if f, err := r.foresee(plan, allocator.Config{}, bytes); err != nil || f.fits != fits {
			t.Errorf("on a card of %d MiB: %+v, %v", bytes/mib, f, err)
		}
	}
	if f, err := r.foresee(&Plan{}, allocator.Config{}, 11*each); err != nil || f.fits {
		t.Errorf("without a plan on a card that is too small: %+v, %v", f, err)
	}
}

func valid() *Plan {
	return &Plan{Schema: Schema, TargetBytes: 1 << 30, HostBytes: 10, Iterations: []Iteration{{Prefixes: []uint32{1, 2, 3}, Moves: []Move{{Save: 0, Bytes: 5, Gone: 2, Back: 3}, {Save: 2, Bytes: 5, Gone: 3, Back: 3}}}}}
}

// TestBadPlans: what makes no sense is refused, by the program and by the layer in the job, and names the field.
func TestBadPlans(t *testing.T) {
	dir := t.TempDir()
	for name, change := range map[string]func(p *Plan){
		"schema":            func(p *Plan) { p.Schema = "other" },
		"iterations":        func(p *Plan) { p.Iterations = nil },
		"prefixes":          func(p *Plan) { p.Iterations[0].Prefixes = nil },
		"moves":             func(p *Plan) { p.Iterations[0].Moves[1].Save = 3 },
		"moves twice":       func(p *Plan) { p.Iterations[0].Moves[1].Save = 0 },
		"moves back":        func(p *Plan) { p.Iterations[0].Moves[0].Back = 1 },
		"moves bytes":       func(p *Plan) { p.Iterations[0].Moves[0].Bytes = 0 },
		"host_bytes":        func(p *Plan) { p.HostBytes = -1 },
		"target_bytes":      func(p *Plan) { p.TargetBytes = 0 },
		"target_bytes sign": func(p *Plan) { p.TargetBytes = -1 },
		"gpu":               func(p *Plan) { p.GPU = "\x1b[31mX\nY" },
		"torch":             func(p *Plan) { p.TorchVersion = strings.Repeat("x", 1<<10) },
		"state twice":       func(p *Plan) { p.State = []StateMove{{0, 5, 1, -1}, {0, 5, 1, -1}} },
		"state back":        func(p *Plan) { p.State = []StateMove{{0, 5, 3, 1}} },
		"regions":           func(p *Plan) { p.Regions = []int64{-1} },
		"regions many":      func(p *Plan) { p.Regions = []int64{1, 1, 1, 1, 1, 1, 1, 1, 1} },
		"state bytes":       func(p *Plan) { p.State = []StateMove{{0, 0, 1, 3}} },
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

// TestBothReadersAgree: what the command line reads as a plan the layer in the job reads too, and what one refuses, the other does not carry out.
func TestBothReadersAgree(t *testing.T) {
	whole := valid()
	whole.GPU, whole.Regions, whole.ExpandableSegments, whole.Slowdown = "a100-80", []int64{1 << 20}, true, &utilization.Interval{Value: 1, Low: 1, High: 2}
	whole.State = []StateMove{{0, 5, 1, -1}}
	data, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	sound := string(data)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Plan]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !strings.Contains(sound, `"`+name+`":`) {
			t.Errorf("%s is not in the sound plan: a new field has to be known to both readers", name)
		}
	}
	with := func(before, after string) string {
		t.Helper()
		if !strings.Contains(sound, before) {
			t.Fatalf("%s is not in %s", before, sound)
		}
		return strings.Replace(sound, before, after, 1)
	}
	texts := map[string]string{
		"sound":                        sound,
		"a key in other letters":       with(`"host_bytes"`, `"Host_Bytes"`),
		"and both":                     with(`"host_bytes"`, `"HOST_BYTES":1,"host_bytes"`),
		"a long s":                     with(`"save"`, `"ſave"`),
		"a Kelvin sign":                with(`"back"`, `"bac\u212a"`),
		"a key twice":                  with(`"host_bytes"`, `"host_bytes":1,"host_bytes"`),
		"iterations twice":             with(`"iterations"`, `"iterations":[],"iterations"`),
		"an unknown key":               with(`"host_bytes"`, `"host_byte":1,"host_bytes"`),
		"an unknown key of a move":     with(`"save"`, `"when":1,"save"`),
		"a move's key in capitals":     with(`"gone"`, `"Gone"`),
		"a move's key twice":           with(`"gone"`, `"gone":0,"gone"`),
		"an iteration's in capitals":   with(`"prefixes"`, `"PREFIXES"`),
		"a number as text":             with(`"host_bytes":`, `"host_bytes":"1","x":`),
		"text behind it":               sound + "{}",
		"a comment":                    "// a plan\n" + sound,
		"no number":                    with(`"base_ns":`, `"base_ns":NaN,"x":`),
		"a list of plans":              "[" + sound + "]",
		"null":                         "null",
		"nothing":                      "",
		"a mark of the order of bytes": "\ufeff" + sound,
	}
	dir := t.TempDir()
	var names []string
	for name, text := range texts {
		names = append(names, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	layer := exec.Command("python3", append([]string{"-c", "import sys\nfrom gresize_offload import plan\nfor path in sys.argv[1:]:\n try:\n  plan.read(path)\n  print('taken')\n except plan.Refused as e:\n  print('refused', e)"}, names...)...)
	layer.Dir = dir
	python, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	layer.Env = append(os.Environ(), "PYTHONPATH="+python)
	out, err := layer.CombinedOutput()
	said := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(said) != len(names) {
		t.Fatalf("%v %s", err, out)
	}
	for i, name := range names {
		_, err := ReadFile(filepath.Join(dir, name))
		if wants := name == "sound"; (err == nil) != wants || (said[i] == "taken") != wants {
			t.Errorf("%s: %v; the layer: %s", name, err, said[i])
		}
	}
}

// TestAPipeIsNoPlan: nobody waits for the other end of a pipe that stands in a plan's place.
func TestAPipeIsNoPlan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.plan")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "a pipe and no regular file") {
		t.Error(err)
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
{"updates":1,"at":[11,8]}
{"step":1,"at":[12,8],"state":[[8192,1048576]]}
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
