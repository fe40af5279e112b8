package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// listSeams prints where each function of the Python layer begins: its file, its name, the line and the column of its first statement.
const listSeams = `
import ast, pathlib, sys
root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*.py")):
    def visit(node, name):
        for child in ast.iter_child_nodes(node):
            inner = name + "." + child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else name
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) and child.body[0].lineno > child.lineno:
                print(path.relative_to(root), inner.lstrip("."), child.body[0].lineno, child.body[0].col_offset)
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

// TestPlantedFaults raises an exception where a function of the Python layer begins, one function at a time: the answer is then the same, or low, or unknown; a wrong one is never sure. Every test plants in eight of the functions, GRESIZE_NIGHTLY=1 in every fourth, GRESIZE_PLANTED_STEP=1 in all.
func TestPlantedFaults(t *testing.T) {
	python := torchtest.Python(t, "2.6.0")
	lib, err := filepath.Abs("../../build/lib")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "-c", listSeams, filepath.Join(lib, "python", "gresize_vgpu")).Output()
	if err != nil {
		t.Fatal(err)
	}
	seams := strings.Split(strings.TrimSpace(string(out)), "\n")
	step := len(seams) / 8
	if os.Getenv("GRESIZE_NIGHTLY") != "" {
		step = 4
	}
	if n, err := strconv.Atoi(os.Getenv("GRESIZE_PLANTED_STEP")); err == nil && n > 0 {
		step = n
	}
	program := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(program, []byte(plantedProgram), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "gresize")
	if text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, text)
	}
	ask := func(lib string) (e estimator.Estimate, text string) {
		cmd := exec.CommandContext(t.Context(), binary, "estimate", "--json", "--budget", "60s", "--", python, program)
		cmd.Env = append(os.Environ(), "GRESIZE_LIBDIR="+lib)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, _ := cmd.Output() // the exit status is that of the answer
		if err := json.Unmarshal(out, &e); err != nil {
			return e, string(out) + stderr.String()
		}
		return e, ""
	}
	sound, text := ask(lib)
	largest, ok := sound.Largest()
	if !ok || sound.Confidence != estimator.Exact && sound.Confidence != estimator.High {
		t.Fatalf("without a fault: %s %+v %s", sound.Confidence, sound.Reasons, text)
	}
	places := make(chan struct{}, 2)
	var wait sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	for i := 0; i < len(seams); i += step {
		wait.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			got, text := ask(planted(t, lib, seams[i]))
			now, _ := got.Largest()
			same := now.ComfortableBytes >= largest.ComfortableBytes && now.ComfortableHighBytes >= largest.ComfortableHighBytes
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%s: %s", seams[i], got.Confidence)
			switch {
			case text != "":
				t.Errorf("%s: no answer: %.500s", seams[i], text)
			case got.Confidence == estimator.Low || got.Confidence == estimator.Unknown:
				counts[string(got.Confidence)]++
			case same:
				counts["as without"]++
			default:
				t.Errorf("%s: %s, %d to %d bytes, and it is %d to %d", seams[i], got.Confidence, now.ComfortableBytes, now.ComfortableHighBytes, largest.ComfortableBytes, largest.ComfortableHighBytes)
			}
		})
	}
	wait.Wait()
	t.Logf("%d functions, every %d-th planted: %v", len(seams), step, counts)
}

// planted is the library with an exception at the beginning of one function.
func planted(t *testing.T, lib, seam string) string {
	t.Helper()
	var file, name string
	var line, column int
	if _, err := fmt.Sscan(seam, &file, &name, &line, &column); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(lib)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "python", "gresize_vgpu", file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	lines[line-1] = strings.Repeat(" ", column) + "raise RuntimeError('planted')\n" + lines[line-1]
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
