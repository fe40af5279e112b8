package replay

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestDifferential drives random programs through the real allocator of every installed PyTorch, on the virtual GPU, and replays what it did.
// GRESIZE_DIFFERENTIAL_EVENTS sets how many events per release; `make nightly` asks for 10^7.
func TestDifferential(t *testing.T) {
	venvs, err := filepath.Glob(filepath.Join(torchtest.Cache(), "venv-torch-*/bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	lib, err := filepath.Abs("../../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(lib, "vgpu/gresize-audit.so")); err != nil || len(venvs) == 0 {
		t.Skipf("%d PyTorch releases in %s, virtual GPU in %s: %v (make setup build prepares both); only recorded traces are compared", len(venvs), torchtest.Cache(), lib, err)
	}
	want, first := 10_000, 0
	if text := os.Getenv("GRESIZE_DIFFERENTIAL_EVENTS"); text != "" {
		if want, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if text := os.Getenv("GRESIZE_DIFFERENTIAL_SEED"); text != "" {
		if first, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	if only := os.Getenv("GRESIZE_RELEASES"); only != "" {
		venvs = slices.DeleteFunc(venvs, func(python string) bool {
			return !slices.Contains(strings.Fields(only), strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(python))), "venv-torch-"))
		})
	}
	for _, python := range venvs {
		t.Run(filepath.Base(filepath.Dir(filepath.Dir(python))), func(t *testing.T) {
			events := 0
			for seed := first; events < want; seed++ {
				events += differentialRun(t, python, lib, seed, max(want/20, 10_000))
				if t.Failed() {
					return
				}
				t.Logf("%d events compared up to seed %d", events, seed) // a run of hours shows how far it is
			}
		})
	}
}

var differentialConfs = []string{
	"", "expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:8", "garbage_collection_threshold:0.6",
	"roundup_power2_divisions:[1:4,8:2,64:16,>:1]", "garbage_collection_threshold:0.5,max_split_size_mb:100", "max_split_size_mb:32,max_non_split_rounding_mb:40",
}

// differentialRun compares one random program and returns the number of its events.
func differentialRun(t *testing.T, python, lib string, seed, events int) int {
	conf := differentialConfs[seed%len(differentialConfs)]
	release, err := allocator.ParseVersion(strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(python))), "venv-torch-"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := allocator.ParseConfig(conf, release); err != nil {
		conf = "max_split_size_mb:64" // the release does not know an option, and would stop at it
	}
	fraction, streams := 0.0, 1+seed%3
	if strings.Contains(conf, "garbage") {
		fraction = 0.8
	}
	if seed%5 == 0 {
		streams = 1
	}
	capacity := int64([]int{3, 6, 80}[seed%3]) << 30
	file := filepath.Join(t.TempDir(), "snapshot.pickle")
	env, err := vgpu.Environment(vgpu.Options{LibDir: lib, CapacityBytes: capacity, WithoutPython: true}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/random_program.py", strconv.Itoa(seed), strconv.Itoa(events*2/5), fmt.Sprint(fraction), strconv.Itoa(streams), file)
	cmd.Env = append(append(os.Environ(), env...), "PYTORCH_CUDA_ALLOC_CONF="+conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, out)
	}
	p, err := Open(file, OpenOptions{})
	if err != nil {
		t.Fatalf("seed %d, %q: %v", seed, conf, err)
	}
	res, err := p.Check()
	if err != nil {
		t.Fatalf("seed %d, %q: %v", seed, conf, err)
	}
	if res.Differences != 0 {
		t.Errorf("seed %d, %q, %d streams, fraction %v, %d bytes: %d differences in %d events; the first at %v", seed, conf, streams, fraction, capacity, res.Differences, res.Events, res.First)
	}
	if p.Version == (allocator.Version{}) || res.Events < 1000 {
		t.Errorf("seed %d: PyTorch %v, only %d events", seed, p.Version, res.Events)
	}
	os.Remove(file)
	return res.Events
}
