// Package manifest holds, per PyTorch release, which symbols of which NVIDIA
// library that release asks the dynamic linker for. The stub libraries of the
// virtual GPU are generated from the union over all releases.
package manifest

import (
	"embed"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"

	"github.com/gresize/gresize/internal/strictjson"
)

// Library is one NVIDIA library as one PyTorch release uses it.
type Library struct {
	// Node is the symbol version that the release binds to, empty when the library is unversioned.
	Node string `json:"node"`
	// Symbols are the undefined symbols that the release expects there, sorted.
	Symbols []string `json:"symbols"`
}

// Manifest is one PyTorch release.
type Manifest struct {
	Torch     string             `json:"torch"`
	CUDA      string             `json:"cuda"`
	Packages  map[string]string  `json:"packages"`  // pinned nvidia packages by name
	Libraries map[string]Library `json:"libraries"` // by SONAME
}

//go:embed *.json
var files embed.FS

// maxFileBytes bounds a manifest: the largest of the tree has a two-hundredth of it.
const maxFileBytes = 4 << 20

var (
	symbolName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)
	libraryName = regexp.MustCompile(`^lib[A-Za-z0-9_-]+\.so(\.[0-9]+)*$`)
)

// All returns every manifest of the tree, sorted by file name. They are read once; nobody may change them.
func All() ([]Manifest, error) { return all() }

var all = sync.OnceValues(readAll)

func readAll() ([]Manifest, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var list []Manifest
	for _, e := range entries {
		data, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		m, err := Parse(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		list = append(list, m)
	}
	return list, nil
}

// Parse reads one manifest strictly: its names become C source, so nothing but plain names passes.
func Parse(data []byte) (Manifest, error) {
	var m Manifest
	if err := strictjson.Unmarshal(data, maxFileBytes, &m); err != nil {
		return m, err
	}
	if m.Torch == "" || m.CUDA == "" || len(m.Libraries) == 0 {
		return m, fmt.Errorf("torch, cuda and libraries must not be empty")
	}
	for soname, lib := range m.Libraries {
		if !libraryName.MatchString(soname) {
			return m, fmt.Errorf("libraries: %q is no SONAME", soname)
		}
		if lib.Node != "" && !libraryName.MatchString(lib.Node) && !symbolName.MatchString(lib.Node) {
			return m, fmt.Errorf("libraries.%s.node: %q is no version node", soname, lib.Node)
		}
		for _, s := range lib.Symbols {
			if !symbolName.MatchString(s) {
				return m, fmt.Errorf("libraries.%s.symbols: %q is no symbol", soname, s)
			}
		}
	}
	return m, nil
}

// Format writes m with one symbol a line, so that a change of release is a readable diff.
func Format(m Manifest) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n\"torch\": %q,\n\"cuda\": %q,\n\"packages\": {", m.Torch, m.CUDA)
	for i, name := range sortedKeys(m.Packages) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n%q: %q", name, m.Packages[name])
	}
	b.WriteString("\n},\n\"libraries\": {")
	for i, soname := range sortedKeys(m.Libraries) {
		if i > 0 {
			b.WriteByte(',')
		}
		lib := m.Libraries[soname]
		fmt.Fprintf(&b, "\n%q: {\"node\": %q, \"symbols\": [", soname, lib.Node)
		for k, s := range lib.Symbols {
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "\n%q", s)
		}
		b.WriteString("\n]}")
	}
	b.WriteString("\n}\n}\n")
	return []byte(b.String())
}

// Union merges the libraries of all manifests: one stub per SONAME then serves every release. Two releases that
// bind the same SONAME to different version nodes cannot share a stub, which is an error.
func Union(all []Manifest) (map[string]Library, error) {
	symbols := map[string]map[string]bool{}
	union := map[string]Library{}
	for _, m := range all {
		for soname, lib := range m.Libraries {
			merged, seen := union[soname]
			switch {
			case !seen, merged.Node == "":
				merged.Node = lib.Node
			case lib.Node != "" && lib.Node != merged.Node:
				return nil, fmt.Errorf("%s: version nodes %q and %q", soname, merged.Node, lib.Node)
			}
			union[soname] = merged
			if symbols[soname] == nil {
				symbols[soname] = map[string]bool{}
			}
			for _, s := range lib.Symbols {
				symbols[soname][s] = true
			}
		}
	}
	for soname, lib := range union {
		lib.Symbols = sortedKeys(symbols[soname])
		union[soname] = lib
	}
	return union, nil
}

var wheelHash = regexp.MustCompile(`-[0-9a-f]{8}$`)

// Base is the name of a library without its version, and without the hash that a wheel may have put into it: libcublas.
func Base(soname string) string {
	base, _, _ := strings.Cut(soname, ".so")
	return wheelHash.ReplaceAllString(base, "")
}

// Widen gives every library of a union the symbols that any release wants of any version of it. A build with another CUDA
// of a known release, and a release between two known ones, then find most of what they ask for.
func Widen(union map[string]Library) {
	symbols := map[string]map[string]bool{}
	for soname, lib := range union {
		base := Base(soname)
		if symbols[base] == nil {
			symbols[base] = map[string]bool{}
		}
		for _, s := range lib.Symbols {
			symbols[base][s] = true
		}
	}
	for soname, lib := range union {
		lib.Symbols = sortedKeys(symbols[Base(soname)])
		union[soname] = lib
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
