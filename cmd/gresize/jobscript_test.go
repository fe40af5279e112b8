package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const aJobScript = `#!/bin/bash
#SBATCH --gres=gpu:2 --ntasks=4 --cpus-per-task=3
#SBATCH --job-name=tune --chdir=work
#SBATCH --array=3-9:2
echo "$0" | grep -q script && echo "args $*"
echo "gpus $SLURM_GPUS_ON_NODE $CUDA_VISIBLE_DEVICES tasks $SLURM_NTASKS cpus $SLURM_CPUS_PER_TASK task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
echo "$SLURM_JOB_NAME $SLURM_JOB_ID in $(basename "$PWD") from $(basename "$SLURM_SUBMIT_DIR") size $SIZE"
exit 7
`

// TestAJobScriptIsRunAsAJob goes through the sandbox: the script tells what it sees.
func TestAJobScriptIsRunAsAJob(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		task string
		says []string
	}{
		{"the script", []string{"job.sh", "a", "b"}, "", []string{"args a b", "gpus 2 0,1 tasks 4 cpus 3 task 3 of 4", "tune 1 in work from site size"}},
		{"sbatch", []string{"--", "sbatch", "--gres=gpu:1", "-J", "other", "--export=ALL,SIZE=5", "job.sh", "c"}, "", []string{"args c", "gpus 1 0 tasks 4", "other 1 in work from site size 5"}},
		{"another task, more GPUs", []string{"--gpus", "3", "--", "./run.sh"}, "7", []string{"gpus 3 0,1,2", "task 7 of 4"}},
		{"wrapped", []string{"--", "sbatch", "-G1", "--wrap", "echo wrapped $SLURM_JOB_NAME; exit 7"}, "", []string{"wrapped wrap"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			site := filepath.Join(t.TempDir(), "site")
			if err := os.MkdirAll(filepath.Join(site, "work"), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, mode := range map[string]os.FileMode{"job.sh": 0o644, "run.sh": 0o755} {
				if err := os.WriteFile(filepath.Join(site, name), []byte(aJobScript), mode); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("SLURM_ARRAY_TASK_ID", c.task)
			a := estimated(t, site, c.args...)
			if a.code != exitFailed || a.CommandExitStatus != 7 {
				t.Errorf("exit code %d, status %d", a.code, a.CommandExitStatus)
			}
			for _, words := range c.says {
				if !strings.Contains(a.OutputTail, words) {
					t.Errorf("the script says\n%s\nwant %q", a.OutputTail, words)
				}
			}
			if len(a.Notes) == 0 || !strings.HasPrefix(a.Notes[0], "run as sbatch would: ") {
				t.Errorf("notes %q", a.Notes)
			}
		})
	}
}

// TestWhatIsNoProgram: a file that the system cannot start is told what to write.
func TestWhatIsNoProgram(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"train.py": "import torch\n", "job.txt": "echo\n", "bad.sh": "#!/bin/sh\n#SBATCH --gres='gpu:1\n", "far.sh": "#!/bin/sh\n#SBATCH --chdir=/nowhere\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for command, says := range map[string]string{
		"train.py":      "train.py is no program by itself: gresize estimate -- python train.py",
		"./train.py":    "./train.py is no program by itself",
		"job.txt":       "such as bash job.txt",
		"bad.sh":        "bad.sh:2: an opening '",
		"far.sh":        "--chdir=/nowhere: there is no such folder",
		"sbatch":        "name the script",
		"sbatch no.sh":  "no such file",
		"sbatch -Z far": "unknown shorthand flag",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"estimate", "--"}, strings.Fields(command)...), &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), says) {
			t.Errorf("%s: exit code %d, %q, want %q", command, code, stderr.String(), says)
		}
	}
}

func TestFlagsThatAreAlmostRight(t *testing.T) {
	for words, says := range map[string]string{
		"estimate -gpu a100-80 -- true":    "it is written --gpu",
		"estimate --gpu-name h100 -- true": "near it: --gpu, --gpus",
		"estimate --outputs -- true":       "unknown flag: --outputs",
		"simulate --capacit 8G x.csv":      "near it: --capacity",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(words), &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), says) {
			t.Errorf("%s: exit code %d, %q, want %q", words, code, stderr.String(), says)
		}
	}
}
