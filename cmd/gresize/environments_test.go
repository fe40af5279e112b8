package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// train is a program of a few steps.
const train = `import torch
net = torch.nn.Linear(512, 512).cuda()
step = torch.optim.Adam(net.parameters())
for _ in range(8):
    net(torch.zeros(64, 512, device="cuda")).sum().backward(); step.step(); step.zero_grad()
`

// surely is an answer that came of a run which was seen.
var surely = regexp.MustCompile(`confidence +(exact|high), from [48] steps`)

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
		// tool must be there; says is what the answer must hold where it is no figure.
		tool, script, says string
	}{
		{"a path", "", `exec "$PYTHON" train.py`, ""},
		{"an activated venv", "", `. "$ENVIRONMENT/bin/activate" && python train.py`, ""},
		{"uv run", "uv", `uv run --no-project --offline --python "$PYTHON" train.py`, ""},
		{"uv in a project", "uv", `VIRTUAL_ENV="$ENVIRONMENT" uv run --active --no-sync --offline train.py`, ""},
		{"poetry run", "poetry", `VIRTUAL_ENV="$ENVIRONMENT" PATH="$ENVIRONMENT/bin:$PATH" poetry run python train.py`, ""},
		{"venv with --system-site-packages", "", `mkdir -p base/bin base/lib/python3 && cp -L "$PYTHON" base/bin/python3 && v=$("$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
cp -rs "$("$PYTHON" -c 'import os; print(os.path.dirname(os.__file__))')" "base/lib/$v" && ln -s "$ENVIRONMENT/lib/$v/site-packages" base/lib/python3/dist-packages
base/bin/python3 -m venv --without-pip --system-site-packages over && . over/bin/activate && python train.py`, ""},
		{"Environment Modules", "/usr/share/modules/init/bash", `. /usr/share/modules/init/bash; module use "$PWD/modules"; module load torch/2.6.0 && python train.py`, ""},
		{"Lmod", "/usr/share/lmod/lmod/libexec/lmod", `. /usr/share/lmod/lmod/init/bash; module use "$PWD/modules"; module load torch/2.6.0 && python train.py`, ""},
		{"Lmod by a function of the environment", "/usr/share/lmod/lmod/libexec/lmod", `. /usr/share/lmod/lmod/init/bash; export -f module; export LMOD_CMD MODULEPATH; exec bash -c 'module use "$PWD/modules"; module load torch/2.6.0 && python train.py'`, ""},
		{"srun and torchrun on two nodes", "", `export PATH="$ENVIRONMENT/bin:$PATH" SLURM_NNODES=2 SLURM_NTASKS=2 MASTER_PORT=29511
export MASTER_ADDR=$(scontrol show hostnames node[1-2] | head -n1)
srun bash -c 'torchrun --nnodes=$SLURM_NNODES --node_rank=$SLURM_NODEID --nproc_per_node=1 --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT parallel.py'`, ""},
		{"an environment that is emptied", "", `env -i "$PYTHON" train.py`, "took gresize's variables"},
		{"pyxis", "", `srun --container-image=nvcr.io#nvidia/pytorch:24.10-py3 python train.py`, "--container-image starts one"},
		{"srun --container", "", `srun --container=/images/torch python train.py`, "--container starts one"},
		{"enroot", "", `enroot start --rw torch python train.py || true`, "enroot starts one"},
		{"podman", "", `podman run --rm --device nvidia.com/gpu=all torch python train.py || true`, "podman starts one"},
		{"charliecloud", "", `ch-run /images/torch -- python train.py || true`, "ch-run starts one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.tool != "" {
				_, err := exec.LookPath(c.tool)
				if filepath.IsAbs(c.tool) {
					_, err = os.Stat(c.tool)
				}
				if err != nil {
					t.Skipf("%v: install it to have this tried", err)
				}
			}
			dir := t.TempDir()
			for name, text := range map[string]string{
				"train.py": train, "parallel.py": parallel, "job.sh": "#!/bin/bash\n" + c.script + "\n",
				"pyproject.toml":          "[project]\nname = \"t\"\nversion = \"0.1\"\nrequires-python = \">=3.9\"\n",
				"modules/torch/2.6.0.lua": "prepend_path(\"PATH\", \"" + environment + "/bin\")\n",
				"modules/torch/2.6.0":     "#%Module\nprepend-path PATH " + environment + "/bin\n",
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
			if code != exitOK || !surely.MatchString(text) {
				t.Errorf("exit code %d\n%s", code, text)
			}
		})
	}
}
