package batch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirectives(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         []string
		fault        string
	}{
		{"usual", "#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH -N 1 -n4\n\npython train.py\n#SBATCH --gres=gpu:8\n", []string{"--gres=gpu:2", "-N", "1", "-n4"}, ""},
		{"comments and empty lines go on", "#!/bin/sh\n\n# hello\n  # set in\n#SBATCH -c8 # of sixteen\n\t\n#SBATCH --mem 4G\n", []string{"-c8", "--mem", "4G"}, ""},
		{"quotes and escapes", "#!/bin/sh\n#SBATCH --comment=\"two words\" --job-name='a b' --chdir=/a\\ b\\#c\n", []string{"--comment=two words", "--job-name=a b", "--chdir=/a b#c"}, ""},
		{"switched off", "#!/bin/sh\n##SBATCH --gres=gpu:2\n# SBATCH --gres=gpu:3\n", nil, ""},
		{"first part of several", "#!/bin/sh\n#SBATCH --gres=gpu:1\n#SBATCH hetjob\n#SBATCH --gres=gpu:2\n", []string{"--gres=gpu:1"}, ""},
		{"no line feed at the end", "#!/bin/sh\n#SBATCH --gres=gpu:1", []string{"--gres=gpu:1"}, ""},
		{"an empty word", "#!/bin/sh\n#SBATCH --comment ''\n", []string{"--comment", ""}, ""},
		{"a quote that stays open", "#!/bin/sh\n#SBATCH --comment=\"two\n", nil, `2: an opening "`},
		{"nothing", "", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Directives([]byte(c.script))
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("%v, want %q", err, c.fault)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestReadSubmission(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/bash\n#SBATCH --gres=gpu:a100:2 --ntasks=4\n#SBATCH --job-name=fromscript --partition=gpu\n#SBATCH --chdir=sub\n#SBATCH --array=3-9:2,20%2\ntrue\n"
	for name, text := range map[string]string{"job.sh": script, "plain.sh": "#!/bin/sh\ntrue\n", "none.py": "import torch\n", "wrong.sh": "#!/bin/sh\n#SBATCH --gresx=gpu:1\n", "word.sh": "#!/bin/sh\n#SBATCH gpu:1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		words string
		want  Submission
		fault string
	}{
		{"job.sh --lr 0.1", Submission{Args: []string{"--lr", "0.1"}, Dir: dir + "/sub", Name: "fromscript", Nodes: 1, Tasks: 4, GPUs: 2, Array: &ArrayTask{Task: 3, Min: 3, Max: 20, Count: 5, Step: 2}, given: []string{"SLURM_JOB_PARTITION=gpu"}}, ""},
		{"-J other -G4 -N 2 --ntasks-per-node 2 -c 8 --array=7 --chdir /tmp job.sh", Submission{Dir: "/tmp", Name: "other", Nodes: 2, Tasks: 2, GPUs: 2, CPUsPerTask: 8, Array: &ArrayTask{Task: 7, Min: 7, Max: 7, Count: 1, Step: 1}, given: []string{"SLURM_GPUS=4", "SLURM_JOB_PARTITION=gpu"}}, ""},
		{"--gpus-per-task=1 -n 3 plain.sh", Submission{Dir: dir, Name: "plain.sh", Nodes: 1, Tasks: 3, GPUs: 3, given: []string{"SLURM_GPUS_PER_TASK=1"}}, ""},
		{"--gpus=h100:4 --nodes=2 plain.sh", Submission{Dir: dir, Name: "plain.sh", Nodes: 2, Tasks: 1, GPUs: 2, given: []string{"SLURM_GPUS=h100:4"}}, ""},
		{"--gres=shard:12 plain.sh", Submission{Dir: dir, Name: "plain.sh", Nodes: 1, Tasks: 1, GPUs: 1}, ""},
		{"--exclusive --hold --export=ALL,SIZE=3 plain.sh", Submission{Dir: dir, Name: "plain.sh", Nodes: 1, Tasks: 1, Environment: []string{"SIZE=3"}}, ""},
		{"", Submission{}, "name the script"},
		{"plain.sh.not", Submission{}, "no such file"},
		{"none.py", Submission{}, "none.py:1: sbatch takes no script"},
		{"wrong.sh", Submission{}, "unknown flag: --gresx"},
		{"word.sh", Submission{}, `"gpu:1" is no option`},
		{"--ntasks=none plain.sh", Submission{}, "--ntasks=none: a positive number"},
		{"--array=5-1 plain.sh", Submission{}, "no list of array tasks"},
		{"--gres=gpu:1:2:3 plain.sh", Submission{}, "not understood"},
		{"/ ", Submission{}, "is no file"},
		{"--wrap=true plain.sh", Submission{}, "one of them"},
	} {
		t.Run(c.words, func(t *testing.T) {
			got, err := ReadSubmission(strings.Fields(c.words), dir)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("%v, want %q", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Script) == 0 {
				t.Error("no script")
			}
			got.Script = nil
			c.want.SubmitDir = dir
			slices.Sort(got.given)
			if len(got.Args) == 0 {
				got.Args = nil
			}
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Submission{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	wrapped, err := ReadSubmission([]string{"-G", "1", "--wrap", "python train.py"}, dir)
	if err != nil || !strings.HasSuffix(string(wrapped.Script), "\npython train.py\n") || wrapped.Name != "wrap" || wrapped.GPUs != 1 {
		t.Errorf("%+v, %v", wrapped, err)
	}
}

func TestEnvironment(t *testing.T) {
	n := Node{SubmitDir: "/home/a", Name: "train", Tasks: 2, GPUs: 2, CPUsPerTask: 4, Array: &ArrayTask{JobID: 1, Task: 7, Count: 3, Min: 5, Max: 9, Step: 2}, Given: []string{"SLURM_GPUS=2"}}
	got := n.Environment([]string{"HOME=/home/a", "SLURM_NTASKS=64", "SLURM_STEP_ID=0", "SLURM_JOB_ID=9"})
	for _, want := range []string{"HOME=/home/a", "SLURM_JOB_ID=9", "SLURM_NTASKS=2", "SLURM_GPUS_ON_NODE=2", "SLURM_JOB_GPUS=0,1", "SLURM_CPUS_PER_TASK=4", "SLURM_ARRAY_TASK_ID=7", "SLURM_JOB_NAME=train", "SLURM_SUBMIT_DIR=/home/a", "SLURM_GPUS=2"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %q", want, got)
		}
	}
	for _, kv := range got {
		if strings.HasPrefix(kv, "SLURM_STEP") || kv == "SLURM_NTASKS=64" {
			t.Errorf("%s is left", kv)
		}
	}
}

// FuzzDirectives: whatever a file holds, its words are read or a line is named.
func FuzzDirectives(f *testing.F) {
	f.Add([]byte("#!/bin/sh\n#SBATCH --a 'b\\ c' # d\n"))
	f.Fuzz(func(t *testing.T, script []byte) {
		words, err := Directives(script)
		if err != nil && words != nil {
			t.Errorf("%q beside %v", words, err)
		}
	})
}

// FuzzReadSubmission: no words crash it, and what it takes for a job is within bounds.
func FuzzReadSubmission(f *testing.F) {
	f.Add("--gres=gpu:2\x00--array=1-4:2\x00--wrap\x00true")
	f.Fuzz(func(t *testing.T, joined string) {
		s, err := ReadSubmission(strings.Split(joined, "\x00"), "/")
		if err == nil && (s.GPUs < 0 || s.Tasks < 1 || s.Nodes < 1) {
			t.Errorf("%+v", s)
		}
	})
}
