// Package batch knows what a batch job is before and after Slurm: what sbatch
// reads out of its words and the script's #SBATCH lines, and the environment
// in which slurmd starts the script on its node.
package batch

import (
	"slices"
	"strconv"
	"strings"
)

// Node is a batch job as its script sees it, on one node.
type Node struct {
	// SubmitDir is where sbatch was called.
	SubmitDir string
	// Name is the job's name; empty: that of a script that sbatch read from its standard input.
	Name string
	// Tasks and GPUs are those on this node; 0 means 1.
	Tasks, GPUs int
	// CPUsPerTask is that of --cpus-per-task; 0: it was not given.
	CPUsPerTask int
	// Array is set for a task of a job array.
	Array *ArrayTask
	// Given are the options of sbatch that slurmd hands on as they were written, as NAME=VALUE.
	Given []string
}

// ArrayTask is what a task of a job array sees of it.
type ArrayTask struct {
	JobID, Task, Count, Min, Max, Step uint32
}

// Environment is env with the variables of the job in it. What env has of a step, and of another job's options, goes: the script is no step.
func (n Node) Environment(env []string) []string {
	gpus := make([]string, max(1, n.GPUs))
	for i := range gpus {
		gpus[i] = strconv.Itoa(i)
	}
	list := strings.Join(gpus, ",")
	tasks := strconv.Itoa(max(1, n.Tasks))
	set := map[string]string{
		"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks, "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_TASKS_PER_NODE": tasks,
		"SLURM_NTASKS_PER_NODE": tasks, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
		"SLURM_SUBMIT_DIR": n.SubmitDir, "SLURM_GPUS_ON_NODE": strconv.Itoa(len(gpus)), "SLURM_JOB_GPUS": list,
		"GPU_DEVICE_ORDINAL": list, "SLURM_JOB_NAME": n.Name,
	}
	if n.Name == "" {
		set["SLURM_JOB_NAME"] = "sbatch"
	}
	if n.CPUsPerTask > 0 {
		set["SLURM_CPUS_PER_TASK"] = strconv.Itoa(n.CPUsPerTask)
	}
	if a := n.Array; a != nil {
		for name, value := range map[string]uint32{"JOB_ID": a.JobID, "TASK_ID": a.Task, "TASK_COUNT": a.Count, "TASK_MIN": a.Min, "TASK_MAX": a.Max, "TASK_STEP": a.Step} {
			set["SLURM_ARRAY_"+name] = strconv.FormatUint(uint64(value), 10)
		}
	}
	for _, given := range n.Given {
		name, value, _ := strings.Cut(given, "=")
		set[name] = value
	}
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, replaced := set[name]
		return replaced || strings.HasPrefix(name, "SLURM_STEP")
	})
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, name+"="+set[name])
	}
	return out
}
