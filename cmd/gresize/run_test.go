package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/offload"
)

// TestRunIsRefused: each bad input is an error before anything is started, which names what is wrong and the way out.
func TestRunIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, change func(p *offload.Plan)) string {
		p := &offload.Plan{Schema: offload.Schema, TargetBytes: 1 << 30, Iterations: []offload.Iteration{{Prefixes: []uint32{1, 2}, Moves: []offload.Move{{Save: 0, Bytes: 5, Gone: 1, Back: 1}}}}}
		change(p)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if name == "truncated" {
			data = data[:len(data)/2]
		}
		path := filepath.Join(dir, name+".plan")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	started := filepath.Join(dir, "started")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no target":           {nil, exitUsage, "give one of --target"},
		"both":                {[]string{"--target", "1GiB", "--plan", "x"}, exitUsage, "give one of --target"},
		"no size":             {[]string{"--target", "many"}, exitUsage, "--target"},
		"no share":            {[]string{"--target", "0%"}, exitUsage, "a share is more than 0%"},
		"more than all":       {[]string{"--target", "120%"}, exitUsage, "at most 100%"},
		"another card":        {[]string{"--target", "1GiB", "--gpu", "abacus"}, exitUsage, "abacus"},
		"no rate":             {[]string{"--target", "1GiB", "--pcie", "fast"}, exitUsage, "--pcie"},
		"no folder":           {[]string{"--target", "1GiB", "-o", filepath.Join(dir, "none/job.plan")}, exitUsage, "-o"},
		"no plan there":       {[]string{"--plan", filepath.Join(dir, "none.plan")}, exitError, "none.plan"},
		"plan and only-plan":  {[]string{"--plan", "x", "--only-plan"}, exitUsage, "--only-plan"},
		"truncated":           {[]string{"--plan", write("truncated", func(*offload.Plan) {})}, exitError, "truncated.plan is no plan"},
		"another schema":      {[]string{"--plan", write("schema", func(p *offload.Plan) { p.Schema = "gresize.plan/1" })}, exitError, "schema"},
		"regions":             {[]string{"--plan", write("regions", func(p *offload.Plan) { p.Regions = []int64{-1} })}, exitError, "regions"},
		"empty":               {[]string{"--plan", write("empty", func(p *offload.Plan) { p.Iterations = nil })}, exitError, "iterations: 0"},
		"back before it left": {[]string{"--plan", write("back", func(p *offload.Plan) { p.Iterations[0].Moves[0].Back = 0 })}, exitError, "iterations[0].moves[0]"},
		"too much for the host": {[]string{"--plan", write("host", func(p *offload.Plan) { p.HostBytes = 1 << 47 })}, exitError,
			"--mem"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(append([]string{"run"}, c.args...), "--", "touch", started), &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%s: exit %d, want %d; %s%s, want %q", name, code, c.code, out.String(), errs.String(), c.says)
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the command was started")
	}
}

// TestNoCardHere: where the command would find no GPU, it is not started, and what is said names the way out. A plan is made there all the same.
func TestNoCardHere(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	dir := t.TempDir()
	plan, started := filepath.Join(dir, "job.plan"), filepath.Join(dir, "started")
	data, err := json.Marshal(&offload.Plan{Schema: offload.Schema, TargetBytes: 1 << 30, Iterations: []offload.Iteration{{Prefixes: []uint32{1, 2}, Moves: []offload.Move{{Save: 0, Bytes: 5, Gone: 1, Back: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plan, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--target", "1GiB"}, {"--plan", plan}} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append(append([]string{"run"}, args...), "--", "touch", started), &out, &errs)
		if code != exitError || !strings.Contains(errs.String(), "CUDA_VISIBLE_DEVICES= hides every GPU") || !strings.Contains(errs.String(), "--only-plan -o FILE") {
			t.Errorf("%s: exit %d, %s%s", args, code, out.String(), errs.String())
		}
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the command was started")
	}
}

// TestErrorsAreShort: a file of a stranger is not printed whole.
func TestErrorsAreShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.plan")
	if err := os.WriteFile(path, []byte(`{"schema":"gresize.offload/1","host_bytes":`+strings.Repeat("9", 1<<20)+"}"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"run", "--plan", path, "--", "true"}, &stdout, &stderr); code == exitOK || stderr.Len() > 2*maxErrorBytes || !strings.Contains(stderr.String(), path) {
		t.Errorf("exit status %d, %d bytes: %.300s", code, stderr.Len(), stderr.String())
	}
}

// TestNoPlanReachesTheTarget: what is said names the smallest target to try.
func TestNoPlanReachesTheTarget(t *testing.T) {
	const gib = int64(1) << 30
	before := estimator.Estimate{Ranks: []estimator.Rank{{OutsideBytes: gib / 2}}}
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"foreseen": {&offload.NeedError{NeedBytes: 5 * gib, AllocatorBytes: gib}, "5.00 GiB have to be on the card at once at one moment of an iteration, and 512 MiB lie outside of PyTorch's allocator\n  to try: --target 7.5GiB, or a smaller batch"},
		"stays":    {&offload.NeedError{NeedBytes: 5 * gib, AllocatorBytes: gib}, "no plan for 1GiB\n  stays on the card: the state of 2 optimizers\n  5.00 GiB have to be"},
		"blocks":   {&offload.NeedError{NeedBytes: 5 * gib, AllocatorBytes: gib}, "5.00 GiB have to be on the card at once at one moment of an iteration, and 512 MiB lie outside of PyTorch's allocator\n  to try: --target 6GiB, or a smaller batch"},
		"outside":  {&offload.NeedError{NeedBytes: 2 * gib, AllocatorBytes: gib, Outside: true}, "where nothing can be moved, and 512 MiB lie outside of PyTorch's allocator\n  to try: --target 3GiB, or a smaller batch"},
		"segments": {&offload.NeedError{NeedBytes: 5 * gib, AllocatorBytes: gib, Segments: true}, "take 5.00 GiB or more, and 512 MiB lie outside of it\n  to try: --expandable, --target 6GiB, or a smaller batch"},
		"small":    {&offload.NeedError{NeedBytes: gib, AllocatorBytes: gib / 2}, "as it is, the program needs 4.00 GiB; the target is 1.00 GiB\n  1.00 GiB have to be on the card at once at one moment of an iteration, and 512 MiB lie outside of PyTorch's allocator\n  to try: --target 1632MiB, or a smaller batch"},
		"no less":  {&offload.NeedError{NeedBytes: 4 * gib, AllocatorBytes: gib / 2}, "lie outside of PyTorch's allocator\n  to try: a smaller batch"},
	} {
		var out bytes.Buffer
		flags := runFlags{target: "1GiB"}
		fitted := &offload.Fitted{Before: before, TargetBytes: gib}
		switch name {
		case "foreseen":
			fitted.SmallestBytes = 7 * gib
		case "small", "no less":
			fitted.Before = estimator.Estimate{Ranks: []estimator.Rank{{OutsideBytes: gib / 2, ComfortableBytes: 4 * gib}}}
		case "stays":
			fitted.Stays = "the state of 2 optimizers"
		}
		err := flags.refused(&out, fitted, c.err)
		var status *statusError
		if !errors.As(err, &status) || status.code != exitDoesNotFit || !strings.Contains(out.String(), "no plan for 1GiB\n") || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}
