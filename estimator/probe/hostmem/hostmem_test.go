package hostmem

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// TestSharedPagesCountOnce lets a process share 200 MiB with three children, as data loaders do.
func TestSharedPagesCountOnce(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import os, sys, time
block = bytearray(200 << 20)
for i in range(0, len(block), 4096): block[i] = 1
for _ in range(3):
    if os.fork() == 0:
        sys.stdin.read(); os._exit(0)
print("ready", flush=True)
sys.stdin.read()
time.sleep(0.1)`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	tree := TreeOf(cmd.Process.Pid)
	if pids := tree(); len(pids) != 4 || pids[0] != cmd.Process.Pid {
		t.Errorf("tree: %v", pids)
	}
	var told []int64
	s := &Sampler{list: tree, step: 16 << 20, notify: func(b int64) { told = append(told, b) }}
	s.sample()
	s.sample()
	if s.peak < 200<<20 || s.peak > 270<<20 {
		t.Errorf("%d MiB for 200 MiB that four processes share", s.peak>>20)
	}
	if len(told) != 1 || told[0] > s.peak {
		t.Errorf("told %v, peak %d", told, s.peak)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if slices.Contains(AllButSelf(), os.Getpid()) {
		t.Error("AllButSelf lists itself")
	}
}

func TestStopWithoutProcesses(t *testing.T) {
	if peak := Start(func() []int { return nil }, 1, nil).Stop(); peak != 0 {
		t.Errorf("%d", peak)
	}
}

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 9 kB\nMemAvailable:    2048 kB\n": 2 << 20, "MemAvailable: -5 kB\n": 0, "MemAvailable: 99999999999999999999 kB\n": 0, "": 0, "MemAvailable:": 0,
	} {
		if got := field([]byte(text), "MemAvailable:"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestNamelessMemoryCounts writes 96 MiB into a file without a name, of which it maps a third: each page counts once.
func TestNamelessMemoryCounts(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import mmap, os, sys
f = os.memfd_create("held")
for _ in range(24): os.write(f, bytes(4 << 20))
m = mmap.mmap(f, 32 << 20)
for i in range(0, len(m), 4096): m[i] = 1
print("ready", flush=True)
sys.stdin.read()`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	s := &Sampler{list: TreeOf(cmd.Process.Pid)}
	s.sample()
	if s.peak < 96<<20 || s.peak > 130<<20 {
		t.Errorf("%d MiB for 96 MiB in a file without a name and a Python", s.peak>>20)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

func TestResidentSegments(t *testing.T) {
	const header = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n"
	for text, want := range map[string]int64{
		"": 0, header: 0, "no such column\n1 2 3\n": 0,
		header + "0 0 1600 33554432 9 9 0 1 1 1 1 1 1 1 33554432 0\n0 1 1600 4096 9 9 0 1 1 1 1 1 1 1 4096 0\n": 33554432 + 4096,
		header + "0 0 1600 33554432 9 9 0 1 1 1 1 1 1 1 -5 0\nshort\n":                                          0,
	} {
		if got := residentSegments([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
