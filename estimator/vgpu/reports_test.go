package vgpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

func TestEnvironment(t *testing.T) {
	stubs := "/opt/lib/vgpu"
	for _, c := range []struct {
		name    string
		options Options
		base    []string
		want    []string
	}{
		{"plain", Options{LibDir: "/opt/lib"}, nil, []string{
			"LD_AUDIT=" + stubs + "/gresize-audit.so", "LD_LIBRARY_PATH=" + stubs, "PATH=/opt/lib/bin", "GRESIZE_VGPU_DIR=" + stubs,
			"TRITON_LIBCUDA_PATH=" + stubs, "GRESIZE_VGPU_COUNT=1", "GRESIZE_VGPU_PYTHON=/opt/lib/python", "PYTHONPATH=/opt/lib/python"}},
		{"all", Options{LibDir: "/opt/lib", ProfilePath: "/p", ReportDir: "/r", Devices: 2, CapacityBytes: 7, Steps: 3, Seconds: 1.5, WithoutPython: true, RecordEvents: true},
			[]string{"PATH=/old", "PATH=/usr/bin:/bin", "LD_LIBRARY_PATH=", "PYTHONPATH=/mine", "LD_PRELOAD=/x.so"}, []string{
				"LD_AUDIT=" + stubs + "/gresize-audit.so", "LD_LIBRARY_PATH=" + stubs, "PATH=/opt/lib/bin:/usr/bin:/bin", "GRESIZE_VGPU_DIR=" + stubs,
				"TRITON_LIBCUDA_PATH=" + stubs, "GRESIZE_VGPU_COUNT=2", "GRESIZE_VGPU_PROFILE=/p", "GRESIZE_VGPU_CAPACITY_BYTES=7",
				"GRESIZE_VGPU_REPORT_DIR=/r", "GRESIZE_PROBE_STEPS=3", "GRESIZE_PROBE_SECONDS=1.500", "GRESIZE_PROBE_EVENTS=1"}},
		{"nested", Options{LibDir: "/opt/lib"}, []string{"LD_LIBRARY_PATH=" + stubs + ":/a::/b", "PYTHONPATH=/opt/lib/python:/mine"}, []string{
			"LD_AUDIT=" + stubs + "/gresize-audit.so", "LD_LIBRARY_PATH=" + stubs + ":/a:/b", "PATH=/opt/lib/bin", "GRESIZE_VGPU_DIR=" + stubs,
			"TRITON_LIBCUDA_PATH=" + stubs, "GRESIZE_VGPU_COUNT=1", "GRESIZE_VGPU_PYTHON=/opt/lib/python", "PYTHONPATH=/opt/lib/python:/mine"}},
	} {
		got, err := Environment(c.options, c.base)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
	if _, err := Environment(Options{LibDir: "lib"}, nil); err == nil {
		t.Error("a relative LibDir was accepted")
	}
}

func TestLocate(t *testing.T) {
	want := libDir(t)
	t.Setenv("GRESIZE_LIBDIR", want)
	if got, err := Locate(); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	t.Setenv("GRESIZE_LIBDIR", t.TempDir())
	if _, err := Locate(); err == nil || !strings.Contains(err.Error(), "GRESIZE_LIBDIR") {
		t.Errorf("an empty directory: %v, want an error that names the way out", err)
	}
}

// nativeReport and pythonReport are what a plain training process leaves, changed by the given keys.
func nativeReport(t *testing.T, pid int, change map[string]any) []byte {
	return report(t, map[string]any{
		"schema": schemaNative, "pid": pid, "torch": "2.6.0", "cuda": 12040, "cudnn": 90100, "nccl": 22105, "launches": 100,
		"values_read_back": 4, "libraries": map[string]int{"cublas": 2},
		"devices": []map[string]any{{"index": 0, "total_bytes": 80 << 30, "context_bytes": 1 << 29, "peak_bytes": 3 << 30, "allocations": 5}},
	}, change)
}

func pythonReport(t *testing.T, pid int, change map[string]any) []byte {
	return report(t, map[string]any{
		"schema": schemaPython, "pid": pid, "reason": reasonStopped, "python": "3.11.2", "torch": "2.6.0+cu124", "cuda": "12.4", "cudnn": 90100,
		"cuda_initialized": true, "virtual": true, "steps": 4, "backward_calls": 4, "optimizers": 1, "flat": true, "values_read_back": 4,
		"per_step": [][]int64{{1, 1, 2, 0}, {2, 1, 2, 1}, {3, 1, 2, 2}, {4, 1, 2, 3}}, "began_unix": 1000.0, "wall_seconds": 10.0,
		"devices": []map[string]any{{"index": 0, "peak_allocated_bytes": 1 << 30, "peak_reserved_bytes": 2 << 30}},
	}, change)
}

func report(t *testing.T, content, change map[string]any) []byte {
	t.Helper()
	for k, v := range change {
		content[k] = v
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func reportDir(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadReports(t *testing.T) {
	device := func(index int, reserved int64) []map[string]any {
		return []map[string]any{{"index": index, "peak_allocated_bytes": 1, "peak_reserved_bytes": reserved}}
	}
	none := []map[string]any{}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		check func(Reports) bool
	}{
		{"nothing", nil, func(r Reports) bool { return !r.TorchSeen && !r.CPUOnly && len(r.Ranks) == 0 }},
		{"one process", map[string][]byte{"native-7.json": nativeReport(t, 7, nil), "python-7.json": pythonReport(t, 7, nil), "events-7.jsonl": []byte("{}\n"), "notes.txt": []byte("x")},
			func(r Reports) bool {
				return r.TorchSeen && r.Stopped && r.Steps == 4 && len(r.Ranks) == 1 && r.ValuesReadBack == 4 && slices.Equal(r.Libraries, []string{"cublas"}) &&
					r.Versions.Torch == "2.6.0+cu124" && r.Versions.CuDNN == "9.1.0" && r.Ranks[0].EventsFormat == trace.EventsJSON && len(r.Reasons) == 0
			}},
		{"a loader worker and a launcher do not count", map[string][]byte{
			"python-7.json": pythonReport(t, 7, nil),
			"python-8.json": pythonReport(t, 8, map[string]any{"reason": "exit", "steps": 0, "devices": none, "cuda_initialized": false})},
			func(r Reports) bool { return len(r.Ranks) == 1 && r.Steps == 4 && r.Stopped }},
		{"CPU only", map[string][]byte{"python-7.json": pythonReport(t, 7, map[string]any{"reason": reasonCPUOnly, "cuda": nil, "cudnn": nil, "devices": none})},
			func(r Reports) bool { return r.TorchSeen && r.CPUOnly && len(r.Ranks) == 0 }},
		{"budget spent", map[string][]byte{"python-7.json": pythonReport(t, 7, map[string]any{"reason": reasonBudgetSpent})},
			func(r Reports) bool { return r.BudgetSpent && !r.Stopped }},
		{"out of memory", map[string][]byte{"python-7.json": pythonReport(t, 7, map[string]any{"reason": "exception", "exception": map[string]any{"type": "OutOfMemoryError", "out_of_memory": true}})},
			func(r Reports) bool { return r.OutOfMemory && !r.Stopped }},
		{"no Python layer", map[string][]byte{"native-7.json": nativeReport(t, 7, nil)},
			func(r Reports) bool {
				return r.TorchSeen && !r.CPUOnly && len(r.Ranks) == 1 && r.Steps == 0 && len(r.Reasons) == 1 && r.Reasons[0].Code == "python_layer_missing"
			}},
		{"a linked runtime", map[string][]byte{"python-7.json": pythonReport(t, 7, map[string]any{"virtual": false})},
			func(r Reports) bool { return len(r.Reasons) == 1 && r.Reasons[0].Code == "static_runtime" }},
		{"two ranks, the slower counts, in the launcher's order", map[string][]byte{
			"python-7.json": pythonReport(t, 7, map[string]any{"rank": 1, "steps": 5, "devices": device(1, 5)}),
			"python-8.json": pythonReport(t, 8, map[string]any{"rank": 0, "steps": 4, "devices": device(0, 6)})},
			func(r Reports) bool {
				return len(r.Ranks) == 2 && r.Steps == 4 && strings.Contains(string(r.Ranks[0].Report), `"peak_reserved_bytes":6`) && len(r.Reasons) == 0
			}},
		{"one after the other on one card", map[string][]byte{
			"python-7.json": pythonReport(t, 7, nil), "python-8.json": pythonReport(t, 8, map[string]any{"began_unix": 1020.0})},
			func(r Reports) bool { return len(r.Ranks) == 2 && len(r.Reasons) == 0 }},
		{"at the same time on one card", map[string][]byte{
			"python-7.json": pythonReport(t, 7, nil), "python-8.json": pythonReport(t, 8, map[string]any{"began_unix": 1005.0})},
			func(r Reports) bool { return len(r.Reasons) == 1 && r.Reasons[0].Code == "several_gpus" }},
		{"ranks on one card", map[string][]byte{
			"python-7.json": pythonReport(t, 7, map[string]any{"rank": 0}), "python-8.json": pythonReport(t, 8, map[string]any{"rank": 1})},
			func(r Reports) bool { return len(r.Reasons) == 1 && r.Reasons[0].Code == "several_gpus" }},
		{"a program that failed though the script went on", map[string][]byte{
			"python-7.json": pythonReport(t, 7, map[string]any{"reason": "exception", "exception": map[string]any{"type": "ValueError", "text": "no"}})},
			func(r Reports) bool {
				return len(r.Reasons) == 2 && r.Reasons[0].Code == "phase_not_reached" && r.Reasons[1].Code == "values_read_back"
			}},
		{"the report of the libraries is lost", map[string][]byte{"python-7.json": pythonReport(t, 7, nil), "lost": nil},
			func(r Reports) bool {
				return len(r.Ranks) == 1 && len(r.Reasons) == 1 && r.Reasons[0].Code == estimator.CodeReportLost
			}},
		{"an unanswered symbol has its library", map[string][]byte{
			"python-7.json": pythonReport(t, 7, nil), "native-7.json": nativeReport(t, 7, map[string]any{"unanswered": map[string]int{"cuFileRead": 2, "cuNew": 1}})},
			func(r Reports) bool {
				return cmp.Equal(r.UnansweredSymbols, []trace.Symbol{{Library: "libcufile.so.0", Name: "cuFileRead", Calls: 2}, {Library: "libcuda.so.1", Name: "cuNew", Calls: 1}})
			}},
	} {
		// What is not about the report of the libraries has an empty one beside each of Python.
		for name := range maps.Clone(c.files) {
			pid, ofPython := strings.CutPrefix(name, "python-")
			_, lost := c.files["lost"]
			if number, err := strconv.Atoi(strings.TrimSuffix(pid, ".json")); ofPython && !lost && err == nil && c.files["native-"+pid] == nil {
				c.files["native-"+pid] = nativeReport(t, number, map[string]any{"devices": none, "libraries": map[string]int{}, "values_read_back": 0})
			}
		}
		r, err := ReadReports(reportDir(t, c.files))
		if err != nil || !c.check(r) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}

func TestReadReportsRefuses(t *testing.T) {
	for _, c := range []struct{ name, file, text, complaint string }{
		{"no JSON", "native-7.json", "{", "native-7.json"},
		{"another schema", "python-7.json", `{"schema":"x"}`, "schema"},
		{"a negative size", "native-7.json", string(nativeReport(t, 7, map[string]any{"pinned_peak_bytes": -1})), "size"},
		{"a size beyond all cards", "python-7.json", string(pythonReport(t, 7, map[string]any{"host_peak_bytes": int64(1) << 60})), "size"},
		{"a name with a quote", "native-7.json", string(nativeReport(t, 7, map[string]any{"unanswered": map[string]int{`a"b`: 1}})), "no name"},
		{"a negative count", "native-7.json", string(nativeReport(t, 7, map[string]any{"launches": -1})), "count"},
		{"a short step", "python-7.json", string(pythonReport(t, 7, map[string]any{"per_step": [][]int64{{1}}})), "per_step[0]"},
		{"allocated above reserved", "python-7.json", string(pythonReport(t, 7, map[string]any{"devices": []map[string]any{{"peak_allocated_bytes": 2, "peak_reserved_bytes": 1}}})), "allocated"},
		{"too long", "python-7.json", strings.Repeat(" ", maxReportBytes+1), "more than"},
	} {
		if _, err := ReadReports(reportDir(t, map[string][]byte{c.file: []byte(c.text)})); err == nil || !strings.Contains(err.Error(), c.complaint) {
			t.Errorf("%s: %v, want a complaint with %q", c.name, err, c.complaint)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "native-7.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadReports(dir); err == nil {
		t.Error("a link was followed")
	}
}

func TestEstimate(t *testing.T) {
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	rank := func(change map[string]any) []byte {
		return report(t, map[string]any{"schema": schemaRank, "reason": reasonStopped, "peak_allocated_bytes": 1 << 30, "peak_reserved_bytes": 2 << 30,
			"peak_device_bytes": 2 << 30, "steps": 4, "flat": true, "libraries": []string{"cublas"},
			"coverage": map[string]any{"torch": "2.6.0", "known_release": true, "values_per_step": 1.0}}, change)
	}
	covered := func(key string, value any) map[string]any {
		return map[string]any{"coverage": map[string]any{"torch": "2.6.0", "known_release": true, key: value}}
	}
	leaves := func(bytes, steps int64) map[string]any {
		return map[string]any{"coverage": map[string]any{"torch": "2.6.0", "known_release": true, "step_leaves_bytes": bytes, "steps_in_all": steps}}
	}
	sides := func(uses map[string]int64, outcome trace.Outcome, apart int64) map[string]any {
		return map[string]any{"coverage": map[string]any{"torch": "2.6.0", "known_release": true, "values": map[string]any{"policy": PolicyLow, "uses": uses}},
			"other_side": map[string]any{"policy": PolicyHigh, "outcome": string(outcome), "steps": 4, "peak_allocated_bytes": 1 << 30,
				"peak_reserved_bytes": int64(2<<30) + apart, "peak_device_bytes": int64(2<<30) + apart}}
	}
	counted, sized, copied := map[string]int64{"item": 8}, map[string]int64{"nonzero": 8}, map[string]int64{"item": 8, "copy_to_host": 8}
	fetched := map[string]int64{"fetched": 4}
	otherwise, taken := sides(copied, trace.Stopped, 0), sides(fetched, trace.Stopped, 0)
	otherwise["peak_allocated_bytes"], taken["peak_allocated_bytes"] = 1<<30+512, 1<<30+512
	bounded := []string{"values_bounded"}
	point, high := profile.OutsideBytes([]string{"cublas"})
	const reserved = int64(2 << 30)
	for _, c := range []struct {
		name       string
		rank       map[string]any
		outcome    trace.Outcome
		steps      int
		reasons    []string // of the bundle
		confidence estimator.Confidence
		want       []string // codes of the answer
		fits       bool
		high       int64 // 0: not looked at
	}{
		{name: "plain", outcome: trace.Stopped, steps: 4, confidence: estimator.High, fits: true, high: reserved + high},
		{name: "unanswered", rank: covered("unanswered", map[string]int{"cuX": 1}), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"symbol_unanswered"}, fits: true},
		{name: "convolutions", rank: covered("bounded", map[string]any{"conv": map[string]int{"calls": 1}}), outcome: trace.Stopped, steps: 4, confidence: estimator.High,
			want: []string{"workspace_bounded"}, fits: true, high: reserved + high + reserved/100*convAllowancePercent},
		{name: "recurrent", rank: covered("bounded", map[string]any{"rnn": map[string]int{"calls": 1, "largest_bytes": 1000}}), outcome: trace.Stopped, steps: 4, confidence: estimator.High,
			want: []string{"workspace_bounded"}, fits: true, high: reserved + high + 1000},
		{name: "values", rank: covered("values_per_step", 2.5), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"values_read_back"}, fits: true},
		{name: "values, one side", rank: covered("values", map[string]any{"uses": counted}), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true,
			high: reserved + high + reserved/100*valuesAllowancePercent},
		{name: "values, both sides the same", rank: sides(counted, trace.Stopped, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.High, want: bounded, fits: true, high: reserved + high},
		{name: "sizes, both sides the same", rank: sides(sized, trace.Completed, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true,
			high: reserved + high + reserved/100*valuesAllowancePercent},
		{name: "classes on the host, both sides the same", rank: sides(copied, trace.Stopped, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.High, want: bounded, fits: true,
			high: reserved + high + reserved/100*valuesAllowancePercent},
		{name: "classes on the host, a block between the sides", rank: otherwise, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true},
		{name: "floats fetched, one side", rank: covered("values", map[string]any{"uses": fetched}), outcome: trace.Stopped, steps: 4, confidence: estimator.High, want: bounded, fits: true, high: reserved + high},
		{name: "floats fetched, the other side failed", rank: sides(fetched, trace.Crashed, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.High, want: bounded, fits: true, high: reserved + high},
		{name: "floats fetched, both sides the same", rank: sides(fetched, trace.Stopped, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.High, want: bounded, fits: true, high: reserved + high},
		{name: "floats fetched, a block between the sides", rank: taken, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true},
		{name: "values, the sides a segment apart", rank: sides(counted, trace.Stopped, 2<<20), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true,
			high: reserved + high + reserved/100*valuesAllowancePercent + 2<<20},
		{name: "values, the other side failed", rank: sides(counted, trace.Crashed, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true},
		{name: "values without an answer", rank: sides(map[string]int64{"unbounded": 1}, trace.Stopped, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: bounded, fits: true},
		{name: "compared", rank: covered("decisions", 1), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"values_compared"}, fits: true},
		{name: "larger validation", rank: covered("larger_loader_unread", true), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"phase_not_reached"}, fits: true},
		{name: "killed", rank: map[string]any{"reason": reasonRunning}, outcome: trace.Completed, steps: 4, confidence: estimator.Low, fits: true},
		{name: "idle optimizer", rank: covered("idle_optimizer", true), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"phase_not_reached"}, fits: true},
		{name: "a part of the card", rank: covered("memory_fraction", true), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"memory_fraction"}, fits: true},
		{name: "kernels chosen", rank: covered("tuning", map[string]int{"lists": 2, "candidates": 40, "dropped": 36, "workspace_bytes": 5000}), outcome: trace.Stopped, steps: 4, confidence: estimator.High,
			want: []string{"kernels_chosen"}, fits: true, high: reserved + high + 5000},
		{name: "kernels chosen, broken", rank: covered("tuning", map[string]int{"lists": -1}), outcome: trace.Stopped, steps: 4, confidence: estimator.Unknown, want: []string{"bundle_invalid"}},
		{name: "a program failed", outcome: trace.Completed, steps: 4, reasons: []string{"phase_not_reached"}, confidence: estimator.Low, want: []string{"phase_not_reached"}, fits: true},
		{name: "two values", rank: covered("values_per_step", 2.0), outcome: trace.Stopped, steps: 4, confidence: estimator.High, fits: true},
		{name: "unknown release", rank: map[string]any{"coverage": map[string]any{"torch": "3.0"}}, outcome: trace.Completed, steps: 4, confidence: estimator.High, want: []string{"unknown_release"}, fits: true},
		{name: "a little is left by each step", rank: leaves(512, 10000), outcome: trace.Stopped, steps: 4, confidence: estimator.High,
			want: []string{"memory_grows"}, fits: true, high: reserved + high + 5120000},
		{name: "much is left", rank: leaves(1<<20, 10000), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"memory_grows"}, fits: true, high: reserved + high},
		{name: "left by untold steps", rank: leaves(512, 0), outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"memory_grows"}, fits: true},
		{name: "steps out of range, broken", rank: leaves(512, -1), outcome: trace.Stopped, steps: 4, confidence: estimator.Unknown, want: []string{"bundle_invalid"}},
		{name: "still rising", rank: map[string]any{"flat": false}, outcome: trace.Stopped, steps: 12, confidence: estimator.Low, want: []string{"peak_still_rising"}, fits: true},
		{name: "uncounted", rank: map[string]any{"flat": false, "peak_allocated_bytes": 0, "peak_reserved_bytes": 0}, outcome: trace.Stopped, steps: 12, confidence: estimator.Low, want: []string{"memory_uncounted"}, fits: true, high: reserved + high},
		{name: "uncounted, to its end", rank: map[string]any{"flat": false, "reason": "exit", "peak_allocated_bytes": 0, "peak_reserved_bytes": 0}, outcome: trace.Completed, steps: 12, confidence: estimator.Exact, fits: true, high: reserved + high},
		{name: "short but complete", rank: map[string]any{"flat": false, "reason": "exit"}, outcome: trace.Completed, steps: 2, confidence: estimator.Exact, fits: true},
		{name: "no step", outcome: trace.Completed, confidence: estimator.Unknown, want: []string{"no_step_seen"}, fits: true},
		{name: "budget", outcome: trace.Timeout, steps: 4, reasons: []string{"budget_spent"}, confidence: estimator.Low, want: []string{"budget_spent"}, fits: true},
		{name: "out of memory", outcome: trace.OutOfMemory, steps: 1, confidence: estimator.Unknown, want: []string{"out_of_memory"}},
		{name: "retried", rank: map[string]any{"retries": 1, "refused": 1}, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"near_capacity"}},
		{name: "caught", rank: map[string]any{"retries": 1, "refused": 2, "ooms": 1}, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"out_of_memory"}},
		{name: "smaller workspaces", rank: map[string]any{"retries": 2, "refused": 4, "ooms": 2, "passed_over": 2}, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"near_capacity"}},
		{name: "caught, beside smaller workspaces", rank: map[string]any{"retries": 2, "refused": 4, "ooms": 2, "passed_over": 1}, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"out_of_memory"}},
		{name: "refused to another library", rank: map[string]any{"refused": 1}, outcome: trace.Stopped, steps: 4, confidence: estimator.Low, want: []string{"out_of_memory"}},
		{name: "crashed", outcome: trace.Crashed, steps: 4, reasons: []string{"script_failed"}, confidence: estimator.Unknown, want: []string{"script_failed"}, fits: true},
		{name: "stopped, then the script failed", outcome: trace.Stopped, steps: 4, reasons: []string{"script_failed"}, confidence: estimator.Low, want: []string{"script_failed"}, fits: true},
		{name: "static", outcome: trace.Stopped, steps: 4, reasons: []string{"static_runtime"}, confidence: estimator.Unknown, want: []string{"static_runtime"}, fits: true},
		{name: "past the allocator", rank: map[string]any{"peak_device_bytes": reserved + 4096}, outcome: trace.Stopped, steps: 4, confidence: estimator.High, fits: true, high: reserved + 4096 + high},
		{name: "broken", rank: map[string]any{"peak_reserved_bytes": -1}, outcome: trace.Stopped, steps: 4, confidence: estimator.Unknown, want: []string{"bundle_invalid"}},
	} {
		m := trace.Manifest{Outcome: c.outcome, Steps: c.steps}
		for _, code := range c.reasons {
			m.Reasons = append(m.Reasons, estimator.Reason{Code: code})
		}
		e := Estimate(&trace.Bundle{Manifest: m, Ranks: []trace.Rank{{Report: rank(c.rank)}}}, profile)
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var codes []string
		for _, r := range e.Reasons {
			codes = append(codes, r.Code)
		}
		// A run that was stopped says so beside everything else.
		if cut, want := slices.Contains(codes, "run_cut_short"), !strings.HasSuffix(c.name, "broken") && c.rank["reason"] != "exit"; cut != want {
			t.Errorf("%s: run_cut_short %v, want %v", c.name, cut, want)
		}
		codes = slices.DeleteFunc(codes, func(code string) bool { return code == "run_cut_short" })
		if e.Confidence != c.confidence || !slices.Equal(codes, c.want) || e.Fits != c.fits {
			t.Errorf("%s: %s, %v, fits %v; want %s, %v, fits %v", c.name, e.Confidence, codes, e.Fits, c.confidence, c.want, c.fits)
		}
		if c.high != 0 && e.Ranks[0].ComfortableHighBytes != c.high {
			t.Errorf("%s: upper end %d, want %d", c.name, e.Ranks[0].ComfortableHighBytes, c.high)
		}
		if c.name == "plain" && e.Ranks[0].ComfortableBytes != reserved+point {
			t.Errorf("comfortable %d, want %d", e.Ranks[0].ComfortableBytes, reserved+point)
		}
	}
	if e := Estimate(&trace.Bundle{}, profile); e.Confidence != estimator.Unknown || e.Reasons[0].Code != "no_gpu_used" {
		t.Errorf("no rank: %+v", e)
	}
}

// FuzzReports: whatever a process leaves, the answer is an error or a valid estimate.
func FuzzReports(f *testing.F) {
	profile, err := gpu.Load("h100")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"schema":"gresize.vgpu.native/1","devices":[{"peak_bytes":5}],"bounded":{"rnn":{"largest_bytes":1125899906842624}}}`),
		[]byte(`{"schema":"gresize.vgpu.python/1","steps":3,"per_step":[[1,0,0,0],[9223372036854775807,0,0,9223372036854775807]],"devices":[{"peak_reserved_bytes":7}]}`))
	f.Add([]byte(`{}`), []byte(`{"schema":"gresize.vgpu.python/1","cuda":null,"reason":"cpu_only_torch"}`))
	f.Fuzz(func(t *testing.T, native, python []byte) {
		p := process{pid: 1}
		var err error
		if p.native, err = ParseNative(native); err != nil {
			p.native = nil
		}
		if p.python, err = ParsePython(python); err != nil {
			p.python = nil
		}
		r, err := sumUp([]process{p})
		if err != nil {
			return
		}
		e := Estimate(&trace.Bundle{Manifest: trace.Manifest{Outcome: trace.Stopped, Steps: r.Steps, Reasons: r.Reasons}, Ranks: r.Ranks}, profile)
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRank: the report of a rank comes back from a bundle that a stranger may have made.
func FuzzRank(f *testing.F) {
	profile, err := gpu.Load("h100")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(fmt.Sprintf(`{"schema":%q,"peak_reserved_bytes":5,"peak_device_bytes":17592186044416,"coverage":{"bounded":{"x":{"largest_bytes":17592186044416},"y":{"largest_bytes":17592186044416}}}}`, schemaRank)))
	f.Fuzz(func(t *testing.T, report []byte) {
		e := Estimate(&trace.Bundle{Manifest: trace.Manifest{Outcome: trace.Stopped, Steps: 4}, Ranks: []trace.Rank{{Report: report}}}, profile)
		if err := e.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestProcessesAtOnce(t *testing.T) {
	rank := func(pid, node int, began, wall float64) trace.Rank {
		return trace.Rank{Report: []byte(fmt.Sprintf(`{"schema": %q, "pid": %d, "node": %d, "began_unix": %g, "wall_seconds": %g}`, schemaRank, pid, node, began, wall))}
	}
	for name, c := range map[string]struct {
		ranks []trace.Rank
		want  int
	}{
		"none":                      {nil, 0},
		"one":                       {[]trace.Rank{rank(7, 0, 100, 10)}, 1},
		"one with two cards":        {[]trace.Rank{rank(7, 0, 100, 10), rank(7, 0, 100, 10)}, 1},
		"one after the other":       {[]trace.Rank{rank(7, 0, 100, 10), rank(8, 0, 110, 10), rank(9, 0, 121, 10)}, 1},
		"two at once, one later":    {[]trace.Rank{rank(7, 0, 100, 10), rank(8, 0, 105, 10), rank(9, 0, 116, 10)}, 2},
		"the same number again":     {[]trace.Rank{rank(7, 0, 100, 10), rank(7, 0, 105, 10)}, 2},
		"times that nobody knows":   {[]trace.Rank{rank(7, 0, 100, 10), rank(8, 0, 0, 0)}, 2},
		"a report that is not read": {[]trace.Rank{rank(7, 0, 100, 10), {Report: []byte("{")}}, 2},
	} {
		if got := ProcessesAtOnce(&trace.Bundle{Ranks: c.ranks}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
