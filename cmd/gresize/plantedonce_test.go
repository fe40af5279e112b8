package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// oneFault stands before the layer's sitecustomize. It hears of every call of a function of the layer in every process of the run: it counts them by function, or lets one call raise, once.
const oneFault = `
def _plant():
    import os, sys, threading
    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    with open(here + "plant") as f:
        wanted = f.read().split()
    counts = {}
    known = {}
    raised = []
    def hear(frame, event, _):
        if event != "call":
            return
        code = frame.f_code
        name = known.get(code)
        if name is None:
            path = os.path.abspath(code.co_filename)
            of_layer = path.startswith(here) and code.co_name != "<module>" and code.co_name != "_plant" and not path.endswith("sitecustomize.py")
            name = known[code] = "%s:%s:%d" % (path[len(here):], code.co_name, code.co_firstlineno) if of_layer else ""
        if not name:
            return
        n = counts[name] = counts.get(name, 0) + 1
        if not wanted:
            if n & (n - 1) == 0:
                log = os.open(here + "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(log, ("%s %d\n" % (name, n)).encode())
                os.close(log)
        elif name == wanted[0] and n == int(wanted[1]) and not raised:
            raised.append(name)
            log = os.open(here + "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(log, b"raised\n")
            os.close(log)
            raise RuntimeError("planted once")
    threading.setprofile(hear)
    sys.setprofile(hear)
_plant()
`

// TestOneFault lets a single call of a function of the Python layer raise, the first one or a later one, and all that follow work: what is lost then is small and easily overlooked.
// The answer is the same, or low, or unknown. GRESIZE_ONE_FAULT is the number of calls that are tried, GRESIZE_ONE_FAULT_SEED chooses others.
func TestOneFault(t *testing.T) {
	faults := 40
	if n, err := strconv.Atoi(os.Getenv("GRESIZE_ONE_FAULT")); err == nil {
		faults = n
	} else if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("each fault takes a run of ten seconds: make nightly tries 40, GRESIZE_ONE_FAULT says how many")
	}
	seed, _ := strconv.ParseUint(os.Getenv("GRESIZE_ONE_FAULT_SEED"), 10, 64)
	python := torchtest.Python(t, "2.6.0")
	dir := t.TempDir()
	lib := filepath.Join(dir, "lib")
	if err := os.CopyFS(lib, os.DirFS("../../build/lib")); err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(lib, "python")
	own, err := os.ReadFile(filepath.Join(layer, "sitecustomize.py"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(layer, "sitecustomize.py"), slices.Concat([]byte(oneFault), own), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "train.py")
	if err := os.WriteFile(program, []byte(plantedProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "gresize")
	if text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, text)
	}
	calls := filepath.Join(layer, "calls")
	ask := func(plant string) (estimator.Estimate, string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(layer, "plant"), []byte(plant), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(calls, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		// Without a sandbox: the counts are written beside the layer.
		cmd := exec.CommandContext(t.Context(), binary, "estimate", "--json", "--no-sandbox", "--budget", "120s", "--", python, program)
		cmd.Env = append(os.Environ(), "GRESIZE_LIBDIR="+lib)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output() // the exit status is that of the answer
		var e estimator.Estimate
		if err := json.Unmarshal(out, &e); err != nil {
			t.Errorf("%s: no answer: %.500s %.500s", plant, out, stderr.Bytes())
		}
		said, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		return e, string(said)
	}
	sound, said := ask("")
	largest, ok := sound.Largest()
	if !ok || sound.Confidence != estimator.Exact && sound.Confidence != estimator.High {
		t.Fatalf("without a fault: %s %+v", sound.Confidence, sound.Reasons)
	}
	seams := strings.Split(strings.TrimSpace(said), "\n")
	slices.Sort(seams)
	seams = slices.Compact(seams)
	if len(seams) < 300 {
		t.Fatalf("%d calls were heard: the layer has more", len(seams))
	}
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(seams)) //nolint:gosec // a choice that can be repeated
	counts := map[string]int{}
	for _, i := range order[:min(faults, len(order))] {
		seam := seams[i]
		got, said := ask(seam)
		now, _ := got.Largest()
		t.Logf("%s: %s, raised %d times, %d to %d bytes", seam, got.Confidence, strings.Count(said, "raised"), now.ComfortableBytes, now.ComfortableHighBytes)
		switch {
		case !strings.Contains(said, "raised"):
			counts["not reached"]++
		case got.Confidence == estimator.Low || got.Confidence == estimator.Unknown:
			counts[string(got.Confidence)]++
		case now.ComfortableBytes >= largest.ComfortableBytes && now.ComfortableHighBytes >= largest.ComfortableHighBytes:
			counts["as without"]++
		default:
			t.Errorf("%s: %s, %d to %d bytes, and it is %d to %d", seam, got.Confidence, now.ComfortableBytes, now.ComfortableHighBytes, largest.ComfortableBytes, largest.ComfortableHighBytes)
		}
	}
	if counts["not reached"] == min(faults, len(order)) && faults > 0 {
		t.Errorf("no fault was reached: %v", counts)
	}
	t.Logf("%d calls, %d planted: %v", len(seams), faults, counts)
}
