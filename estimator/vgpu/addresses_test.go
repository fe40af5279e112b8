package vgpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
)

// addressesScript reads steps, sizes to allocate or -1-i to free what step i gave, and prints where each allocation lies, from the end of the first on.
const addressesScript = `import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
steps, given = json.load(sys.stdin), []
for step in steps:
    p = ctypes.c_void_p()
    if step > 0:
        assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(step)) == 0, step
    else:
        assert cuda.cudaFree(ctypes.c_void_p(given[-1 - step])) == 0, step
    given.append(p.value or 0)
print(json.dumps([at - given[0] for at in given]))
`

// TestAddressesAreThoseOfTheSimulatedCard holds the virtual GPU's cudaMalloc to the card that the replay of its requests uses, whose order is the one seen
// in a snapshot of a real driver: PyTorch takes the lowest of equal blocks, so that another order gives other peaks.
func TestAddressesAreThoseOfTheSimulatedCard(t *testing.T) {
	const mib = 1 << 20
	// Two chunks of 64 MiB, the second below the first; the rest of the second is used first, from below.
	cases := [][]int64{{40 * mib, 40 * mib, 20 * mib, 2 * mib, 2 * mib, 2 * mib, 24 * mib, -1, 8 * mib, 40 * mib}}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var steps []int64
		var live []int64
		for range 200 {
			if len(live) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(live))
				steps = append(steps, -1-live[i])
				live = append(live[:i], live[i+1:]...)
				continue
			}
			live = append(live, int64(len(steps)))
			steps = append(steps, int64(1+random.IntN([]int{1, 10, 100}[random.IntN(3)]))*2*mib)
		}
		cases = append(cases, steps)
	}
	profile := filepath.Join(t.TempDir(), "profile")
	if err := os.WriteFile(profile, []byte("name=A Card\ntotal_bytes=1099511627776\ndriver_version=1.2.3\ncuda_driver_version=12040\ncc_major=8\ncc_minor=6\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, steps := range cases {
		card, err := allocator.NewCard(1<<40, allocator.Chunked)
		if err != nil {
			t.Fatal(err)
		}
		given, want := make([]uint64, len(steps)), make([]int64, len(steps))
		for j, step := range steps {
			if step > 0 {
				given[j], _ = card.Malloc(uint64(step))
			} else {
				card.Release(given[-1-step], uint64(steps[-1-step]))
			}
			want[j] = int64(given[j] - given[0])
		}
		input, err := json.Marshal(steps)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("python3", "-c", addressesScript, filepath.Join(libDir(t), "vgpu", "libcudart.so.12"))
		cmd.Stdin = bytes.NewReader(input)
		cmd.Env = append(os.Environ(), "GRESIZE_VGPU_PROFILE="+profile)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("case %d: %v\n%s", i, err, out)
		}
		var got []int64
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("case %d: %v: %s", i, err, out)
		}
		for j := range got {
			if steps[j] > 0 && got[j] != want[j] {
				t.Fatalf("case %d, step %d: %d bytes lie at %+d, on the simulated card at %+d\n%s", i, j, steps[j], got[j], want[j], fmt.Sprint(steps[:j+1]))
			}
		}
	}
}
