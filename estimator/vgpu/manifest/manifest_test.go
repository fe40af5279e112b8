package manifest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryManifestIsInItsFormAndCompletes(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 3 {
		t.Fatalf("%d manifests, want at least those of 2.6.0, 2.11.0 and 2.15.0", len(all))
	}
	for _, m := range all {
		again, err := Parse(Format(m))
		if err != nil {
			t.Fatalf("%s: %v", m.Torch, err)
		}
		if diff := cmp.Diff(m, again); diff != "" {
			t.Errorf("%s: Format then Parse changed it:\n%s", m.Torch, diff)
		}
		name := "torch-" + m.Torch + "-cu" + strings.ReplaceAll(m.CUDA, ".", "") + ".json"
		data, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(data) != string(Format(m)) {
			t.Errorf("%s is not as generate writes it", name)
		}
		for soname, lib := range m.Libraries {
			if !slices.IsSorted(lib.Symbols) {
				t.Errorf("%s: %s: symbols are not sorted", name, soname)
			}
		}
		if m.Packages["nvidia-cudnn-cu11"] == "" && m.Packages["nvidia-cudnn-cu12"] == "" && m.Packages["nvidia-cudnn-cu13"] == "" {
			t.Errorf("%s pins no cuDNN", name)
		}
	}
}

func TestUnionHoldsEverySymbolOfEveryRelease(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	union, err := Union(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		for soname, lib := range m.Libraries {
			merged, ok := union[soname]
			if !ok {
				t.Fatalf("%s of PyTorch %s is not in the union", soname, m.Torch)
			}
			if lib.Node != "" && merged.Node != lib.Node {
				t.Errorf("%s: node %q, PyTorch %s binds to %q", soname, merged.Node, m.Torch, lib.Node)
			}
			for _, s := range lib.Symbols {
				if _, found := slices.BinarySearch(merged.Symbols, s); !found {
					t.Errorf("%s of PyTorch %s is not in the union of %s", s, m.Torch, soname)
				}
			}
		}
	}
}

// A build with CUDA 11 of a release that was only seen with CUDA 12 finds the symbols of that release.
func TestWidenGivesEveryVersionOfALibraryTheSameSymbols(t *testing.T) {
	union := map[string]Library{
		"libx.so.11":         {Node: "libx.so.11", Symbols: []string{"a", "b"}},
		"libx.so.12":         {Node: "libx.so.12", Symbols: []string{"b", "c"}},
		"libxLt.so.12":       {Symbols: []string{"d"}},
		"libxLt-0a1b2c3d.so": {Symbols: []string{"e"}},
	}
	Widen(union)
	want := map[string]Library{
		"libx.so.11":         {Node: "libx.so.11", Symbols: []string{"a", "b", "c"}},
		"libx.so.12":         {Node: "libx.so.12", Symbols: []string{"a", "b", "c"}},
		"libxLt.so.12":       {Symbols: []string{"d", "e"}},
		"libxLt-0a1b2c3d.so": {Symbols: []string{"d", "e"}},
	}
	if diff := cmp.Diff(want, union); diff != "" {
		t.Error(diff)
	}
}

func TestUnionRefusesTwoNodesForOneLibrary(t *testing.T) {
	lib := func(node string) Manifest {
		return Manifest{Libraries: map[string]Library{"libx.so.1": {Node: node, Symbols: []string{"f"}}}}
	}
	if _, err := Union([]Manifest{lib("A"), lib("")}); err != nil {
		t.Errorf("one node and none: %v", err)
	}
	if _, err := Union([]Manifest{lib("A"), lib("B")}); err == nil {
		t.Error("two nodes were merged")
	}
}

func TestParseRefusesWhatIsNoName(t *testing.T) {
	const form = `{"torch":"1","cuda":"1","packages":{},"libraries":{%LIB%:{"node":%NODE%,"symbols":[%SYMBOL%]}}}`
	for _, c := range []struct{ name, lib, node, symbol string }{
		{"a path as SONAME", `"../libx.so.1"`, `""`, `"f"`},
		{"C in a symbol", `"libx.so.1"`, `""`, `"f(void){} int g"`},
		{"a node with a brace", `"libx.so.1"`, `"X { global: *; }"`, `"f"`},
		{"an empty symbol", `"libx.so.1"`, `""`, `""`},
	} {
		text := strings.NewReplacer("%LIB%", c.lib, "%NODE%", c.node, "%SYMBOL%", c.symbol).Replace(form)
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
	if _, err := Parse([]byte(`{"torch":"1","cuda":"1","libraries":{"libx.so.1":{}},"extra":1}`)); err == nil {
		t.Error("an unknown key was accepted")
	}
}
