// Package probe runs a command on the virtual GPU for some steps, in a sandbox,
// and makes a trace bundle and an estimate of what it saw. It knows neither
// Slurm nor the daemon.
package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe/private"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// MaxDevices is how many cards a run may see.
const MaxDevices = 64

// Defaults of Options.
const (
	DefaultSteps  = 4
	DefaultBudget = 120 * time.Second

	// graceAfterBudget is how long the command may take to stop by itself when the budget is spent.
	graceAfterBudget = 10 * time.Second
	profileName      = "profile.txt"
	planName         = "plan.json"
	privatePrefix    = "gresize-probe."

	// MaxInputBytes is the most that a command gets on its standard input.
	MaxInputBytes = 16 << 20
)

// Options says what to run and on what.
type Options struct {
	// Command is the program and its arguments. With Script, the program is the script and only arguments are given.
	Command []string
	// Script, when not empty, is the text of a job script; it is placed inside and run by its own #! line.
	Script []byte
	// Input is what the command reads from its standard input, at most MaxInputBytes; none when empty.
	Input []byte
	// Dir is the working directory.
	Dir string
	// Env is the environment of the command; nil means that of this process.
	Env []string
	// GPU is the profile of the modelled card.
	GPU *gpu.Profile
	// CapacityBytes, when not 0, makes the card smaller or larger than the profile.
	CapacityBytes int64
	// Devices is the number of cards; 0 means 1.
	Devices int
	// Steps is the number of optimizer steps after which a run is stopped once its peak is flat.
	Steps int
	// Quick ends the run once a first answer is known.
	Quick bool
	// Followed says of such a run that one like it was followed to what comes later.
	Followed bool
	// Budget is the time that the command may take.
	Budget time.Duration
	// VisibleDevices is the CUDA_VISIBLE_DEVICES of the command; empty: it has none.
	VisibleDevices string
	// Recording is how the command is run and what is recorded; the zero value serves the estimator vgpu.
	Recording trace.Recording
	// Plan, when not empty, is carried out by the command's processes: what goes to host memory and when (package offload).
	Plan []byte
	// Sandbox is the policy of the sandbox.
	Sandbox sandbox.Policy
	// NoSandbox runs the command as it is. Only a person may ask for it, for a command of his own.
	NoSandbox bool
	// LibDir holds the virtual GPU; empty means the place beside this program.
	LibDir string
	// Version is the version of this program, for the record.
	Version string
	// Engine is the virtual GPU; nil means the one in LibDir, as Recording uses it.
	Engine Engine
	// Progress, when set, is told every ProgressInterval what has been seen so far. It is never called after Run has returned.
	Progress func(Progress)
	// RecordOpens asks for Result.Seen.
	RecordOpens bool
	// Output, when set, gets what the command prints while it runs.
	Output io.Writer
}

// Result is what a run gave. Bundle and Estimate are always there.
type Result struct {
	Bundle   *trace.Bundle
	Estimate estimator.Estimate
	// Seen is what the command wanted to know of files, where RecordOpens was set and all of it was seen; nil otherwise.
	Seen *sandbox.Seen
}

// Engine puts a virtual GPU under a process tree and reads what it left.
type Engine interface {
	// Name is the name of the estimator in answers.
	Name() string
	// Environment returns the variables to set, as KEY=VALUE, over the given ones.
	Environment(EngineOptions, []string) ([]string, error)
	// Read turns the files of a report directory into what the runner needs to know.
	// The files come from a user's processes.
	Read(reportDir string) (Reports, error)
	// Estimate makes the answer from a bundle.
	Estimate(*trace.Bundle, *gpu.Profile) estimator.Estimate
}

func (o *Options) fillIn() error {
	if len(o.Command) == 0 && len(o.Script) == 0 {
		return errors.New("probe: no command")
	}
	if o.GPU == nil {
		return errors.New("probe: no GPU profile")
	}
	if o.Devices == 0 {
		o.Devices = 1
	}
	if o.Devices < 1 || o.Devices > MaxDevices {
		return fmt.Errorf("probe: %d devices, want 1 to %d", o.Devices, MaxDevices)
	}
	if len(o.Input) > MaxInputBytes {
		return fmt.Errorf("probe: a standard input of %d bytes, at most %d", len(o.Input), MaxInputBytes)
	}
	if o.CapacityBytes < 0 {
		return fmt.Errorf("probe: a capacity of %d bytes", o.CapacityBytes)
	}
	if o.CapacityBytes == 0 {
		o.CapacityBytes = o.GPU.Total.Bytes
	}
	if o.Steps <= 0 {
		o.Steps = DefaultSteps
	}
	if o.Budget <= 0 {
		o.Budget = DefaultBudget
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("probe: the working directory is gone or cannot be reached: go to one that is there: %w", err)
		}
		o.Dir = dir
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("probe: working directory: %w", err)
	}
	o.Dir = dir
	if o.LibDir == "" {
		if o.LibDir, err = vgpu.Locate(); err != nil {
			return err
		}
	}
	if o.Engine == nil {
		o.Engine = engineOf(o.Recording.RunMode())
	}
	return nil
}

// Run runs the command and says what it would need. An error means that
// nothing could be said at all, such as wrong options; whatever goes wrong with
// the command itself is in the result, as an estimate whose confidence is unknown.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.fillIn(); err != nil {
		return Result{}, err
	}
	dir, err := private.Make("", privatePrefix)
	if err != nil {
		return Result{}, fmt.Errorf("probe: private directory: %w", err)
	}
	defer dir.Remove()
	r := &run{options: o, private: dir.Path}
	r.output.also = o.Output
	begin := time.Now()
	if err := r.execute(ctx); err != nil {
		var unavailable *sandbox.UnavailableError
		if !errors.As(err, &unavailable) {
			return Result{}, err
		}
		return r.notRun(err), nil
	}
	result, err := r.conclude()
	if err == nil {
		result, err = r.withOtherSides(ctx, result, begin)
	}
	result.Estimate.WallSeconds = time.Since(begin).Seconds()
	result.Seen = r.seen
	return result, err
}

// run is one run of a command.
type run struct {
	options Options
	private string
	output  tail
	seen    *sandbox.Seen
	exit    sandbox.Exit
	ranFor  time.Duration
	// values is the side of the answers that only a kernel could give.
	values string
	// compiled is what XLA compiled in an earlier run.
	compiled []sandbox.File
	// cancelled says that the caller ended the run, not its budget.
	cancelled bool
	// reportsFull says that the place for reports had no room left.
	reportsFull bool
}

// execute runs the command to its end and leaves its reports in the private directory.
func (r *run) execute(ctx context.Context) error {
	defer func() { r.cancelled = ctx.Err() != nil }()
	if r.options.NoSandbox {
		limit, cancel := context.WithTimeout(ctx, r.options.Budget+graceAfterBudget)
		defer cancel()
		return r.executePlain(limit)
	}
	argv, files, err := r.commandAndFiles(sandbox.FilesDir)
	if err != nil {
		return err
	}
	env, err := r.environment(sandbox.FilesDir, sandbox.ReportDir, sandbox.ShimDir)
	if err != nil {
		return err
	}
	spec := sandbox.Spec{
		Argv: argv, Env: env, Dir: r.options.Dir, Files: files, Input: r.options.Input, Output: &r.output, Policy: r.policy(),
	}
	for {
		missing, err := r.attempt(ctx, spec)
		if err != nil || missing == "" {
			return err
		}
		spec.Writable = append(spec.Writable, missing)
		r.output.forget()
	}
}

// mostRestarts is how often a command is run anew for a directory that was not found before.
const mostRestarts = 3

// attempt runs the command in a sandbox. It returns a directory that must be writable for the command, if it turned out while that can still be made good.
func (r *run) attempt(ctx context.Context, spec sandbox.Spec) (missing string, err error) {
	limit, cancel := context.WithTimeout(ctx, r.options.Budget+graceAfterBudget)
	defer cancel()
	begin := time.Now()
	spec.Restart = func(string) bool { return len(spec.Writable) < mostRestarts && time.Since(begin) < r.options.Budget/2 }
	p, err := sandbox.Start(limit, spec)
	if err != nil {
		return "", err
	}
	defer p.Close()
	begin = time.Now()
	stopWatching := r.watch(p.ReportPath(), begin)
	r.exit = p.Wait()
	stopWatching()
	if r.exit.Missing != "" {
		return r.exit.Missing, nil
	}
	if seen, complete := p.Seen(); complete {
		r.seen = &seen
	}
	r.ranFor = time.Since(begin)
	r.reportsFull = full(p.ReportPath())
	return "", collect(p.ReportPath(), r.reportDir())
}

// policy is that of the sandbox.
func (r *run) policy() sandbox.Policy {
	p := r.options.Sandbox
	p.RecordOpens = p.RecordOpens || r.options.RecordOpens
	return p
}

func (r *run) reportDir() string { return filepath.Join(r.private, "reports") }

// commandAndFiles names the command, seen from where filesDir is.
func (r *run) commandAndFiles(filesDir string) ([]string, []sandbox.File, error) {
	var profile bytes.Buffer
	if err := r.options.GPU.WriteNative(&profile); err != nil {
		return nil, nil, fmt.Errorf("probe: write the GPU profile: %w", err)
	}
	files := []sandbox.File{{Name: profileName, Data: profile.Bytes(), Mode: 0o644}}
	if len(r.options.Plan) > 0 {
		files = append(files, sandbox.File{Name: planName, Data: r.options.Plan, Mode: 0o644})
	}
	files = append(files, r.compiled...)
	argv := slices.Clone(r.options.Command)
	if len(r.options.Script) > 0 {
		files = append(files, sandbox.File{Name: "script", Data: r.options.Script, Mode: 0o755})
		argv = append([]string{filesDir + "/script"}, argv...)
	}
	return argv, files, nil
}

// trackerEnvironment keeps experiment trackers and model hubs from waiting for a network that is not there.
func trackerEnvironment(scratch string) []string {
	return []string{"WANDB_MODE=disabled", "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "HF_DATASETS_OFFLINE=1", "COMET_MODE=disabled",
		"MLFLOW_TRACKING_URI=file:" + scratch + "/mlruns", "TORCHELASTIC_MAX_RESTARTS=0"}
}

// ownVariables would mix this run with another one or with the real card of this machine.
var ownVariables = []string{"GRESIZE_", "CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES="}

func (r *run) environment(filesDir, reportDir, shimDir string) ([]string, error) {
	env := slices.DeleteFunc(slices.Clone(r.options.Env), func(kv string) bool {
		return slices.ContainsFunc(ownVariables, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
	compiledDir := ""
	if len(r.compiled) > 0 {
		compiledDir = filesDir
	}
	add, err := r.options.Engine.Environment(EngineOptions{
		LibDir: r.options.LibDir, ProfilePath: filesDir + "/" + profileName, ReportDir: reportDir, Devices: r.options.Devices,
		CapacityBytes: r.options.CapacityBytes, MostRanks: ranksHere(), Steps: r.options.Steps, Quick: r.options.Quick, Followed: r.options.Followed, Seconds: r.options.Budget.Seconds(), Values: r.values, CompiledDir: compiledDir, RecordEvents: true,
		Recording: r.options.Recording,
	}, env)
	if err != nil {
		return nil, fmt.Errorf("probe: virtual GPU: %w", err)
	}
	add = append(add, trackerEnvironment("/tmp")...)
	env = setAll(env, add)
	if len(r.options.Plan) > 0 {
		env = setAll(env, []string{"GRESIZE_OFFLOAD_PLAN=" + filesDir + "/" + planName})
	}
	env = setAll(env, containerEnvironment(env, add, r.options.LibDir, filesDir, reportDir, shimDir))
	if r.options.VisibleDevices != "" {
		env = setAll(env, []string{"CUDA_VISIBLE_DEVICES=" + r.options.VisibleDevices})
	}
	if shimDir != "" && !r.options.Sandbox.WithoutShims {
		env = setAll(env, []string{"PATH=" + shimDir + ":" + valueOf(env, "PATH", "/usr/local/bin:/usr/bin:/bin")})
	}
	return env, nil
}

// setAll sets each KEY=VALUE of add in env.
func setAll(env, add []string) []string {
	for _, kv := range add {
		key, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, key+"=") })
		env = append(env, kv)
	}
	return env
}

func valueOf(env []string, key, otherwise string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return otherwise
}

// tail keeps the end of what is written to it, and passes it on to one more writer.
type tail struct {
	mu   sync.Mutex
	kept []byte
	lost int64
	also io.Writer
}

const keptOutputBytes = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.also != nil {
		_, _ = t.also.Write(p) // a reader that went away is no reason to end the command
	}
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - keptOutputBytes; over > keptOutputBytes {
		t.lost += int64(over)
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

// forget drops what was written so far.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.lost = nil, 0
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return trace.ClipOutput(t.kept)
}
