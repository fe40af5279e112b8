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
		"a second process":      {"RuntimeError: CUDA error: invalid device ordinal", "python -m torch.distributed.run --nproc_per_node=2 ddp.py", true, trace.Crashed, "needs more than 1 GPU: use --gpus 2"},
		"torchrun":              {"CUDA error: invalid device ordinal", "torchrun --nproc-per-node 4 ddp.py", true, trace.Crashed, "--gpus 4"},
		"a second GPU":          {"CUDA error: invalid device ordinal", "python x.py", true, trace.Crashed, "--gpus N"},
		"a download":            {"urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "python x.py", true, trace.Crashed, "no network in the sandbox"},
		"outside":               {"urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "python x.py", false, trace.Crashed, ""},
		"a run that went on":    {"Temporary failure in name resolution", "python x.py", true, trace.Stopped, ""},
		"another fault":         {"ValueError: empty data set", "torchrun --nproc-per-node 4 ddp.py", true, trace.Crashed, ""},
		"a missing package":     {"ModuleNotFoundError: No module named 'einops'", "python x.py", true, trace.Crashed, "has no einops: activate"},
		"a missing program":     {"job.sh: line 3: conda: command not found", "bash x.sh", true, trace.Crashed, "no conda on this machine's PATH"},
		"another shell's words": {"x.sh: 3: conda: not found", "sh x.sh", true, trace.Crashed, "no conda on this machine's PATH"},
		"an absent data set":    {"FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet'", "python x.py", true, trace.Crashed, "/data/imagenet is not on this machine"},
		"a file of the folder":  {"FileNotFoundError: [Errno 2] No such file or directory: 'cfg.yaml'", "python x.py", true, trace.Crashed, "cfg.yaml is looked for in the folder"},
		"input":                 {"EOFError: EOF when reading a line", "python x.py", true, trace.Crashed, "asks for input"},
		"a breakpoint":          {"bdb.BdbQuit", "python x.py", true, trace.Crashed, "PYTHONBREAKPOINT=0"},
		"a notebook":            {"NameError: name 'get_ipython' is not defined", "python x.py", true, trace.Crashed, "made of a notebook"},
		"its arguments":         {"usage: x.py [-h] --lr LR\nx.py: error: the following arguments are required: --lr", "python x.py", true, trace.Crashed, "refused its arguments"},
		"a login":               {"wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])", "python x.py", true, trace.Crashed, "WANDB_MODE=offline"},
		"a gated model":         {"huggingface_hub.errors.GatedRepoError: 401 Client Error.", "python x.py", true, trace.Crashed, "log in and download once"},
		"a GPU by number":       {"RuntimeError: No CUDA GPUs are available", "python x.py", true, trace.Crashed, "sets CUDA_VISIBLE_DEVICES itself"},
		"another Python":        {"    match x:\n          ^\nSyntaxError: invalid syntax", "python x.py", true, trace.Crashed, "name the job's interpreter"},
		"a folder of others":    {"PermissionError: [Errno 13] Permission denied: '/data/secret'", "python x.py", true, trace.Crashed, "may not use /data/secret"},
		"processes of no count": {"invalid device ordinal", "torchrun --nproc-per-node", true, trace.Crashed, "--gpus N"},
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
