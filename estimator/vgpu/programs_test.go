package vgpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// TestHabitsOfPrograms holds what public programs do and what once went wrong with it.
func TestHabitsOfPrograms(t *testing.T) {
	for _, c := range []struct {
		name    string
		devices int
		decides bool // by a value that no kernel computed
	}{
		{name: "second_device", devices: 2},
		{name: "batch_sampler", devices: 1},
		{name: "default_device", devices: 1},
		{name: "masks", devices: 1},
		{name: "script", devices: 1, decides: true},
		{name: "data_parallel", devices: 2},
		{name: "generates", devices: 1, decides: true},
	} {
		for _, release := range often("2.11.0", "2.6.0") {
			t.Run(c.name+"-"+release, func(t *testing.T) {
				t.Parallel()
				o := runPython(t, release, c.devices, []string{"testdata/programs.py", c.name})
				if o.failed || !o.reports.Stopped || len(o.reports.UnansweredSymbols) != 0 {
					t.Fatalf("failed %v, stopped %v, unanswered %v\n%s", o.failed, o.reports.Stopped, o.reports.UnansweredSymbols, o.output)
				}
				for _, r := range o.ranks {
					if r.Coverage.StepsUneven {
						t.Errorf("steps that are alike, or alike in turn, are told to differ: %+v", r.Coverage.Ahead)
					}
				}
				if e := o.estimate(t, trace.Stopped); !c.decides && e.Confidence != estimator.High {
					t.Errorf("confidence %s: %v", e.Confidence, e.Reasons)
				}
			})
		}
	}
}

// TestAfterAnEpoch: an epoch is cut short, and what follows it is in the figure.
func TestAfterAnEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		atLeast int64
		full    bool
	}{
		"validates": {atLeast: 1024 * 32 * 30 * 30 * 4}, "fails_after_an_epoch": {}, "lingers_after_an_epoch": {}, "full_after_an_epoch": {full: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := runPython(t, "2.6.0", 1, []string{"testdata/programs.py", name})
			if c.full {
				if !o.failed || !o.reports.OutOfMemory || o.reports.Stopped {
					t.Errorf("failed %v, out of memory %v, stopped %v\n%s", o.failed, o.reports.OutOfMemory, o.reports.Stopped, o.output)
				}
				return
			}
			if o.failed || !o.reports.Stopped {
				t.Fatalf("failed %v, stopped %v\n%s", o.failed, o.reports.Stopped, o.output)
			}
			e := o.estimate(t, trace.Stopped)
			if e.Confidence != estimator.High || e.HasReason("phase_not_reached") || !e.HasReason("run_cut_short") || e.Ranks[0].PeakAllocatedBytes < c.atLeast {
				t.Errorf("%+v", e)
			}
		})
	}
}

const ownAllocator = `#include <stddef.h>
extern int cudaMalloc(void **, size_t);
extern int cudaFree(void *);
void *own_malloc(size_t bytes, int device, void *stream)
{
	void *block = NULL;

	(void)device, (void)stream, (void)cudaMalloc(&block, bytes);
	return block;
}
void own_free(void *block, size_t bytes, int device, void *stream)
{
	(void)bytes, (void)device, (void)stream, (void)cudaFree(block);
}
`

// TestOwnAllocator: steps are counted and the memory is seen where PyTorch's allocator is replaced by the program's.
func TestOwnAllocator(t *testing.T) {
	dir := t.TempDir()
	source, library := filepath.Join(dir, "own.c"), filepath.Join(dir, "own.so")
	if err := os.WriteFile(source, []byte(ownAllocator), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run(release, func(t *testing.T) {
			o := runPython(t, release, 1, []string{"testdata/programs.py", "own_allocator", library})
			e := o.estimate(t, trace.Stopped)
			// Weights and their gradients are 64 MiB each, and cuBLAS has a workspace.
			if o.failed || e.Confidence != estimator.Low || !e.HasReason("memory_uncounted") || e.HasReason("peak_still_rising") || e.Ranks[0].PeakReservedBytes != 0 || e.Ranks[0].OutsideBytes < 2*64<<20 {
				t.Errorf("failed %v: %+v\n%s", o.failed, e, o.output)
			}
		})
	}
}
