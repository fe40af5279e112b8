package lint

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pythonLayers is what pythonlaw.py reads: who imports whom, and names that lead nowhere.
type pythonLayers struct {
	Modules []string
	Imports []struct{ From, To, At string }
	Faults  []string
}

func readPython(t *testing.T, folders ...string) pythonLayers {
	t.Helper()
	for _, folder := range append(folders, "pythonlaw.py") { // what another program reads, the cache of go test does not know
		if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".py") {
				_, err = os.ReadFile(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("python3", append([]string{"-I", "pythonlaw.py"}, folders...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("pythonlaw.py: %v %s", err, out)
	}
	var layers pythonLayers
	if err := json.Unmarshal(out, &layers); err != nil {
		t.Fatal(err)
	}
	return layers
}

// packageOf is the row of the table that a module belongs to: gresize_vgpu.values.patches is of values, gresize_jax.watch of gresize_jax.
func packageOf(module string) string {
	parts := strings.Split(module, ".")
	if parts[0] == "gresize_vgpu" && len(parts) > 1 {
		return parts[1]
	}
	return parts[0]
}

// aboveAll start the layers, and belowAll are what each of them may use.
var aboveAll, belowAll = []string{"sitecustomize", "gresize_vgpu"}, []string{"gresize_imports", "gresize_types"}

// circle finds a way from a node back to itself.
func circle(edges map[string][]string) []string {
	const entered, left = 1, 2
	state := map[string]int{}
	var way []string
	var visit func(string) []string
	visit = func(at string) []string {
		switch state[at] {
		case entered:
			return append(slices.Clone(way[slices.Index(way, at):]), at)
		case left:
			return nil
		}
		state[at] = entered
		way = append(way, at)
		for _, to := range edges[at] {
			if found := visit(to); found != nil {
				return found
			}
		}
		way = way[:len(way)-1]
		state[at] = left
		return nil
	}
	for at := range edges {
		if found := visit(at); found != nil {
			return found
		}
	}
	return nil
}

// TestPythonLaw holds the table of docs/architecture.md for the Python layers: imports point one way, each that a row allows is needed, and no name leads nowhere.
func TestPythonLaw(t *testing.T) {
	law := map[string][]string{}
	for _, r := range readTable(t, "The Python layer") {
		for _, name := range r.packages {
			law[name] = r.imports
		}
	}
	if len(law) < 8 {
		t.Fatalf("%d rows of packages", len(law))
	}
	layers := readPython(t, "../estimator/vgpu/python", "../offload/python")
	if len(layers.Modules) < 40 || len(layers.Imports) < 100 {
		t.Fatalf("%d modules with %d imports were read", len(layers.Modules), len(layers.Imports))
	}
	for _, fault := range layers.Faults {
		t.Error(fault)
	}
	modules, used := map[string][]string{}, map[string]bool{}
	for _, i := range layers.Imports {
		if !slices.Contains(modules[i.From], i.To) {
			modules[i.From] = append(modules[i.From], i.To)
		}
		from, to := packageOf(i.From), packageOf(i.To)
		if from == to || slices.Contains(belowAll, to) || slices.Contains(aboveAll, from) {
			continue
		}
		used[from+" "+to] = true
		if row, ok := law[from]; !ok {
			t.Errorf("%s: %s has no row in the table of docs/architecture.md", i.At, from)
		} else if !slices.Contains(row, to) {
			t.Errorf("%s: %s may not import %s", i.At, from, to)
		}
	}
	if way := circle(modules); way != nil {
		t.Errorf("modules import in a circle: %s", strings.Join(way, " → "))
	}
	if way := circle(law); way != nil {
		t.Errorf("the table allows a circle: %s", strings.Join(way, " → "))
	}
	for from, row := range law {
		if !slices.ContainsFunc(layers.Modules, func(m string) bool { return packageOf(m) == from }) {
			t.Errorf("the table has %s, and there is no such package", from)
		}
		for _, to := range row {
			if !used[from+" "+to] {
				t.Errorf("%s may import %s, and does not", from, to)
			}
		}
	}
}

// TestPythonLawFinds plants what the law forbids.
func TestPythonLawFinds(t *testing.T) {
	faults := strings.Join(readPython(t, "testdata/pythonlaw").Faults, "\n")
	for _, want := range []string{
		"broken/__init__.py:1: a package says in one sentence what it owns",
		"broken/uses.py:2: broken has no gone",
		"broken/uses.py:3: broken.has has no LOST",
		"broken/uses.py:7: broken.has has no gone",
		"broken/uses.py:11: has hides the module of that name",
		"nothing is called absent",
		"broken/uses.py:10: function has no types for value, its result",
	} {
		if !strings.Contains(faults, want) {
			t.Errorf("not found: %s\nin:\n%s", want, faults)
		}
	}
	if n := strings.Count(faults, "\n") + 1; n != 7 {
		t.Errorf("%d faults:\n%s", n, faults)
	}
	if way := circle(map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}); len(way) != 3 {
		t.Errorf("circle: %v", way)
	}
	if way := circle(map[string][]string{"a": {"b", "c"}, "b": {"c"}}); way != nil {
		t.Errorf("no circle: %v", way)
	}
}
