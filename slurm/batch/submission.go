package batch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gresize/gresize/slurm/request"
)

// MaxScriptBytes is the most that slurmctld takes of a script by default (max_script_size).
const MaxScriptBytes = 4 << 20

// Submission is what sbatch would send of its words: the script, and what is asked for as far as one node tells.
type Submission struct {
	Script []byte
	// Args are the arguments of the script.
	Args []string
	// Dir is where the script starts, SubmitDir where sbatch was called.
	Dir, SubmitDir string
	Name           string
	// Nodes, and Tasks and GPUs on each of them. GPUs is 0 where none is asked for; a share of a GPU counts as one.
	Nodes, Tasks, GPUs int
	CPUsPerTask        int
	// Array is the first task of an array and how many there are; nil: it is none.
	Array *ArrayTask
	// Environment are variables that --export sets, as NAME=VALUE.
	Environment []string
	given       []string
}

// The options of sbatch (src/common/slurm_opt.c of Slurm, 20.11 to 26.05), by what follows them. Of most of them only that is of interest here: where the script's name stands.
const (
	withoutValue  = "contiguous help:h hold:H ignore-pbs no-requeue overcommit:O oversubscribe:s share parsable quiet:Q reboot requeue spread-job stepmgr test-only use-min-nodes usage verbose:v version:V wait:W"
	optionalValue = "exclusive get-user-env oom-kill-step nice no-kill:k propagate resv-ports"
	withValue     = "account:A acctg-freq array:a batch bbf begin:b bb cluster-constraint chdir:D workdir clusters:M cluster comment constraint:C container container-id context core-spec:S cores-per-socket cpu-freq cpus-per-gpu " +
		"cpus-per-task:c deadline delay-boot dependency:d distribution:m error:e exclude:x export export-file extra extra-node-info:B gid gpu-bind tres-bind gpu-freq gpus:G gpus-per-node gpus-per-socket " +
		"gpus-per-task tres-per-task gres gres-flags hint input:i job-name:J kill-on-invalid-dep licenses:L mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile:F nodelist:w " +
		"nodes:N ntasks:n ntasks-per-core ntasks-per-node ntasks-per-socket ntasks-per-tres ntasks-per-gpu open-mode output:o partition:p power prefer priority profile qos:q reservation segment signal " +
		"sockets-per-node switches tasks-per-node thread-spec threads-per-core time:t time-min tmp uid wait-all-nodes wckey wrap"
)

// handedOn are the options that slurmd hands on as they were written, with the variables in which it does.
var handedOn = map[string]string{
	"gpus": "SLURM_GPUS", "gpus-per-node": "SLURM_GPUS_PER_NODE", "gpus-per-task": "SLURM_GPUS_PER_TASK", "gpus-per-socket": "SLURM_GPUS_PER_SOCKET",
	"partition": "SLURM_JOB_PARTITION", "account": "SLURM_JOB_ACCOUNT", "qos": "SLURM_JOB_QOS", "threads-per-core": "SLURM_THREADS_PER_CORE",
}

// ReadSubmission reads the words behind "sbatch" and the script that they name. dir is where they are said. What sbatch itself would refuse is refused in its place, with the line of the script.
func ReadSubmission(words []string, dir string) (Submission, error) {
	options := newOptions()
	if err := options.Parse(words); err != nil {
		return Submission{}, fmt.Errorf("sbatch: %w", err)
	}
	s := Submission{Dir: dir, SubmitDir: dir}
	wrap, rest := options.value("wrap"), options.Args()
	switch {
	case wrap != "" && len(rest) > 0:
		return Submission{}, fmt.Errorf("sbatch: --wrap and a script, %.80q: one of them is wanted", rest[0])
	case wrap != "":
		s.Script, s.Name = []byte("#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"+wrap+"\n"), "wrap"
	case len(rest) == 0:
		return Submission{}, errors.New("sbatch: name the script, or give --wrap: a script on the standard input is not read here")
	default:
		var err error
		if s.Script, err = readScript(rest[0], dir); err != nil {
			return Submission{}, err
		}
		s.Name, s.Args = filepath.Base(rest[0]), rest[1:]
		directives, err := Directives(s.Script)
		if err != nil {
			return Submission{}, fmt.Errorf("%s:%w", rest[0], err)
		}
		// Of an option that is given twice the last one counts: those of the command line stand behind the script's.
		again := newOptions()
		if err := again.Parse(directives); err != nil {
			return Submission{}, fmt.Errorf("%s: #SBATCH: %w", rest[0], err)
		}
		if extra := again.Args(); len(extra) > 0 {
			return Submission{}, fmt.Errorf("%s: #SBATCH: %.80q is no option", rest[0], extra[0])
		}
		if err := again.Parse(words); err != nil {
			return Submission{}, fmt.Errorf("sbatch: %w", err)
		}
		options = again
	}
	return s, options.fill(&s)
}

func readScript(name, dir string) ([]byte, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("sbatch: the script: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("sbatch: the script %s is no file", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sbatch: the script: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxScriptBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("sbatch: the script %s: %w", name, err)
	case len(text) > MaxScriptBytes:
		return nil, fmt.Errorf("sbatch: the script %s is larger than %d MiB", name, MaxScriptBytes>>20)
	case !strings.HasPrefix(string(text), "#!"):
		return nil, fmt.Errorf("%s:1: sbatch takes no script whose first line does not begin with #!, such as #!/bin/bash", name)
	}
	return text, nil
}

// options are the words of sbatch, read.
type options struct{ *pflag.FlagSet }

func newOptions() options {
	set := pflag.NewFlagSet("sbatch", pflag.ContinueOnError)
	set.SetInterspersed(false)
	set.SetOutput(io.Discard)
	set.SortFlags = false
	add := func(names string, define func(name, short string)) {
		for name := range strings.FieldsSeq(names) {
			name, short, _ := strings.Cut(name, ":")
			define(name, short)
		}
	}
	add(withoutValue, func(name, short string) { set.CountP(name, short, "") })
	add(withValue, func(name, short string) { set.StringP(name, short, "", "") })
	add(optionalValue, func(name, short string) {
		set.StringP(name, short, "", "")
		set.Lookup(name).NoOptDefVal = "yes"
	})
	return options{set}
}

func (o options) value(name string) string { return o.Lookup(name).Value.String() }

// number is the whole number of an option, otherwise where it was not given. A range of nodes, 2-4, counts with its begin.
func (o options) number(name string, otherwise int) (int, error) {
	text := o.value(name)
	if text == "" {
		return otherwise, nil
	}
	begin, _, _ := strings.Cut(text, "-")
	n, err := strconv.ParseInt(begin, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("sbatch: --%s=%.40s: a positive number is wanted", name, text)
	}
	return int(n), nil
}

func (o options) fill(s *Submission) (err error) {
	var tasks, perNode int
	for _, n := range []struct {
		name      string
		otherwise int
		to        *int
	}{{"nodes", 1, &s.Nodes}, {"ntasks", 0, &tasks}, {"ntasks-per-node", 0, &perNode}, {"tasks-per-node", perNode, &perNode}, {"cpus-per-task", 0, &s.CPUsPerTask}} {
		if *n.to, err = o.number(n.name, n.otherwise); err != nil {
			return err
		}
	}
	switch {
	case perNode > 0 && tasks > 0:
		s.Tasks = min(perNode, tasks)
	case perNode > 0:
		s.Tasks = perNode
	default:
		s.Tasks = max(1, (tasks+s.Nodes-1)/s.Nodes)
	}
	if err := o.countGPUs(s); err != nil {
		return err
	}
	if name := o.value("job-name"); name != "" {
		s.Name = name
	}
	for _, name := range []string{"workdir", "chdir"} { // the first is the old name of the second
		if dir := o.value(name); dir != "" {
			if s.Dir = dir; !filepath.IsAbs(dir) {
				s.Dir = filepath.Join(s.SubmitDir, dir)
			}
		}
	}
	if list := o.value("array"); list != "" {
		a, err := ParseArray(list)
		if err != nil {
			return fmt.Errorf("sbatch: --array=%.60s: %w", list, err)
		}
		s.Array = &ArrayTask{Task: a.Min, Count: a.Count, Min: a.Min, Max: a.Max, Step: a.Step}
	}
	for part := range strings.SplitSeq(o.value("export"), ",") {
		if strings.Contains(part, "=") {
			s.Environment = append(s.Environment, part)
		}
	}
	for name, variable := range handedOn {
		if value := o.value(name); value != "" {
			s.given = append(s.given, variable+"="+value)
		}
	}
	return nil
}

// countGPUs says how many GPUs the job has on a node. Of several options sbatch takes each; the largest is what a node must have.
func (o options) countGPUs(s *Submission) error {
	for _, ask := range []struct {
		name  string
		times int
		of    int
	}{{"gres", 1, 1}, {"gpus-per-node", 1, 1}, {"gpus-per-socket", 1, 1}, {"gpus-per-task", s.Tasks, 1}, {"tres-per-task", s.Tasks, 1}, {"gpus", 1, s.Nodes}} {
		list := o.value(ask.name)
		if list == "" {
			continue
		}
		count, shared := 0, false
		for part := range strings.SplitSeq(list, ",") {
			if ask.name != "gres" && ask.name != "tres-per-task" {
				part = "gpu:" + part
			}
			e := request.ParseList(part)[0]
			switch {
			case e.Name == "" || e.Count > 1<<16:
				return fmt.Errorf("sbatch: --%s=%.60s: %.40q is not understood", ask.name, list, part)
			case e.Name == "gpu":
				count += int(e.Count)
			case e.Name == "shard" || e.Name == "mps":
				shared = true
			}
		}
		count = (count*ask.times + ask.of - 1) / ask.of
		if count == 0 && shared {
			count = 1
		}
		s.GPUs = max(s.GPUs, count)
	}
	return nil
}

// Node is the job on its first node.
func (s Submission) Node() Node {
	return Node{SubmitDir: s.SubmitDir, Name: s.Name, Tasks: s.Tasks, GPUs: s.GPUs, CPUsPerTask: s.CPUsPerTask, Array: s.Array, Given: s.given}
}

// StandInJobID is the job's id where no slurmctld gave one.
const StandInJobID = 1

// StandInEnvironment is env as slurmd would make it for the job's script on a node that is called host, where there is no slurmd.
func (s Submission) StandInEnvironment(env []string, host string) []string {
	cpus := strconv.Itoa(s.Tasks * max(1, s.CPUsPerTask))
	id := strconv.Itoa(StandInJobID)
	n := s.Node()
	n.Given = append(n.Given, "SLURM_JOB_ID="+id, "SLURM_JOBID="+id, "SLURM_JOB_NODELIST="+host, "SLURM_NODELIST="+host, "SLURMD_NODENAME="+host, "SLURM_SUBMIT_HOST="+host,
		"SLURM_CPUS_ON_NODE="+cpus, "SLURM_JOB_CPUS_PER_NODE="+cpus, "SLURM_GTIDS=0", "SLURM_TASK_PID="+strconv.Itoa(os.Getpid()), "ENVIRONMENT=BATCH")
	n.Given = append(n.Given, s.Environment...)
	return n.Environment(env)
}
