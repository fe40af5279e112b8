// Package capture runs the measuring scripts on a real GPU and makes a profile
// of what they recorded. The scripts are part of the program; they need a
// Python with PyTorch and nothing else. The package knows nothing of jobs.
package capture

import (
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed *.py
var scripts embed.FS

// Host is what a Python says of the GPU that it can use.
type Host struct {
	Torch     string `json:"torch"`
	CUDA      string `json:"cuda"`
	Available bool   `json:"available"`
	Why       string `json:"why"`
	Device    string `json:"device"`
	// Virtual: it is gresize's own virtual GPU. What is measured on it is no measurement.
	Virtual bool `json:"virtual"`
}

// NoGPUError says that there is no GPU to measure, and why.
type NoGPUError struct {
	Python string
	Host   Host
}

// devicePattern names the devices that NVIDIA's driver makes.
const devicePattern = "/dev/nvidia[0-9]*"

// otherDevices are those by which a card is seen without: in WSL, and on boards whose GPU is part of the processor.
var otherDevices = []string{"/dev/dxg", "/dev/nvhost*"}

// Hidden says why a process with this environment sees no GPU of NVIDIA's on this machine; empty where it may see one, gresize's virtual one included.
func Hidden(env []string) string { return hidden(env, "/") }

func hidden(env []string, root string) string {
	if value, set := variable(env, "CUDA_VISIBLE_DEVICES"); set && slices.Contains([]string{"", "-1", "NoDevFiles"}, strings.TrimSpace(value)) {
		return "CUDA_VISIBLE_DEVICES=" + value + " hides every GPU"
	}
	if _, virtual := variable(env, "GRESIZE_VGPU_DIR"); virtual {
		return ""
	}
	for _, pattern := range append([]string{devicePattern}, otherDevices...) {
		if found, err := filepath.Glob(filepath.Join(root, pattern)); err != nil || len(found) > 0 {
			return ""
		}
	}
	return "this machine shows no NVIDIA GPU (" + devicePattern + " is not there)"
}

func variable(env []string, name string) (value string, set bool) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}

// withoutDevice says first what no Python can mend: that this machine has no GPU.
func withoutDevice() string {
	if why := hidden(nil, "/"); why != "" {
		return why + ", run this on one that does; besides, "
	}
	return ""
}

func (e *NoGPUError) Error() string {
	switch {
	case e.Host.Virtual && e.Host.Available:
		return "this is gresize's virtual GPU: nothing can be measured on it"
	case e.Host.Torch == "":
		return withoutDevice() + fmt.Sprintf("%s cannot use PyTorch (%s): name a Python that can with --python", e.Python, e.Host.Why)
	case e.Host.CUDA == "":
		return fmt.Sprintf("PyTorch %s of %s is built without CUDA: name another with --python", e.Host.Torch, e.Python)
	}
	return fmt.Sprintf("no GPU is to be seen by PyTorch %s of %s: %s; run this on a machine with one", e.Host.Torch, e.Python, e.Host.Why)
}

// Options says how to capture.
type Options struct {
	// Python is the interpreter whose PyTorch the jobs use.
	Python string
	// Seconds bounds the whole run.
	Seconds float64
	// Sections are the parts to run; none means all.
	Sections []string
	// NCCL also measures the first use of NCCL, which opens a local port.
	NCCL bool
	// Env is the environment; nil means that of this process.
	Env []string
	// AllowVirtual lets the virtual GPU stand in for a real one, in tests. The profile says so.
	AllowVirtual bool
	// Log gets what the scripts say.
	Log io.Writer
}

const (
	maxRecordBytes = 64 << 20
	maxCheckBytes  = 64 << 10
	checkTimeout   = 2 * time.Minute
	graceSeconds   = 60
)

// Extract writes embedded files to a directory.
func Extract(files fs.FS, dir string) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o600)
	})
}

// Scripts are the files of this package that run in Python.
func Scripts() fs.FS { return scripts }

// Check asks a Python about its GPU. The error is a *NoGPUError where there is none to measure.
func Check(ctx context.Context, o Options) (Host, error) {
	dir, err := os.MkdirTemp("", "gresize-capture-")
	if err != nil {
		return Host{}, fmt.Errorf("capture: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := Extract(scripts, dir); err != nil {
		return Host{}, fmt.Errorf("capture: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.Python, filepath.Join(dir, "check.py"))
	cmd.Env = o.Env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	runErr := cmd.Run()
	var host Host
	if stdout.Len() > maxCheckBytes || json.Unmarshal(stdout.Bytes(), &host) != nil {
		return Host{}, fmt.Errorf("capture: %s%s: %w: %.300s", withoutDevice(), o.Python, errors.Join(runErr, errors.New("no answer")), lastLine(stderr.Bytes()))
	}
	if !host.Available || host.Virtual && !o.AllowVirtual {
		return host, &NoGPUError{o.Python, host}
	}
	return host, nil
}

func lastLine(text []byte) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return lines[len(lines)-1]
}

// Run measures the GPU and returns the scripts' record, which Read understands.
func Run(ctx context.Context, o Options) ([]byte, error) {
	if _, err := Check(ctx, o); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gresize-capture-")
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := Extract(scripts, dir); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	out := filepath.Join(dir, "out.json")
	args := []string{filepath.Join(dir, "capture.py"), out, "--seconds", strconv.FormatFloat(o.Seconds, 'f', 0, 64)}
	if len(o.Sections) > 0 {
		args = append(args, "--only", strings.Join(o.Sections, ","))
	}
	if o.NCCL {
		args = append(args, "--nccl")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration((o.Seconds+graceSeconds)*float64(time.Second)))
	defer cancel()
	cmd := exec.CommandContext(ctx, o.Python, args...)
	cmd.Env = o.Env
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if o.Log != nil {
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&said, o.Log), io.MultiWriter(&said, o.Log)
	}
	EndGroup(cmd)
	runErr := cmd.Run()
	// The record is saved after each section: what is there counts, even where the rest failed.
	f, err := os.Open(out)
	if err != nil {
		return nil, fmt.Errorf("capture: the scripts left no record: %w: %.300s", errors.Join(runErr, err), lastLine(said.Bytes()))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecordBytes+1))
	if err == nil && len(data) > maxRecordBytes {
		err = fmt.Errorf("a record of more than %d bytes", maxRecordBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return data, nil
}

// EndGroup has the end of a command's context end what the command has started, too.
func EndGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
}
