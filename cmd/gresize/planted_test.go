package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// listSeams prints where each function of the Python layers begins: its file, its first line as Python counts it, the line and the column of its first statement, its name.
const listSeams = `
import ast, pathlib, sys
root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*.py")):
    def visit(node, name):
        for child in ast.iter_child_nodes(node):
            inner = name + "." + child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.body[0].lineno > child.lineno:
                first, body = (min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])]) for node in (child, child.body[0]))
                print(path.relative_to(root), first, body, child.body[0].col_offset, inner.lstrip("."))
            visit(child, inner)
    visit(ast.parse(path.read_text()), "")
`

const plantedProgram = `
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 10)).cuda()
opt = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(1024, 512), torch.randint(10, (1024,))), batch_size=64, shuffle=True)
for epoch in range(3):
    for x, y in data:
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        for x, y in data:
            model(x.cuda())
    model.train()
`

const plantedJAXProgram = `
import jax, jax.numpy as jnp, numpy as np
@jax.jit
def step(w, x):
    loss, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w[0]) @ w[1]) ** 2))(w)
    return loss, [p - 0.1 * g for p, g in zip(w, grad)]
weights = [jnp.ones((1024, 4096)), jnp.ones((4096, 10))]
for i in range(30):
    loss, weights = step(weights, jax.device_put(np.ones((256, 1024), np.float32)))
    jax.block_until_ready(weights)  # what lives at once is no matter of chance
    if i % 10 == 0:
        print(i, loss)
`

// TestPlantedFaults raises an exception where a function of a Python layer begins, one function at a time, of those that the program's run enters: the answer is then the same, or low, or unknown; a
// wrong one is never sure. Every test plants in four of the functions, GRESIZE_NIGHTLY=1 in every fourth, GRESIZE_PLANTED_STEP=1 in all. JAX's layer has its turn in make nightly.
func TestPlantedFaults(t *testing.T) {
	for name, program := range map[string]struct{ python, text, layer string }{
		"PyTorch": {torchtest.Python(t, "2.6.0"), plantedProgram, ""},
		"JAX":     {filepath.Join(torchtest.Cache(), "venv-jax-0.10.2", "bin", "python"), plantedJAXProgram, "gresize_jax"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "JAX" && os.Getenv("GRESIZE_NIGHTLY") == "" {
				t.Skip("run by make nightly")
			}
			path := filepath.Join(t.TempDir(), "train.py")
			if err := os.WriteFile(path, []byte(program.text), 0o644); err != nil {
				t.Fatal(err)
			}
			tr := newTrial(t, hear(t, ""), withNothing, program.python, path)
			if name == "JAX" { // XLA gives memory back when its threads come to it, so no two runs are the same to the byte
				tr.sound.ComfortableBytes -= 1 << 20
				tr.sound.ComfortableHighBytes -= 1 << 20
			}
			var entered []string
			for _, seam := range seamsOf(t) {
				file, first, _, _, _ := place(seam)
				call := fmt.Sprintf("%s:%d:", file, first)
				if strings.HasPrefix(file, program.layer) && slices.ContainsFunc(tr.heard, func(line string) bool { return strings.HasPrefix(line, call) }) {
					entered = append(entered, seam)
				}
			}
			tr.each(entered, 4, func(seam string) { tr.judge(seam, tr.library(func(lib string) { plant(t, lib, seam) })) })
		})
	}
}

// hear has a copy of the library note the calls of its functions, or raise in one of them.
func hear(t *testing.T, call string) func(lib string) {
	return func(lib string) {
		path := filepath.Join(lib, "python", "sitecustomize.py")
		own, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, slices.Concat([]byte(hearCalls), own), 0o644)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(lib, "python", "plant"), []byte(call), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// seamsOf are the functions of the layers.
func seamsOf(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("python3", "-c", listSeams, "../../build/lib/python").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func place(seam string) (file string, first, line, column int, err error) {
	_, err = fmt.Sscan(seam, &file, &first, &line, &column)
	return file, first, line, column, err
}

// plant puts an exception at the beginning of one function, which says that it was reached.
func plant(t *testing.T, lib, seam string) {
	t.Helper()
	file, _, line, column, err := place(seam)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(lib, "python", file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	mark := fmt.Sprintf("_os = __import__('os'); _os.write(_os.open(%q, _os.O_WRONLY | _os.O_CREAT | _os.O_APPEND), b'planted\\n'); raise RuntimeError('planted')\n", marksPath(lib))
	lines[line-1] = strings.Repeat(" ", column) + mark + lines[line-1]
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
