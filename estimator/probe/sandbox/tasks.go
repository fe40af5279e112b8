package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits on the tasks that a launcher is asked for.
const (
	mostTasks = 1 << 16
	// mostTasksRun is how many tasks are run where the virtual GPU does not say; of more, the first and the last are.
	mostTasksRun = 4
	// afterFailure is how long the other tasks may go on when one has failed.
	afterFailure = 10 * time.Second
)

// mostRanksVariable is set by the virtual GPU; its Python layer reads it, too.
const mostRanksVariable = "GRESIZE_VGPU_MOST_RANKS"

// layout says how many tasks a launcher is to start, and where.
type layout struct {
	tasks, nodes int
	// gpusPerTask, when not 0, binds that many GPUs to each task.
	gpusPerTask int
}

func (l layout) perNode() int { return (l.tasks + l.nodes - 1) / l.nodes }

// positive reads a number as Slurm writes them: 4, or 4(x2) for each of two nodes.
func positive(text string) int {
	text, _, _ = strings.Cut(text, "(")
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostTasks {
		return 0
	}
	return n
}

// first is the first of the named values that is a number.
func first(values map[string]string, names ...string) int {
	for _, name := range names {
		if n := positive(values[name]); n > 0 {
			return n
		}
	}
	return 0
}

// srunLayout is what srun would do: its own options, then those of the job.
func srunLayout(given, job map[string]string) layout {
	l := layout{tasks: first(given, "-n", "--ntasks"), nodes: first(given, "-N", "--nodes")}
	if l.nodes == 0 {
		l.nodes = max(first(job, "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), 1)
	}
	if perNode := first(given, "--ntasks-per-node"); l.tasks == 0 && perNode > 0 {
		l.tasks = perNode * l.nodes
	}
	if l.tasks == 0 {
		l.tasks = max(first(job, "SLURM_NTASKS", "SLURM_NPROCS"), l.nodes)
	}
	l.nodes, l.tasks = min(l.nodes, l.tasks), min(l.tasks, mostTasks)
	_, gpus, _ := strings.Cut(":"+given["--gpus-per-task"], ":")
	l.gpusPerTask = positive(gpus[strings.LastIndexByte(gpus, ':')+1:])
	return l
}

func mpirunLayout(given, _ map[string]string) layout {
	return layout{tasks: max(first(given, "-n", "-np", "--np", "--n", "-c"), 1), nodes: 1}
}

func srunTask(l layout, task int) []string {
	local := task % l.perNode()
	env := []string{
		"SLURM_PROCID=" + strconv.Itoa(task), "SLURM_LOCALID=" + strconv.Itoa(local), "SLURM_NODEID=" + strconv.Itoa(task/l.perNode()), "SLURM_STEP_ID=0",
		"SLURM_NTASKS=" + strconv.Itoa(l.tasks), "SLURM_NPROCS=" + strconv.Itoa(l.tasks), "SLURM_STEP_NUM_TASKS=" + strconv.Itoa(l.tasks),
		"SLURM_NNODES=" + strconv.Itoa(l.nodes), "SLURM_STEP_NUM_NODES=" + strconv.Itoa(l.nodes),
		"SLURM_NTASKS_PER_NODE=" + strconv.Itoa(l.perNode()), "SLURM_TASKS_PER_NODE=" + perNodeText(l),
	}
	if l.gpusPerTask > 0 {
		var devices []string
		for i := range min(l.gpusPerTask, mostTasksRun*16) {
			devices = append(devices, strconv.Itoa(local*l.gpusPerTask+i))
		}
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(devices, ","))
	}
	return env
}

func perNodeText(l layout) string {
	if l.nodes == 1 {
		return strconv.Itoa(l.tasks)
	}
	return fmt.Sprintf("%d(x%d)", l.perNode(), l.nodes)
}

func mpirunTask(l layout, task int) []string {
	size, rank := strconv.Itoa(l.tasks), strconv.Itoa(task)
	return []string{"OMPI_COMM_WORLD_SIZE=" + size, "OMPI_COMM_WORLD_RANK=" + rank, "OMPI_COMM_WORLD_LOCAL_RANK=" + rank,
		"OMPI_COMM_WORLD_LOCAL_SIZE=" + size, "PMI_RANK=" + rank, "PMI_SIZE=" + size}
}

// tasksToRun are the tasks that are run: all, or the first and the last of many.
func tasksToRun(tasks, most int) []int {
	if tasks > most {
		return slices.Compact([]int{0, tasks - 1})
	}
	all := make([]int, tasks)
	for i := range all {
		all[i] = i
	}
	return all
}

// inContainer are the options that have a task run in a container, which no launcher here makes: of pyxis, and of Slurm itself.
var inContainer = []string{"--container-image", "--container-name", "--container"}

// runLocally runs the launcher's command here, once for each task that is run.
func runLocally(options launcherOptions) func(string, []string) int {
	return func(name string, args []string) int {
		command, given := options.split(args)
		for _, option := range inContainer {
			if _, asked := given[option]; asked {
				// The machine's own Python would be another one than that of the image.
				return refuse(name, args)
			}
		}
		logCall(name, "ran", args)
		if len(command) == 0 {
			return 0
		}
		job := map[string]string{}
		for _, kv := range os.Environ() {
			key, value, _ := strings.Cut(kv, "=")
			job[key] = value
		}
		l := options.layout(given, job)
		most := positive(job[mostRanksVariable])
		if most == 0 {
			most = mostTasksRun
		}
		tasks := tasksToRun(l.tasks, most)
		if len(tasks) == 1 {
			return execBehindShims(command, with(os.Environ(), options.task(l, tasks[0])))
		}
		return runTasks(l, tasks, options, command)
	}
}

// with sets each KEY=VALUE of add in a copy of env.
func with(env, add []string) []string {
	env = slices.Clone(env)
	for _, kv := range add {
		key, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, key+"=") })
		env = append(env, kv)
	}
	return env
}

// runTasks starts the tasks and waits for them. The status is that of the first that failed.
func runTasks(l layout, tasks []int, options launcherOptions, command []string) int {
	path, err := behindShims(command[0])
	if err != nil {
		fmt.Fprintf(os.Stderr, "gresize: %s: %v\n", command[0], err)
		return exitNotFound
	}
	ended := make(chan int, len(tasks))
	var running []*exec.Cmd
	failed := 0
	for _, task := range tasks {
		cmd := &exec.Cmd{Path: path, Args: command, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		cmd.Env = with(os.Environ(), append(options.task(l, task), "GRESIZE_VGPU_LAUNCH="+strconv.Itoa(os.Getpid())))
		if err := cmd.Start(); err != nil {
			fmt.Fprintf(os.Stderr, "gresize: %s: %v\n", command[0], err)
			failed = exitNotExecutable
			break
		}
		running = append(running, cmd)
		go func() { ended <- exitStatus(cmd.Wait()) }()
	}
	var limit <-chan time.Time
	if failed != 0 {
		limit = time.After(0)
	}
	for range running {
		select {
		case status := <-ended:
			if status != 0 && failed == 0 {
				failed, limit = status, time.After(afterFailure)
			}
		case <-limit:
			for _, cmd := range running {
				_ = cmd.Process.Kill()
			}
			return failed
		}
	}
	return failed
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	return 1
}
