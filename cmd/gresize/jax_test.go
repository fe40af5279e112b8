package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// doublingProgram keeps an array of 4 MiB for each member of a batch, and the one that it has made of it.
const doublingProgram = `
import sys
import jax, jax.numpy as jnp
double = jax.jit(lambda x: 2 * x)
x = jnp.zeros((int(sys.argv[2]), 1 << 20))
for _ in range(6):
    x = double(x).block_until_ready()
`

// TestJAXFitAndWhatIf: the largest batch of a program of JAX is what its share of the card holds, and each row of --what-if is a run of its own.
func TestJAXFitAndWhatIf(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly")
	}
	python := filepath.Join(torchtest.Cache(), "venv-jax-0.10.2", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skipf("%v: `tools/setup jax 0.10.2` prepares it", err)
	}
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", lib)
	program := filepath.Join(t.TempDir(), "double.py")
	if err := os.WriteFile(program, []byte(doublingProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	card, err := gpu.Load("t4")
	if err != nil {
		t.Fatal(err)
	}
	const each = 2 * 4 << 20
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"fit", "--gpu", "t4", "--from", "512", "--most", "4096", "--budget", "10m", "--within", "1h", "--json", "--", python, program, "--batch-size", "{}"}, &out, &errs)
	var fitted struct {
		Batch int `json:"batch"`
	}
	if err := json.Unmarshal(out.Bytes(), &fitted); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s\n%s", code, err, out.String(), errs.String())
	}
	most := int(card.Total.Bytes * 3 / 4 / each)
	if fitted.Batch > most || fitted.Batch < most-most/10 {
		t.Errorf("a batch of %d, want %d at most and hardly less", fitted.Batch, most)
	}

	out.Reset()
	code = run(t.Context(), []string{"estimate", "--gpu", "a100-40", "--budget", "10m", "--what-if", "gpu=t4,batch=64", "--what-if", "batch=128", "--json", "--", python, program, "--batch-size", "32"}, &out, &errs)
	var table struct {
		Rows []struct {
			Estimate struct {
				GPU   string `json:"gpu"`
				Ranks []struct {
					PeakReservedBytes int `json:"peak_reserved_bytes"`
				} `json:"ranks"`
			} `json:"estimate"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(out.Bytes(), &table); err != nil || code != 0 || len(table.Rows) != 3 {
		t.Fatalf("exit %d, %v: %s\n%s", code, err, out.String(), errs.String())
	}
	for i, batch := range []int{32, 64, 128} {
		e := table.Rows[i].Estimate
		if len(e.Ranks) != 1 || e.Ranks[0].PeakReservedBytes < batch*each || e.Ranks[0].PeakReservedBytes > batch*each+1<<20 || (e.GPU == "t4") != (i == 1) {
			t.Errorf("row %d: %+v", i, e)
		}
	}

	errs.Reset()
	code = run(t.Context(), []string{"estimate", "--budget", "10m", "--what-if", "conf=expandable_segments:True", "--", python, program, "--batch-size", "32"}, &out, &errs)
	if code != exitUsage || !strings.Contains(errs.String(), "JAX does not read PYTORCH_CUDA_ALLOC_CONF") {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}
