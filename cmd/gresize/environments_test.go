package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// TestEnvironments: the ways in which people start the Python that has their PyTorch lead the probe to it. docs/sites.md has a row of each.
func TestEnvironments(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("a part of make nightly: GRESIZE_NIGHTLY is not set")
	}
	library, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GRESIZE_LIBDIR", library)
	environment := torchtest.Environment(t, "2.6.0")
	python := filepath.Join(environment, "bin", "python")
	const train = `import torch
net = torch.nn.Linear(512, 512).cuda()
step = torch.optim.Adam(net.parameters())
for _ in range(8):
    net(torch.zeros(64, 512, device="cuda")).sum().backward(); step.step(); step.zero_grad()
`
	const parallel = `import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda())
step = torch.optim.Adam(net.parameters())
for _ in range(8):
    net(torch.zeros(64, 512, device="cuda")).sum().backward(); step.step(); step.zero_grad()
dist.destroy_process_group()
`
	for _, c := range []struct {
		name string
		// tool must be there; says is what the answer must hold, ` + "`from`" + ` and steps where nobody says.
		tool, script, says string
	}{
		{"a path", "", `exec "$PYTHON" train.py`, ""},
		{"an activated venv", "", `. "$ENVIRONMENT/bin/activate" && python train.py`, ""},
		{"uv run", "uv", `uv run --no-project --offline --python "$PYTHON" train.py`, ""},
		{"uv in a project", "uv", `VIRTUAL_ENV="$ENVIRONMENT" uv run --active --no-sync --offline train.py`, ""},
		{"poetry run", "poetry", `VIRTUAL_ENV="$ENVIRONMENT" PATH="$ENVIRONMENT/bin:$PATH" poetry run python train.py`, ""},
		{"Lmod", "/usr/share/lmod/lmod/libexec/lmod", `. /usr/share/lmod/lmod/init/bash; module use "$PWD/modules"; module load torch/2.6.0 && python train.py`, ""},
		{"Lmod by a function of the environment", "/usr/share/lmod/lmod/libexec/lmod", `. /usr/share/lmod/lmod/init/bash; export -f module; export LMOD_CMD MODULEPATH; exec bash -c 'module use "$PWD/modules"; module load torch/2.6.0 && python train.py'`, ""},
		{"srun and torchrun on two nodes", "", `export PATH="$ENVIRONMENT/bin:$PATH" SLURM_NNODES=2 SLURM_NTASKS=2 MASTER_PORT=29511
export MASTER_ADDR=$(scontrol show hostnames node[1-2] | head -n1)
srun bash -c 'torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT parallel.py'`, ""},
		{"pyxis", "", `srun --container-image=nvcr.io#nvidia/pytorch:24.10-py3 python train.py`, "--container-image starts one"},
		{"apptainer that is not there", "", `apptainer exec --nv image.sif python train.py || true`, "apptainer starts one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.tool != "" {
				if _, err := exec.LookPath(c.tool); err != nil {
					t.Skipf("%v: install it to have this tried", err)
				}
			}
			dir := t.TempDir()
			for name, text := range map[string]string{
				"train.py": train, "parallel.py": parallel, "job.sh": "#!/bin/bash\n" + c.script + "\n",
				"pyproject.toml":          "[project]\nname = \"t\"\nversion = \"0.1\"\nrequires-python = \">=3.9\"\n",
				"modules/torch/2.6.0.lua": "prepend_path(\"PATH\", \"" + environment + "/bin\")\n",
			} {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			t.Setenv("PYTHON", python)
			t.Setenv("ENVIRONMENT", environment)
			var out, said bytes.Buffer
			code := run(t.Context(), []string{"estimate", "--budget", "90s", "--", "./job.sh"}, &out, &said)
			text := out.String() + said.String()
			if c.says != "" {
				if code != exitUnknown || !strings.Contains(text, c.says) {
					t.Errorf("exit code %d, want %q\n%s", code, c.says, text)
				}
				return
			}
			if code != exitOK || !strings.Contains(text, "high, from 4 steps") {
				t.Errorf("exit code %d\n%s", code, text)
			}
		})
	}
}
