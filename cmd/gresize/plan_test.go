package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

func runPlan(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"plan"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestPlanOfResnet50(t *testing.T) {
	schedule := filepath.Join(t.TempDir(), "schedule.json")
	code, out, errs := runPlan(recordedTraces+"/resnet50_2.6.json.gz", "--target", "2GiB", "--pcie", "12GB/s", "--step-time", "300ms", "--effort", "20000", "-o", schedule)
	if code != exitOK || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	for _, want := range []string{"repeats", "1096 requests", "live bound", "PyTorch", "expandable", "SmartPool", "without --target a lower one is searched for", "on the card", "with the given step time"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	data, err := os.ReadFile(schedule)
	if err != nil {
		t.Fatal(err)
	}
	var got planned
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Swap
	if got.Schema != planSchema || len(got.Layout) != got.Blocks || s == nil || len(s.Moves) == 0 || s.PeakBytes > 2<<30 || s.PoolBytes > 2<<30 || s.TotalNanos < s.BaseNanos {
		t.Errorf("schema %q, %d of %d blocks, swap %+v", got.Schema, len(got.Layout), got.Blocks, s)
	}
	if got.PlanBytes < got.LiveBoundBytes || uint64(*got.DefaultBytes) <= got.PlanBytes || uint64(*got.Expandable) < got.PlanBytes || got.SmartPoolBytes < got.PlanBytes {
		t.Errorf("%+v", got)
	}
}

// TestPlanWithoutATarget searches for the lowest layout, and proves it here.
func TestPlanWithoutATarget(t *testing.T) {
	code, out, errs := runPlan(recordedTraces+"/resnet50_2.6.json.gz", "--effort", "20000")
	if code != exitOK || errs != "" || !strings.Contains(out, "optimal: no layout is lower") || strings.Contains(out, "--target") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
}

// TestPlanOfATable: MiniMalloc's problems are read as they are, the pools that were published stand beside the plan, and nothing can be swapped.
func TestPlanOfATable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	table := write("blocks.csv", "id,lower,upper,size\n0,0,3,1024\n1,3,9,2048\n2,1,5,512\n")
	code, out, errs := runPlan(table)
	if code != exitOK || errs != "" || !strings.Contains(out, "3 blocks") || !strings.Contains(out, "optimal") || !strings.Contains(out, "CnMem") || strings.Contains(out, "PyTorch") || strings.Contains(out, "repeats") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	for _, args := range [][]string{{"--target", "1MiB"}, {"--no-overhead"}, {"--slowdown", "1.1"}} {
		if code, _, errs := runPlan(append([]string{table}, args...)...); code != exitUsage || !strings.Contains(errs, "does not say when they are used") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	if code, _, errs := runPlan(write("bad.csv", "id,lower,upper,size\n0,0,x,1024\n")); code != exitError || !strings.Contains(errs, "bad.csv: line 2: upper") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// TestPlanWithoutOverhead: the smallest target that costs nothing, and the smaller one that costs a little.
func TestPlanWithoutOverhead(t *testing.T) {
	least := func(args ...string) uint64 {
		code, out, errs := runPlan(append([]string{recordedTraces + "/resnet50_2.6.json.gz", "--step-time", "300ms", "--effort", "1", "--json", "--time-limit", "10m"}, args...)...)
		var got planned
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || got.Swap == nil || got.CnMemBytes < got.SmartPoolBytes {
			t.Fatalf("exit %d, %s, %v\n%s", code, errs, err, out)
		}
		if args[0] == "--no-overhead" && got.Swap.StallNanos() != 0 {
			t.Errorf("it waits %d ns", got.Swap.StallNanos())
		}
		return got.Swap.TargetBytes
	}
	free, dear := least("--no-overhead"), least("--slowdown", "1.1")
	if free > 2500<<20 || dear > free {
		t.Errorf("%d MiB without overhead, %d MiB with a tenth", free>>20, dear>>20)
	}
}

func TestPlanThatCannotBe(t *testing.T) {
	code, out, _ := runPlan(recordedTraces+"/resnet50_2.6.json.gz", "--target", "100MiB", "--effort", "1", "--time-limit", "10m")
	if code != exitDoesNotFit || strings.Count(out, "no plan: request ") != 1 || strings.Count(out, "on the card at once") != 1 {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if !strings.Contains(out, "is about the smallest target that there is a plan for") {
		t.Errorf("no smallest target in\n%s", out)
	}
}

func TestPlanUsage(t *testing.T) {
	file := recordedTraces + "/resnet50_2.6.json.gz"
	for _, args := range [][]string{{}, {file, file}, {file, "--target", "24"}, {file, "--target", "-1GiB"}, {file, "--pcie", "12"}, {file, "--pcie", "0GB/s"},
		{file, "--pcie", "1e30GB/s"}, {file, "--rank", "-1"}, {file, "--step-time", "-1s"}, {file, "--effort", "0"}, {file, "--torch-version", "9.9"}} {
		if code, _, _ := runPlan(args...); code != exitUsage {
			t.Errorf("%q: exit %d", args, code)
		}
	}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("@ torch=2.6.0 conf=- total=1 fraction=-\n> a v0 -5 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runPlan(broken); code != exitError || !strings.Contains(errs, "broken") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// endlessPlan is a plan that takes hours: an effort without end.
func endlessPlan(more ...string) []string {
	return append([]string{"plan", recordedTraces + "/resnet50_2.6.json.gz", "--target", "1GiB", "--effort", "9000000000000000"}, more...)
}

// worked is the time that this process has had on CPUs: a busy machine adds nothing to it.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestPlanEndsInTime(t *testing.T) {
	var out, errs bytes.Buffer
	// A first plan takes some seconds of work; how many by the clock, the machine decides.
	limit, code := 4*time.Second, exitUnknown
	for ; code == exitUnknown && limit < 10*time.Minute; limit *= 2 {
		out.Reset()
		before := worked(t)
		code = run(t.Context(), endlessPlan("--time-limit", limit.String()), &out, &errs)
		if work := worked(t) - before; work > time.Duration(runtime.GOMAXPROCS(0))*(limit+10*time.Second) {
			t.Errorf("a limit of %v took %v of work", limit, work)
		}
	}
	if code != exitOK || !strings.Contains(out.String(), "in a pool of") || !strings.Contains(out.String(), "cut short") {
		t.Errorf("the best so far: exit %d, %s:\n%s", code, &errs, &out)
	}
	out.Reset()
	code = run(t.Context(), endlessPlan("--time-limit", "60ms"), &out, &errs) // enough for a layout, hardly for a plan
	if code == exitOK && !strings.Contains(out.String(), "in a pool of") || code == exitUnknown && !strings.Contains(out.String(), "no plan found within 60ms") {
		t.Errorf("no plan in time: exit %d, %s:\n%s", code, &errs, &out)
	}
	out.Reset()
	if code := run(t.Context(), []string{"plan", recordedTraces + "/resnet50_2.6.json.gz", "--time-limit", "1ns"}, &out, &errs); code != exitError || !strings.Contains(errs.String(), "--time-limit") {
		t.Errorf("no time at all: exit %d, %s%s", code, &out, &errs)
	}
}

func TestPlanStopsWhenTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	var out, errs bytes.Buffer
	before := worked(t)
	code := run(ctx, endlessPlan("--time-limit", "1h"), &out, &errs)
	if work := worked(t) - before; work > time.Duration(runtime.GOMAXPROCS(0))*10*time.Second {
		t.Errorf("it took %v of work", work)
	}
	if code != exitError || !strings.Contains(errs.String(), "interrupted") || out.Len() > 0 {
		t.Errorf("exit %d, %s%s", code, &out, &errs)
	}
}

func TestPlanShowsOnATerminalWhatItDoes(t *testing.T) {
	var b bytes.Buffer
	stop := (&progressLine{w: &b, terminal: true, columns: 80}).working("looking")
	time.Sleep(progressPlain + 200*time.Millisecond)
	stop()
	if !strings.Contains(b.String(), " 1 s  looking") || !strings.HasSuffix(b.String(), "\r\x1b[K") {
		t.Errorf("%q", b.String())
	}
	(*progressLine)(nil).working("nothing")()
}

// TestPlanOfUses: a bundle that was recorded with --utilization says what operators read and write: the plan says so, and moves the optimizer's state, which is never freed. One
// that was not is planned by a guess, and that is said, too.
func TestPlanOfUses(t *testing.T) {
	python := torchtest.Python(t, "2.6.0")
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", lib)
	for _, c := range []struct{ flag, says string }{{"--utilization", "operators of a step read and wrote, found in 7 steps, times by the roofline of rtx3060"}, {"--quick", "guessed: near a block's request"}} {
		bundle := filepath.Join(t.TempDir(), "job.gresize")
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"estimate", c.flag, "--no-sandbox", "--gpu", "rtx3060", "--budget", "5m", "--bundle", bundle, "--", python, "../../offload/testdata/momentum.py"}, &out, &errs); code != exitOK {
			t.Fatalf("exit %d\n%s%s", code, &out, &errs)
		}
		code, text, said := runPlan(bundle, "--target", "1100MiB", "--effort", "1", "--time-limit", "10m", "--json")
		var got planned
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("exit %d, %v\n%s%s", code, err, text, said)
		}
		if !strings.Contains(got.Uses, c.says) {
			t.Errorf("%s: %q", c.flag, got.Uses)
		}
		if c.flag == "--utilization" && (code != exitOK || got.Swap == nil || len(got.Swap.Moves) == 0) {
			t.Errorf("exit %d: %s", code, text)
		}
	}
}
