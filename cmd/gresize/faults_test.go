package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gresize/gresize/estimator"
)

// hearCalls stands before the layer's sitecustomize. It hears of every call of a function of the layers in every process of the run: it notes the functions, or lets one call raise, once.
const hearCalls = `
def _plant():
    import os, sys, threading
    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    with open(here + "plant") as f:
        wanted = f.read().split()
    counts = {}
    known = {}
    raised = []
    def note(line):
        log = os.open(here + "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, (line + "\n").encode())
        os.close(log)
    def hear(frame, event, _):
        if event != "call":
            return
        code = frame.f_code
        name = known.get(code)
        if name is None:
            path = os.path.abspath(code.co_filename)
            of_layer = path.startswith(here) and code.co_name != "<module>" and code.co_name != "_plant" and not path.endswith("sitecustomize.py")
            name = known[code] = "%s:%d:%s" % (path[len(here):], code.co_firstlineno, code.co_name) if of_layer else ""
        if not name:
            return
        n = counts[name] = counts.get(name, 0) + 1
        if not wanted:
            if n & (n - 1) == 0:
                note("%s %d" % (name, n))
        elif name == wanted[0] and n == int(wanted[1]) and not raised:
            raised.append(name)
            note("planted")
            raise RuntimeError("planted once")
    threading.setprofile(hear)
    sys.setprofile(hear)
_plant()
`

// trial asks about one program, with copies of the built library in which a fault was planted.
type trial struct {
	t       *testing.T
	binary  string
	command []string
	// sound is the largest card's memory of the answer without a fault.
	sound estimator.Rank
	// heard is what the run without a fault noted.
	heard []string

	mu     sync.Mutex
	counts map[string]int
}

// newTrial asks without a fault; prepare makes the copy of the library note what it enters.
func newTrial(t *testing.T, prepare func(lib string), env func(lib string) []string, command ...string) *trial {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "gresize")
	if text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, text)
	}
	tr := &trial{t: t, binary: binary, command: command, counts: map[string]int{}}
	lib := tr.library(prepare)
	e, text := tr.ask(lib, env(lib)...)
	largest, ok := e.Largest()
	if !ok || e.Confidence != estimator.Exact && e.Confidence != estimator.High {
		t.Fatalf("without a fault: %s %+v %s", e.Confidence, e.Reasons, text)
	}
	tr.sound = largest
	tr.heard = tr.marks(lib)
	return tr
}

// withNothing is the environment of a run that needs none of its own.
func withNothing(string) []string { return nil }

// library is a copy of the built one.
func (tr *trial) library(prepare func(lib string)) string {
	tr.t.Helper()
	lib := filepath.Join(tr.t.TempDir(), "lib")
	if err := os.CopyFS(lib, os.DirFS("../../build/lib")); err != nil {
		tr.t.Fatal(err)
	}
	prepare(lib)
	return lib
}

// marksPath is where planted code says that it was reached.
func marksPath(lib string) string { return filepath.Join(lib, "python", "marks") }

func (tr *trial) marks(lib string) []string {
	said, err := os.ReadFile(marksPath(lib))
	if err != nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	slices.Sort(lines)
	return slices.Compact(lines)
}

// ask asks without a sandbox: marks are written beside the layer.
func (tr *trial) ask(lib string, env ...string) (e estimator.Estimate, text string) {
	cmd := exec.CommandContext(tr.t.Context(), tr.binary, append([]string{"estimate", "--json", "--no-sandbox", "--budget", "180s", "--"}, tr.command...)...)
	cmd.Env = append(append(os.Environ(), "GRESIZE_LIBDIR="+lib), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // the exit status is that of the answer
	if err := json.Unmarshal(out, &e); err != nil {
		return e, string(out) + stderr.String()
	}
	return e, ""
}

// judge holds the answer under one fault against the law: as without it or larger, or low, or unknown. A fault that was not reached says nothing.
func (tr *trial) judge(seam, lib string, env ...string) {
	got, text := tr.ask(lib, env...)
	now, _ := got.Largest()
	reached := slices.Contains(tr.marks(lib), "planted")
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.t.Logf("%s: %s %v, reached: %v, %d to %d bytes", seam, got.Confidence, codes(got), reached, now.ComfortableBytes, now.ComfortableHighBytes)
	switch {
	case !reached:
		tr.counts["not reached"]++
	case text != "":
		tr.t.Errorf("%s: no answer: %.500s", seam, text)
	case got.Confidence == estimator.Low || got.Confidence == estimator.Unknown:
		tr.counts[string(got.Confidence)]++
	case now.ComfortableBytes >= tr.sound.ComfortableBytes && now.ComfortableHighBytes >= tr.sound.ComfortableHighBytes:
		tr.counts["as without"]++
	default:
		tr.t.Errorf("%s: %s, %d to %d bytes, and it is %d to %d", seam, got.Confidence, now.ComfortableBytes, now.ComfortableHighBytes, tr.sound.ComfortableBytes, tr.sound.ComfortableHighBytes)
	}
}

// each judges every step-th seam, two at once: a few of them in every test, or as many as GRESIZE_PLANTED_STEP says.
func (tr *trial) each(seams []string, few int, judge func(seam string)) {
	tr.t.Helper()
	step := max(1, len(seams)/few)
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		step = min(step, 4)
	}
	if n, err := strconv.Atoi(os.Getenv("GRESIZE_PLANTED_STEP")); err == nil && n > 0 {
		step = n
	}
	first := 0
	if n, err := strconv.Atoi(os.Getenv("GRESIZE_PLANTED_FIRST")); err == nil {
		first = n
	}
	places := make(chan struct{}, 2)
	var wait sync.WaitGroup
	tried := 0
	for i := first; i < len(seams); i += step {
		tried++
		wait.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			judge(seams[i])
		})
	}
	wait.Wait()
	tr.t.Logf("%d seams that the run enters, %d planted: %v", len(seams), tried, tr.counts)
	if missed := tr.counts["not reached"]; tried == 0 || missed*10 > tried {
		tr.t.Errorf("%d of %d planted faults were not reached", missed, tried)
	}
}

func codes(e estimator.Estimate) []string {
	var words []string
	for _, r := range e.Reasons {
		words = append(words, r.Code)
	}
	return words
}
