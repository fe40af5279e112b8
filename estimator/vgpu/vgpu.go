// Package vgpu owns the virtual GPU: it puts the stub libraries under a process
// tree, reads what the processes report, and makes an estimate of it. The C
// stubs are in native, the layer inside a user's Python in python, the symbols
// that each PyTorch release asks for in manifest.
package vgpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator/trace"
)

// Name is the name of this estimator in answers.
const Name = "vgpu"

// Options says where the parts of the virtual GPU are, seen from the process
// that is to run on it, and what to model.
type Options struct {
	// LibDir holds vgpu, python and bin.
	LibDir string
	// ProfilePath is the flat profile file (gpu.Profile.WriteNative); empty means the built-in H100.
	ProfilePath string
	// ReportDir is where each process leaves its report; empty means no reports.
	ReportDir string
	// Devices is the number of cards; 0 means 1.
	Devices int
	// CapacityBytes overrides the memory of the profile when it is not 0.
	CapacityBytes int64
	// MostRanks is the number of ranks up to which all of a job are run; of more, only the first and the last. 0 leaves the default
	// of the Python layer.
	MostRanks int
	// Steps and Seconds end the run; 0 leaves the defaults of the Python layer.
	Steps   int
	Seconds float64
	// Quick ends the run once a first answer is known; the program is not followed in time-lapse then.
	Quick bool
	// Followed says of such a run that a run like it was followed in time-lapse: what that said of the blocks that were not run holds for this one.
	Followed bool
	// Values is the policy by which questions are answered that only a kernel could answer; empty means PolicyLow.
	Values string
	// CompiledDir holds what XLA compiled in an earlier run of the command; empty means nothing.
	CompiledDir string
	// WithoutPython leaves the Python layer out: a job on a virtual card then runs to its own end.
	WithoutPython bool
	// RecordEvents has each process record the events of PyTorch's allocator.
	RecordEvents bool
	// Recording is the mode of the run and what optional parts are recorded.
	Recording trace.Recording
}

// Environment returns the variables, as KEY=VALUE, that put a virtual GPU under
// a process tree. Paths of base are kept behind ours; LD_PRELOAD is not touched.
func Environment(o Options, base []string) ([]string, error) {
	if !filepath.IsAbs(o.LibDir) {
		return nil, fmt.Errorf("vgpu: LibDir: %q is no absolute path", o.LibDir)
	}
	stubs := filepath.Join(o.LibDir, "vgpu")
	env := []string{
		"LD_AUDIT=" + before(filepath.Join(stubs, "gresize-audit.so"), base, "LD_AUDIT"),
		"LD_LIBRARY_PATH=" + before(stubs, base, "LD_LIBRARY_PATH"),
		"PATH=" + before(filepath.Join(o.LibDir, "bin"), base, "PATH"),
		"GRESIZE_VGPU_DIR=" + stubs,
		"TRITON_LIBCUDA_PATH=" + stubs,
		"GRESIZE_VGPU_COUNT=" + strconv.Itoa(max(o.Devices, 1)),
	}
	if o.ProfilePath != "" {
		env = append(env, "GRESIZE_VGPU_PROFILE="+o.ProfilePath)
	}
	if o.CapacityBytes > 0 {
		env = append(env, "GRESIZE_VGPU_CAPACITY_BYTES="+strconv.FormatInt(o.CapacityBytes, 10))
	}
	if o.ReportDir != "" {
		env = append(env, "GRESIZE_VGPU_REPORT_DIR="+o.ReportDir)
	}
	if !o.WithoutPython {
		env = append(env, "GRESIZE_VGPU_PYTHON="+filepath.Join(o.LibDir, "python"), PythonPath(o.LibDir, base))
	}
	if o.MostRanks > 0 {
		env = append(env, "GRESIZE_VGPU_MOST_RANKS="+strconv.Itoa(o.MostRanks))
	}
	if o.Steps > 0 {
		env = append(env, "GRESIZE_PROBE_STEPS="+strconv.Itoa(o.Steps))
	}
	if o.Seconds > 0 {
		env = append(env, "GRESIZE_PROBE_SECONDS="+strconv.FormatFloat(o.Seconds, 'f', 3, 64))
	}
	if o.Quick {
		env = append(env, "GRESIZE_PROBE_QUICK=1")
	}
	if o.Quick && o.Followed {
		env = append(env, "GRESIZE_PROBE_FOLLOWED=1")
	}
	if o.Values != "" {
		env = append(env, "GRESIZE_VGPU_VALUES="+o.Values)
	}
	if o.CompiledDir != "" {
		env = append(env, "GRESIZE_VGPU_COMPILED="+o.CompiledDir)
	}
	if o.RecordEvents {
		env = append(env, "GRESIZE_PROBE_EVENTS=1")
	}
	return append(env, o.Recording.Environment()...), nil
}

// PythonPath is the variable, as KEY=VALUE, with which every Python of a process tree finds the Python layers first.
func PythonPath(libDir string, base []string) string {
	return "PYTHONPATH=" + before(filepath.Join(libDir, "python"), base, "PYTHONPATH")
}

// before puts path in front of the list that base has under name. An entry that
// is there already is not repeated, so that nested runs do not grow it.
func before(path string, base []string, name string) string {
	list := []string{path}
	for _, kv := range slices.Backward(base) { // the last assignment wins, as in os/exec
		value, ok := strings.CutPrefix(kv, name+"=")
		if !ok {
			continue
		}
		for _, entry := range strings.Split(value, ":") {
			if entry != path && (entry != "" || name == "PATH") && value != "" {
				list = append(list, entry)
			}
		}
		break
	}
	return strings.Join(list, ":")
}

// Locate finds the directory that holds vgpu, python and bin: GRESIZE_LIBDIR, or
// a place beside this program.
func Locate() (string, error) {
	var candidates []string
	if dir := os.Getenv("GRESIZE_LIBDIR"); dir != "" {
		candidates = append(candidates, dir)
	} else if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		beside := filepath.Dir(exe)
		candidates = append(candidates, filepath.Join(beside, "../lib"), filepath.Join(beside, "../../lib/gresize"), filepath.Join(beside, "../lib/gresize"))
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "vgpu", "gresize-audit.so")); err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New("vgpu: no virtual GPU in " + strings.Join(candidates, ", ") + ": build it with 'make build', or name its directory in GRESIZE_LIBDIR")
}
