package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/slurm/batch"
)

// hint is a way out that a failed command's own words point to, and that only who called it can take.
type hint struct {
	words *regexp.Regexp
	// inside says that the words mean it in the sandbox alone.
	inside bool
	// way is the way out; found are the words and their groups.
	way func(m *trace.Manifest, found []string) string
}

func always(way string) func(*trace.Manifest, []string) string {
	return func(*trace.Manifest, []string) string { return way }
}

var hintTable = []hint{
	{words: regexp.MustCompile(`invalid device ordinal|NCCL.*[Dd]uplicate GPU detected|Duplicate GPU detected`), way: func(m *trace.Manifest, _ []string) string {
		want := "N"
		if n := processesOf(m.Command); n > m.GPU.Devices {
			want = strconv.Itoa(n)
		}
		return fmt.Sprintf("the command needs more than %s: use --gpus %s", quantity.Count(m.GPU.Devices, "GPU"), want)
	}},
	{words: regexp.MustCompile(`GatedRepoError|Cannot access gated repo|huggingface-cli login|hf auth login|401 Client Error`), way: always("the hub wants a login, and there is no network in the sandbox: log in and download once before; the cache in your home is read")},
	{words: regexp.MustCompile(`Temporary failure in name resolution|Name or service not known|Network is unreachable|[Cc]ould not resolve host|[Cc]ouldn't connect to 'https?://|` +
		`Failed to resolve '|outgoing traffic has been disabled|LocalEntryNotFoundError|OfflineModeIsEnabled`), inside: true,
		way: always("there is no network in the sandbox: run the command's download once before, or the whole command with --no-sandbox")},
	{words: regexp.MustCompile(`No API key configured|api_key not configured|wandb login`), way: always("run `wandb login` once before, or set WANDB_MODE=offline for the estimate")},
	{words: regexp.MustCompile(`ModuleNotFoundError: No module named '([^'\n]+)'`), way: func(_ *trace.Manifest, found []string) string {
		return fmt.Sprintf("the Python that ran has no %s: activate the environment of the job first, or name its interpreter, such as ENV/bin/python", found[1])
	}},
	{words: regexp.MustCompile(`([^\s:]+): (?:command )?not found|exec: "([^"\n]+)": executable file not found`), way: func(_ *trace.Manifest, found []string) string {
		return fmt.Sprintf("there is no %s on this machine's PATH: load its module, or activate its environment, before the estimate", found[1]+found[2])
	}},
	{words: regexp.MustCompile(`can't open file '([^'\n]+)'`), way: func(_ *trace.Manifest, found []string) string {
		return fmt.Sprintf("there is no %s: a program is looked for in the folder in which the command runs; start the estimate where the job starts", found[1])
	}},
	{words: regexp.MustCompile(`No such file or directory: '([^'\n]+)'`), way: func(_ *trace.Manifest, found []string) string {
		if filepath.IsAbs(found[1]) {
			return found[1] + " is not on this machine: run the estimate where it is, such as a node with the same disks as the job's, or name a copy of it"
		}
		return fmt.Sprintf("%s is looked for in the folder in which the estimate was started: start it where the job starts", found[1])
	}},
	{words: regexp.MustCompile(`EOFError: EOF when reading a line`), way: always("the command asks for input, which a batch job has none of either: give the answers by arguments, or by a file, < FILE")},
	{words: regexp.MustCompile(`bdb\.BdbQuit`), way: always("the command stops at a breakpoint: take it out, or set PYTHONBREAKPOINT=0")},
	{words: regexp.MustCompile(`name 'get_ipython' is not defined`), way: always("this was made of a notebook: take its lines that begin with get_ipython() out")},
	{words: regexp.MustCompile(`(?m)^\S+: error: (?:the following arguments are required|unrecognized arguments|argument |ambiguous option|one of the arguments)`), way: always("the script refused its arguments: write the command as for a real run; its own --help lists them")},
	{words: regexp.MustCompile(`No CUDA GPUs are available|CUDA is not available|Found no NVIDIA driver|is_available\(\) is False`), way: func(m *trace.Manifest, _ []string) string {
		return fmt.Sprintf("the command sees %s: where it sets CUDA_VISIBLE_DEVICES itself, use --gpus N with more than the largest number in it", quantity.Count(m.GPU.Devices, "GPU"))
	}},
	{words: regexp.MustCompile(`SyntaxError: `), way: always("the Python that ran is another one than the job's, or too old for this file: name the job's interpreter, such as ENV/bin/python")},
	{words: regexp.MustCompile(`PermissionError: .*'([^'\n]+)'`), way: func(_ *trace.Manifest, found []string) string {
		return fmt.Sprintf("you may not use %s: the estimate runs with your own rights, as the job would", found[1])
	}},
}

var processes = regexp.MustCompile(`^--?nproc[-_]per[-_]node(?:=(\d+))?$`)

// hints are the ways out, the likeliest first. A script that was started by hand, and speaks of the variables that Slurm sets, is told how to be run as a job.
func hints(m *trace.Manifest) (ways []string) {
	if m.Outcome != trace.Crashed {
		return nil
	}
	if script := jobScriptOf(m.Command); script != "" {
		ways = append(ways, fmt.Sprintf("%s is written for Slurm, whose variables are not set: gresize estimate %s runs it as sbatch would", script, script))
	}
	for _, h := range hintTable {
		if h.inside && !m.Sandboxed {
			continue
		}
		if found := h.words.FindStringSubmatch(m.OutputTail); found != nil {
			return append(ways, h.way(m, found))
		}
	}
	return ways
}

// jobScriptOf is the script that a shell was given, where it asks for what Slurm sets; empty where it does not.
func jobScriptOf(command []string) string {
	if len(command) < 2 || !strings.HasSuffix(filepath.Base(command[0]), "sh") || os.Getenv("SLURM_JOB_ID") != "" {
		return ""
	}
	text, err := headOf(command[1])
	if err != nil || !batch.HasDirectives(text) && !strings.Contains(string(text), "$SLURM_") && !strings.Contains(string(text), "${SLURM_") {
		return ""
	}
	return command[1]
}

// processesOf is how many processes on this node the command names to torchrun or its like; 0 where it does not.
func processesOf(command []string) int {
	for i, a := range command {
		found := processes.FindStringSubmatch(a)
		if found == nil {
			continue
		}
		number := found[1]
		if number == "" && i+1 < len(command) {
			number = command[i+1]
		}
		n, _ := strconv.Atoi(number)
		return n
	}
	return 0
}
