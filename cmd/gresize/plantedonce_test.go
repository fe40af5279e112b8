package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

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
	program := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(program, []byte(plantedProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	tr := newTrial(t, hear(t, ""), withNothing, torchtest.Python(t, "2.6.0"), program)
	if len(tr.heard) < 300 {
		t.Fatalf("%d calls were heard: the layer has more", len(tr.heard))
	}
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(tr.heard)) //nolint:gosec // a choice that can be repeated
	for _, i := range order[:min(faults, len(order))] {
		tr.judge(tr.heard[i], tr.library(hear(t, tr.heard[i])))
	}
	if tr.counts["not reached"] == min(faults, len(order)) && faults > 0 {
		t.Errorf("no fault was reached: %v", tr.counts)
	}
	t.Logf("%d calls, %d planted: %v", len(tr.heard), faults, tr.counts)
}
