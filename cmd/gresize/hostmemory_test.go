package main

import (
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestHostMemory: of a program that takes host memory in several ways, what it would take on a node with a GPU is counted, and nothing else. The truth is
// arithmetic above the same program without them. docs/accuracy/host-memory.md compares more programs with the kernel's own figures.
func TestHostMemory(t *testing.T) {
	const taken = `
import mmap, os, time
import torch
with open("rows", "wb") as f:
    f.write(bytes(96 << 20))
rows = open("rows", "rb")
read = mmap.mmap(rows.fileno(), 0, prot=mmap.PROT_READ)     # a file, which the kernel can drop: 0 MiB
sum(read[i] for i in range(0, len(read), 4096))
buffer = torch.empty(72 << 20, dtype=torch.uint8, pin_memory=True) # not written, and pinned in a block of 128 MiB
kept = bytearray(b"x") * (48 << 20)                          # 48 MiB
with open("/dev/shm/kept", "wb") as f:                       # 32 MiB of memory that nobody maps
    f.write(bytes(32 << 20))
here, there = os.pipe()
for _ in range(2):                                           # children share it all: 0 MiB
    if os.fork() == 0:
        os.close(there)
        os.read(here, 1)
        os._exit(0)
time.sleep(1)
os.close(there)
os.wait(), os.wait()
`
	const wantMiB, toleranceMiB = 128 + 48 + 32, 24
	peaks := map[string]int64{}
	for name, program := range map[string]string{"bare": toy, "full": taken + toy} {
		t.Run(name, func(t *testing.T) {
			a := estimated(t, t.TempDir(), "--budget", "60s", "--", torchtest.Python(t, "2.6.0"), "-c", program)
			if a.Status != answer.Fits || a.HostDriverHighBytes != estimator.DriverHostHighBytes {
				t.Fatalf("%+v", a)
			}
			peaks[name] = a.HostPeakBytes
		})
	}
	if got := (peaks["full"] - peaks["bare"]) >> 20; got < wantMiB-toleranceMiB || got > wantMiB+toleranceMiB {
		t.Errorf("%d MiB more than the bare program, want %d", got, wantMiB)
	}
}
