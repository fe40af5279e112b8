package main

import (
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
)

func TestHintsOfACommandThatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		output    string
		command   string
		sandboxed bool
		outcome   trace.Outcome
		want      string
	}{
		"a second process":      {"RuntimeError: CUDA error: invalid device ordinal", "python -m torch.distributed.run --nproc_per_node=2 ddp.py", true, trace.Crashed, "sees 1 GPU and wanted more: --gpus 2 "},
		"torchrun":              {"CUDA error: invalid device ordinal", "torchrun --nproc-per-node 4 ddp.py", true, trace.Crashed, "--gpus 4 "},
		"a second GPU":          {"CUDA error: invalid device ordinal", "python x.py", true, trace.Crashed, "--gpus N "},
		"a download":            {"urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "python x.py", true, trace.Crashed, "no network in the sandbox"},
		"outside":               {"urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "python x.py", false, trace.Crashed, ""},
		"a run that went on":    {"Temporary failure in name resolution", "python x.py", true, trace.Stopped, ""},
		"another fault":         {"ValueError: empty data set", "torchrun --nproc-per-node 4 ddp.py", true, trace.Crashed, ""},
		"processes of no count": {"invalid device ordinal", "torchrun --nproc-per-node", true, trace.Crashed, "--gpus N "},
	} {
		got := strings.Join(hints(&trace.Manifest{OutputTail: c.output, Command: strings.Fields(c.command), Sandboxed: c.sandboxed, Outcome: c.outcome, GPU: trace.GPU{Devices: 1}}), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What could not be relied on is no promise for other cards.
func TestALowAnswerNamesNoCards(t *testing.T) {
	p, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	low := result(func(r *probe.Result) { r.Estimate.Confidence = estimator.Low })
	if r := newReading(&low, p); len(r.WouldFit) != 0 || r.Headroom == nil {
		t.Errorf("would fit %v, headroom %v", r.WouldFit, r.Headroom)
	}
	high := result(nil)
	if r := newReading(&high, p); len(r.WouldFit) == 0 {
		t.Error("a high answer names no card")
	}
}

// A card that was full once held the job in the end: how much a larger one would give it is not known, that this one was not too small is.
func TestACardThatWasFullOnceIsNoContradiction(t *testing.T) {
	p, err := gpu.Load("rtx4060")
	if err != nil {
		t.Fatal(err)
	}
	full := result(func(r *probe.Result) {
		r.Estimate.Fits, r.Estimate.Confidence, r.Estimate.GPU = false, estimator.Low, "rtx4060"
		r.Estimate.Reasons = []estimator.Reason{{Code: "near_capacity"}}
		r.Estimate.Ranks[0].MinimumBytes = 5 << 30
	})
	r := newReading(&full, p)
	var b strings.Builder
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); strings.Contains(s, "more than") || !strings.Contains(s, "6.50 GiB in use when the card was full once") || !strings.Contains(s, "to try ") {
		t.Error(s)
	}
}
