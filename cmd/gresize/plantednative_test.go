package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestPlantedNativeFaults has each request fail that the virtual GPU's C makes of the C library, one place of its code at a time, of those that the program's run comes to: memory, files, what a
// report is written with. The law is that of TestPlantedFaults. make nightly plants in every fourth, GRESIZE_PLANTED_STEP=1 in all.
func TestPlantedNativeFaults(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("run by make nightly")
	}
	program := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(program, []byte(plantedProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	faults := filepath.Join(t.TempDir(), "faults.so")
	if out, err := exec.Command("cc", "-std=gnu11", "-Wall", "-Werror", "-O1", "-include", "stdbool.h", "-shared", "-fPIC", "-o", faults, "testdata/nativefaults/faults.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	with := func(lib, plant string) []string {
		env := []string{"LD_PRELOAD=" + faults, "PLANTED_MARKS=" + marksPath(lib)}
		if plant != "" {
			env = append(env, "PLANTED_FAULT="+plant)
		}
		return env
	}
	tr := newTrial(t, func(string) {}, func(lib string) []string { return with(lib, "") }, torchtest.Python(t, "2.6.0"), program)
	tr.heard = slices.DeleteFunc(tr.heard, func(line string) bool { return !strings.Contains(line, "+") })
	tr.each(tr.heard, 3, func(seam string) {
		lib := tr.library(func(string) {})
		tr.judge(seam, lib, with(lib, seam)...)
	})
}
