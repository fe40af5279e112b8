package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// ordinaryFailure is a script that fails as real ones do.
type ordinaryFailure struct {
	name string
	// program is run by the Python of PyTorch, script by bash; of said, nothing is run: the words are those of a package that no environment of the tests has.
	program, script, said string
	arguments             []string
	// way is part of the second line; empty: the first line says all.
	way string
}

var ordinaryFailures = []ordinaryFailure{
	{name: "a data set that is on other machines", program: "open('/data/imagenet/train.csv')", way: "is not on this machine"},
	{name: "a file of the folder of the job", program: "open('config.yaml')", way: "start it where the job starts"},
	{name: "a data set to be downloaded", program: "import torchvision\ntorchvision.datasets.CIFAR10('data', download=True)", way: "no network in the sandbox"},
	{name: "weights to be downloaded", program: "import torch\ntorch.hub.load_state_dict_from_url('https://weights.example.org/resnet18.pth', model_dir='weights')", way: "no network in the sandbox"},
	{name: "a repository to be cloned", script: "set -e\ngit clone https://git.example.org/model.git", way: "no network in the sandbox"},
	{name: "a login of Weights & Biases", said: "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])", way: "WANDB_MODE=offline"},
	{name: "a gated model of a hub", said: "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo", way: "log in and download once"},
	{name: "input()", program: "input('which run? ')", way: "asks for input"},
	{name: "a breakpoint", program: "breakpoint()\nx = 1", way: "PYTHONBREAKPOINT=0"},
	{name: "a package that is not installed", program: "import einops_of_nobody", way: "activate the environment"},
	{name: "another Python", program: "print 'an old one'", way: "name the job's interpreter"},
	{name: "a GPU by its number", program: "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '2'\nimport torch\ntorch.zeros(1, device='cuda')", way: "sets CUDA_VISIBLE_DEVICES itself"},
	{name: "a second GPU", program: "import torch\ntorch.cuda.set_device(1)", way: "--gpus N"},
	{name: "an argument that is missing", program: "import argparse\np = argparse.ArgumentParser(prog='train.py')\np.add_argument('--lr', required=True)\np.parse_args()", way: "refused its arguments"},
	{name: "an argument that is not known", program: "import argparse\np = argparse.ArgumentParser(prog='train.py')\np.parse_args()", arguments: []string{"--batch", "8"}, way: "refused its arguments"},
	{name: "lines of a notebook", program: "get_ipython().system('nvidia-smi')", way: "made of a notebook"},
	{name: "conda that is not there", script: "set -e\nconda_of_nobody activate train\npython train.py", way: "no conda_of_nobody on this machine's PATH"},
	{name: "a program that torchrun does not find", program: "from torch.distributed.run import main\nmain(['--standalone', '--nproc-per-node=2', '/tmp/missing_of_nobody.py'])", way: "start the estimate where the job starts"},
	{name: "a bug of its own", program: "import torch\ntorch.ones(2, 3) @ torch.ones(2, 3)"},
}

var ofThisRun = regexp.MustCompile(`/[^ ':]*/TestOrdinaryFailures[^/ ':]*/\d+|/tmp/[^ ':]*|/[^ ':]*/bin/python3?`)

// TestOrdinaryFailures runs the scripts, and holds what is answered, the cause in the first line and the way out in the second, to the table of docs/failures.md (-update writes it anew).
func TestOrdinaryFailures(t *testing.T) {
	python := torchtest.Python(t, "2.6.0")
	libDir, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", libDir)
	rows := make([]string, len(ordinaryFailures))
	places := make(chan struct{}, 3)
	var wait sync.WaitGroup
	for i, c := range ordinaryFailures {
		wait.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			cause, way := c.answer(t, python)
			if (way == "") != (c.way == "") || !strings.Contains(way, c.way) {
				t.Errorf("%s: %q, to try: %q, want %q", c.name, cause, way, c.way)
			}
			cell := func(text string) string {
				return strings.ReplaceAll(ofThisRun.ReplaceAllString(text, "/…"), "|", "\\|")
			}
			rows[i] = fmt.Sprintf("| %s | `%s` | %s |", c.name, cell(cause), cell(way))
		})
	}
	wait.Wait()
	const path, head = "../../docs/failures.md", "| what fails | first line | to try |\n|---|---|---|\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), head)
	if !found {
		t.Fatalf("%s has no table", path)
	}
	want := before + head + strings.Join(rows, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s says otherwise (-update writes it anew):\n%s", path, strings.Join(rows, "\n"))
	}
}

// answer is what a person reads first, without its ends that differ from run to run.
func (c ordinaryFailure) answer(t *testing.T, python string) (cause, way string) {
	t.Helper()
	if c.said != "" {
		ways := hints(&trace.Manifest{OutputTail: c.said, Command: []string{"python", "train.py"}, Sandboxed: true, Outcome: trace.Crashed, GPU: trace.GPU{Devices: 1}})
		return "command failed: " + c.said, strings.Join(ways, "; ")
	}
	dir := t.TempDir()
	name, interpreter, text := "train.py", python, c.program
	if c.script != "" {
		name, interpreter, text = "job.sh", "bash", c.script
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), append([]string{"estimate", "--", interpreter, file}, c.arguments...), &stdout, &stderr); code != exitFailed {
		t.Errorf("exit code %d: %s%s", code, stdout.String(), stderr.String())
	}
	lines := strings.Split(stdout.String(), "\n")
	if len(lines) > 1 {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines[1]), "to try"); ok {
			way = strings.TrimSpace(rest)
		}
	}
	return lines[0], way
}
