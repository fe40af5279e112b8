package main

import (
	"path/filepath"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestEstimateByXMem runs a script that asks for a GPU on the CPU, and asks about the bundle of the run once more.
func TestEstimateByXMem(t *testing.T) {
	script, err := filepath.Abs("../../estimator/vgpu/testdata/profiled.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bundle := filepath.Join(dir, "run.bundle")
	a := estimated(t, dir, "--estimator", "xmem", "--gpu", "rtx3060", "--bundle", bundle, "--", torchtest.Python(t, "2.6.0"), script)
	if a.Estimator != "xmem" || a.Confidence != estimator.Low || a.Steps != 3 || a.code != exitUnknown || !a.has("kernels_of_cpu") || !a.has("run_cut_short") {
		t.Fatalf("%+v", a)
	}
	// 64 MiB of weights, as much of gradients, twice as much of Adam's state; one list of temporaries while the gradients are there.
	if got := a.Ranks[0].PeakAllocatedBytes; got < 5*64<<20 || got > 5*64<<20+8<<20 {
		t.Errorf("%d bytes are allocated at the peak", got)
	}
	b, err := trace.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	card, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"xmem": "", "xmem-published": "recorded_otherwise", "vgpu": "recorded_otherwise", "veritasest": "not_covered"} {
		method, err := bundled.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		e, err := method.FromBundle(b, card)
		if err != nil {
			t.Fatal(err)
		}
		if unknown := e.Confidence == estimator.Unknown; unknown != (want != "") || unknown && e.Reasons[len(e.Reasons)-1].Code != want {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestFaithfulIsOfXMem(t *testing.T) {
	flags := estimateFlags{gpus: 1, steps: 1, budget: 1, estimator: "vgpu", faithful: true}
	if _, err := flags.check(newEstimateCommand(), []string{"true"}); err == nil {
		t.Error("the virtual GPU has no published program")
	}
	flags.estimator = "xmem"
	if _, err := flags.check(newEstimateCommand(), []string{"true"}); err != nil || flags.estimator != "xmem-published" {
		t.Errorf("%v, %s", err, flags.estimator)
	}
}
