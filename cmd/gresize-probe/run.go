package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/probe/inputs"
	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/buildinfo"
	"github.com/gresize/gresize/internal/quantity"
	numbers "github.com/gresize/gresize/internal/quantity/flags"
	"github.com/gresize/gresize/slurm/batch"
	"github.com/spf13/cobra"
)

// Exit codes. In a probe job a run that failed and was reported is a success.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// usage marks an error that the caller can mend by reading the help.
type usage struct{ error }

// program is the process seen from its verbs.
type program struct {
	env    []string
	stdout io.Writer
	// engine replaces the virtual GPU in tests.
	engine probe.Engine
	// libDir, too, is for tests.
	libDir string
}

func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	p := &program{env: env, stdout: stdout}
	return p.execute(ctx, args, stderr)
}

func (p *program) execute(ctx context.Context, args []string, stderr io.Writer) int {
	root := p.command()
	root.SetArgs(args)
	root.SetOut(p.stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "gresize-probe:", err)
	if errors.As(err, new(usage)) {
		return exitUsage
	}
	return exitError
}

func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use: "gresize-probe", Short: "Run a job's script on a virtual GPU and report what it needs",
		SilenceUsage: true, SilenceErrors: true, Version: buildinfo.Version(),
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage{err} })
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run [--out FILE -- COMMAND [ARGUMENT...]]",
		Short: "Run one probe",
		Long: `In a probe job, without arguments: GRESIZE_PROBE_URL names what to run and takes
the trace bundle, GRESIZE_PROBE_KEY opens it. By hand: --out names the file for
the trace bundle, and the command stands after --.

EXIT STATUS
  0  reported, whatever became of the command
  1  nothing could be reported
  2  wrong usage`,
		RunE: func(cmd *cobra.Command, args []string) error {
			url, key, env := takeSecrets(p.env)
			p.env = env
			switch {
			case flags.out != "" && len(args) > 0:
				return p.runByHand(cmd.Context(), flags, args)
			case flags.out != "" || len(args) > 0:
				return usage{errors.New("run: by hand, both --out FILE and a command after -- are wanted")}
			case url == "" || key == "":
				return usage{errors.New("run: GRESIZE_PROBE_URL and GRESIZE_PROBE_KEY are not set; by hand, give --out FILE -- COMMAND")}
			}
			return p.runJob(cmd.Context(), newClient(url, key))
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.out, "out", "", "write the trace bundle to `FILE`")
	f.StringVar(&flags.gpu, "gpu", gpu.DefaultID, "GPU `model`")
	f.IntVar(&flags.gpus, "gpus", 1, "number of GPUs that the command sees")
	f.IntVar(&flags.steps, "steps", probe.DefaultSteps, "optimizer steps to see at least")
	f.StringVar((*string)(&flags.mode), "mode", string(trace.ModeVGPU), "what is done with the command: vgpu runs it on the virtual GPU, profile on the CPU under PyTorch's profiler, fake with tensors without content; one `MODE`")
	f.DurationVar(&flags.budget, "budget", probe.DefaultBudget, "time that the command may take")
	f.SetInterspersed(false)
	numbers.Decimal(f)
	root.AddCommand(cmd)
	return root
}

type runFlags struct {
	out, gpu    string
	gpus, steps int
	budget      time.Duration
	mode        trace.Mode
}

// takeSecrets takes the two variables out of the environment: the command must not see them. The job's own variables get their names back, and win over what Slurm and
// the site put there; what gresize-launch gave to sbatch and the shell goes.
func takeSecrets(env []string) (url, key string, rest []string) {
	ofJob := map[string]bool{}
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, launch.JobPrefix); ok {
			name, _, _ := strings.Cut(v, "=")
			ofJob[name] = true
		}
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		v, job := strings.CutPrefix(kv, launch.JobPrefix)
		switch {
		case name == launch.URLVariable:
			url = value
		case name == launch.KeyVariable:
			key = value
		case job:
			rest = append(rest, v)
		case len(ofJob) > 0 && (ofJob[name] || launch.IsOwn(kv)):
		default:
			rest = append(rest, kv)
		}
	}
	return url, key, rest
}

func (p *program) runByHand(ctx context.Context, flags runFlags, args []string) error {
	profile, err := gpu.Load(flags.gpu)
	if err != nil {
		return usage{err}
	}
	if !flags.mode.Valid() {
		return usage{fmt.Errorf("run: --mode %.40s: vgpu, profile or fake", flags.mode)}
	}
	result, err := probe.Run(ctx, probe.Options{
		Recording: trace.Recording{Mode: flags.mode}, Command: args, GPU: profile, Devices: flags.gpus, Steps: flags.steps, Budget: flags.budget,
		Env: p.env, Version: buildinfo.Version(), Engine: p.engine, LibDir: p.libDir,
	})
	if err != nil {
		return err
	}
	if err := trace.WriteFile(flags.out, result.Bundle); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.stdout, "%s: %s after %s\n", flags.out, result.Bundle.Manifest.Outcome, quantity.Count(result.Bundle.Manifest.Steps, "step"))
	return err
}

// runJob is the probe job: fetch, run, report.
func (p *program) runJob(ctx context.Context, c *client) error {
	job, err := c.job(ctx)
	if err != nil {
		return err // gresized notices that the probe is gone
	}
	if unchanged(ctx, job) {
		return c.unchanged(ctx, job.InputsOf)
	}
	if job.Swap != nil {
		bundle, plan, why := p.withPlan(ctx, job)
		if why != nil {
			return c.failure(ctx, *why)
		}
		if err := c.plan(ctx, plan); err != nil {
			return err
		}
		return c.result(ctx, bundle)
	}
	result, packed, why := p.probe(ctx, job)
	if why != nil {
		return c.failure(ctx, *why)
	}
	if packed != nil {
		// Without the list the next job is probed again, and that is all.
		_ = c.inputs(ctx, packed)
	}
	return c.result(ctx, result)
}

// verifyLimit bounds the time for a look at the files of an earlier job: more than that, and the script can be run as well.
const verifyLimit = time.Minute

// unchanged says that all files are as they were for an earlier job. They are read with the rights of the job's owner, as the job would.
func unchanged(ctx context.Context, job *probejob.Job) bool {
	if len(job.Inputs) == 0 || job.InputsOf == 0 {
		return false
	}
	list, err := inputs.Unpack(job.Inputs)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	changed, err := list.Changed(ctx)
	return err == nil && changed == ""
}

// inputsOf is the list of what a run wanted to know of files, packed; nil where there is none.
func inputsOf(ctx context.Context, seen *sandbox.Seen, began time.Time) []byte {
	if seen == nil {
		return nil
	}
	list, err := inputs.Make(ctx, inputs.Seen{Read: seen.Read, Asked: seen.Asked, Listed: seen.Listed}, began)
	if err != nil {
		return nil
	}
	packed, err := list.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// probe runs the job's script. The reason says why there is no bundle.
func (p *program) probe(ctx context.Context, job *probejob.Job) (*trace.Bundle, []byte, *estimator.Reason) {
	failed := func(err error) (*trace.Bundle, []byte, *estimator.Reason) {
		return nil, nil, &estimator.Reason{Code: estimator.CodeProbeRefused, Detail: trace.Clip([]byte(err.Error()), estimator.MaxDetailBytes)}
	}
	o, err := p.options(job)
	if err != nil {
		return failed(err)
	}
	began := time.Now()
	result, err := probe.Run(ctx, o)
	if err != nil {
		return failed(err)
	}
	return result.Bundle, inputsOf(ctx, result.Seen, began), nil
}

// options are those of a run of the job's script.
func (p *program) options(job *probejob.Job) (probe.Options, error) {
	profile, err := gpu.Load(job.GPU)
	if err != nil {
		return probe.Options{}, err
	}
	args := make([]string, 0, len(job.Argv))
	for _, a := range job.Argv {
		args = append(args, string(a))
	}
	recording := trace.Recording{Mode: trace.Mode(job.Recording.Mode)}
	if !recording.RunMode().Valid() {
		return probe.Options{}, fmt.Errorf("recording.mode: %.40q is not known to this gresize-probe", job.Recording.Mode)
	}
	for _, part := range job.Recording.Parts {
		recording.Parts = append(recording.Parts, trace.Part(part))
	}
	return probe.Options{
		Recording: recording, Command: args, Script: job.Script, Dir: job.WorkDir, Env: jobEnvironment(p.env, job), GPU: profile, Devices: job.Devices, VisibleDevices: profile.VisibleDevices(max(1, job.Devices)),
		Steps: job.Steps, Budget: time.Duration(job.BudgetSeconds) * time.Second, Version: buildinfo.Version(),
		Engine: p.engine, LibDir: p.libDir, RecordOpens: job.RecordInputs,
	}, nil
}

// jobEnvironment is what the script would see as a job on one node with its tasks
// and GPUs. What Slurm set for the probe job itself stays where it does no harm.
func jobEnvironment(env []string, job *probejob.Job) []string {
	n := batch.Node{SubmitDir: job.WorkDir, Tasks: job.Tasks, GPUs: job.Devices}
	if job.Array != nil {
		task := batch.ArrayTask(*job.Array)
		n.Array = &task
	}
	return n.Environment(env)
}
