// Package calibration runs reference workloads on a real GPU and on the virtual
// one and holds the two side by side: how far the virtual GPU is off, and what
// the profile of the card should say. Recorded results are read as a stranger's
// file. The package knows nothing of jobs.
package calibration

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/gpu/capture"
	"github.com/gresize/gresize/estimator/vgpu"
	"github.com/gresize/gresize/internal/regular"
)

//go:embed *.py
var scripts embed.FS

// Limits on a file of results.
const (
	maxResultsBytes = 64 << 20
	maxLineBytes    = 1 << 20
	maxRows         = 4096
	maxVariables    = 32
	maxMemoryBytes  = int64(1) << 45
)

// Row is what one workload took. Sizes are bytes.
type Row struct {
	Name  string `json:"name"`
	Torch string `json:"torch"`
	// Env is what was set besides, such as PYTORCH_CUDA_ALLOC_CONF.
	Env map[string]string `json:"env"`
	// CapBytes is the limit that was put on PyTorch's allocator; 0 for none.
	CapBytes          int64 `json:"cap"`
	MaxAllocatedBytes int64 `json:"max_allocated_bytes"`
	MaxReservedBytes  int64 `json:"max_reserved_bytes"`
	// OutsideBytes is what was in use on the card beyond PyTorch's reserved memory.
	OutsideBytes int64  `json:"outside_bytes"`
	Error        string `json:"error"`
	Skipped      string `json:"skipped"`
	// AllocConf is PYTORCH_CUDA_ALLOC_CONF as the process saw it.
	AllocConf string `json:"alloc_conf"`
}

var (
	workloadName = regexp.MustCompile(`^[A-Za-z0-9_.]{1,64}$`)
	// variable bounds what a file of results may set in a process here.
	variable = regexp.MustCompile(`^(PYTORCH_[A-Z_]+|CUBLAS_[A-Z_]+|CUBLASLT_[A-Z_]+|CUDA_MODULE_LOADING|TORCH_[A-Z_]+|NVIDIA_TF32_OVERRIDE|GPUTRUTH)$`)
)

// ReadResults reads the rows of a results.jsonl. Rows of workloads that failed or were skipped are kept: they are part of the result.
func ReadResults(path string) ([]Row, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	defer f.Close()
	rows, err := readRows(io.LimitReader(f, maxResultsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("calibration: %s: %w", path, err)
	}
	return rows, nil
}

func readRows(r io.Reader) ([]Row, error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLineBytes)
	var rows []Row
	read := 0
	for line := 1; scanner.Scan(); line++ {
		text := bytes.TrimSpace(scanner.Bytes())
		if read += len(text) + 1; read > maxResultsBytes {
			return nil, fmt.Errorf("more than %d bytes", maxResultsBytes)
		}
		if len(text) == 0 {
			continue
		}
		var row Row
		if err := json.Unmarshal(text, &row); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if err := row.validate(); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if rows = append(rows, row); len(rows) > maxRows {
			return nil, fmt.Errorf("line %d: more than %d rows", line, maxRows)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("no rows")
	}
	return rows, nil
}

func (r *Row) validate() error {
	if !workloadName.MatchString(r.Name) {
		return fmt.Errorf("name: %.80q is no workload", r.Name)
	}
	if len(r.Env) > maxVariables {
		return fmt.Errorf("env: %d variables, at most %d", len(r.Env), maxVariables)
	}
	for name, value := range r.Env {
		if !variable.MatchString(name) || len(value) > maxLineBytes || strings.ContainsRune(value, 0) {
			return fmt.Errorf("env: %.80q may not be set", name)
		}
	}
	if r.AllocConf != "" && r.Env["PYTORCH_CUDA_ALLOC_CONF"] == "" {
		if r.Env == nil {
			r.Env = map[string]string{}
		}
		r.Env["PYTORCH_CUDA_ALLOC_CONF"] = r.AllocConf
	}
	for _, v := range []int64{r.CapBytes, r.MaxAllocatedBytes, r.MaxReservedBytes, r.OutsideBytes} {
		if v < 0 || v > maxMemoryBytes {
			return fmt.Errorf("a size of %d bytes", v)
		}
	}
	return nil
}

// Title names the row with what was set for it.
func (r *Row) Title() string {
	names := make([]string, 0, len(r.Env))
	for name := range r.Env {
		names = append(names, name)
	}
	slices.Sort(names)
	title := r.Name
	for _, name := range names {
		title += " " + name + "=" + r.Env[name]
	}
	if r.CapBytes > 0 {
		title += fmt.Sprintf(" cap=%dMiB", r.CapBytes>>20)
	}
	return title
}

// ok says that the row has figures.
func (r *Row) ok() bool { return r.Error == "" && r.Skipped == "" && r.MaxReservedBytes > 0 }

// extract puts all scripts into one directory, as drive.py wants them.
func extract(dir string) error {
	for _, files := range []fs.FS{scripts, capture.Scripts()} {
		if err := capture.Extract(files, dir); err != nil {
			return fmt.Errorf("calibration: %w", err)
		}
	}
	return nil
}

// Names of the files that Measure leaves in its directory.
const (
	ResultsFile = "results.jsonl"
	CaptureFile = "capture.json"
)

// Measure runs the workloads on the GPU of this machine for some time and leaves the results in a directory. It asks
// first whether there is a GPU: the error is a *capture.NoGPUError where there is none.
func Measure(ctx context.Context, python, outDir string, limit time.Duration, log io.Writer) error {
	if _, err := capture.Check(ctx, capture.Options{Python: python}); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gresize-calibrate-")
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := extract(dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, filepath.Join(dir, "drive.py"), outDir, fmt.Sprintf("%.0f", limit.Seconds()))
	cmd.Stdout, cmd.Stderr = log, log
	capture.EndGroup(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("calibration: the measurements: %w", err)
	}
	return nil
}

// Virtual runs workloads on the virtual GPU.
type Virtual struct {
	Python  string
	LibDir  string
	Profile *gpu.Profile
	// Limit bounds one workload.
	Limit time.Duration

	dir string
}

// Open prepares the scripts; Close removes them.
func (v *Virtual) Open() error {
	dir, err := os.MkdirTemp("", "gresize-calibrate-")
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	v.dir = dir
	f, err := os.Create(filepath.Join(dir, "profile"))
	if err == nil {
		err = errors.Join(v.Profile.WriteNative(f), f.Close())
	}
	if err == nil {
		err = extract(dir)
	}
	if err != nil {
		v.Close()
		return fmt.Errorf("calibration: %w", err)
	}
	return nil
}

// Close removes what Open made.
func (v *Virtual) Close() { _ = os.RemoveAll(v.dir) }

// workloadSteps is what drive.py gives each workload.
const workloadSteps = "5"

// Run runs the workload of a row as the row was run. What went wrong with it is the Error of the answer; the error is one of this machine.
func (v *Virtual) Run(ctx context.Context, like *Row) (Row, error) {
	reports, err := os.MkdirTemp(v.dir, "reports-")
	if err != nil {
		return Row{}, fmt.Errorf("calibration: %w", err)
	}
	// The Python layer answers what values decide; it must not end a workload before its last step.
	env, err := vgpu.Environment(vgpu.Options{LibDir: v.LibDir, ProfilePath: filepath.Join(v.dir, "profile"), ReportDir: reports,
		Steps: 1 << 20, Seconds: 10 * v.Limit.Seconds()}, os.Environ())
	if err != nil {
		return Row{}, fmt.Errorf("calibration: %w", err)
	}
	limit, cancel := context.WithTimeout(ctx, v.Limit)
	defer cancel()
	cmd := exec.CommandContext(limit, v.Python, filepath.Join(v.dir, "job.py"), "workload", like.Name, "--steps", workloadSteps)
	cmd.Env = append(os.Environ(), env...)
	for name, value := range like.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Dir = v.dir
	cmd.Stdin = strings.NewReader(fmt.Sprintf("{\"cap_bytes\":%d}\n", like.CapBytes))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	capture.EndGroup(cmd)
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return Row{}, ctx.Err()
	}
	row := Row{Name: like.Name, Env: like.Env, CapBytes: like.CapBytes}
	lines := bytes.Split(bytes.TrimSpace(stdout.Bytes()), []byte("\n"))
	var said Row
	switch {
	case limit.Err() != nil:
		row.Error = fmt.Sprintf("no answer in %v", v.Limit)
	case json.Unmarshal(lines[len(lines)-1], &said) != nil:
		said := bytes.Split(bytes.TrimSpace(stderr.Bytes()), []byte("\n"))
		row.Error = fmt.Sprintf("%v: %.300s", runErr, said[len(said)-1])
	default:
		row.Torch, row.Error = said.Torch, said.Error
		row.MaxAllocatedBytes, row.MaxReservedBytes = said.MaxAllocatedBytes, said.MaxReservedBytes
	}
	// The virtual card holds its context alone; what the libraries take is the profile's to say.
	if read, err := vgpu.ReadReports(reports); err == nil {
		row.OutsideBytes, _ = v.Profile.OutsideBytes(read.Libraries)
	}
	return row, nil
}
