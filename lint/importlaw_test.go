// Package lint holds the laws of the house as tests: who may import whom, one comment for each package, short files.
package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gresize/gresize"

// heavy are the dependencies that one package each owns, tests included. A prefix of the import path stands for all below it.
var heavy = map[string][]string{
	"github.com/BurntSushi/toml":       {"daemon/config"},
	"github.com/mattn/go-sqlite3":      {"daemon/decisionlog"},
	"github.com/coreos/go-systemd/v22": {"daemon/systemd"},
	"github.com/spf13/cobra":           {"cmd/gresize", "cmd/gresized", "cmd/gresize-probe", "cmd/gresize-launch", "cmd/gresize-estimator"},
	"github.com/hashicorp":             {"estimator/contract"},
	"google.golang.org":                {"estimator/contract"},
	"github.com/prometheus":            {"daemon/metrics"},
}

// onlyTests are the dependencies that no program may hold: only tests, and the helpers of tests, whose names end in "test".
var onlyTests = []string{"pgregory.net/rapid", "github.com/google/go-cmp", "testing"}

// outside stand beside the house and may use all of it: tools and scratch of its builders, tests of the whole, the demo.
var outside = []string{"build", "e2e", "examples", "lint", "tools"}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func (p goPackage) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var packages []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// row is one line of the table of docs/architecture.md: the packages and what they may import of ours.
type row struct {
	packages, imports []string
	anything          bool
}

var (
	codeWord = regexp.MustCompile("`([^`]+)`")
	tableRow = regexp.MustCompile(`^\|([^|]*)\|([^|]*)\|([^|]*)\|$`)
)

// readLaw reads the table under the heading "Packages". The page that people read is the law that is tested.
func readLaw(t *testing.T) []row {
	t.Helper()
	law := readTable(t, "Packages")
	if len(law) < 10 {
		t.Fatalf("only %d rows read from the table of docs/architecture.md", len(law))
	}
	return law
}

// readTable reads a table of packages and what they may import, under a heading of docs/architecture.md.
func readTable(t *testing.T, heading string) []row {
	t.Helper()
	text, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("docs/architecture.md has no section %s", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var law []row
	for line := range strings.Lines(section) {
		cells := tableRow.FindStringSubmatch(strings.TrimSpace(line))
		if cells == nil || !strings.Contains(cells[1], "`") {
			continue
		}
		law = append(law, row{packages: words(cells[1]), imports: words(cells[3]), anything: strings.TrimSpace(cells[3]) == "everything below"})
	}
	return law
}

func words(cell string) []string {
	var found []string
	for _, m := range codeWord.FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}

// rowOf finds the row that names the package or, nearest first, a folder above it.
func rowOf(law []row, name string) (found row, owner string) {
	for at := name; at != "."; at = path.Dir(at) {
		for _, r := range law {
			for _, p := range r.packages {
				if p == at {
					return r, p
				}
			}
		}
	}
	return row{}, ""
}

// forbidden says why a package of ours may not import another, or is empty.
func forbidden(law []row, from, to string) string {
	r, owner := rowOf(law, from)
	side := func(name string) string { first, _, _ := strings.Cut(name, "/"); return first }
	switch {
	case owner == "":
		return from + " has no row in the table of docs/architecture.md"
	case side(to) == "cmd":
		return "nothing imports cmd"
	case side(to) == "internal":
		return "" // leaves that everyone may use
	case side(from) == "internal", side(from) == "slurm" && side(to) != "slurm", side(from) == "estimator" && side(to) != "estimator":
		return side(from) + " knows nothing of " + side(to)
	case r.anything:
		return ""
	}
	// A package may use what lies below it or beside it under one row.
	for _, allowed := range append([]string{owner}, r.imports...) {
		if to == allowed || strings.HasPrefix(to, allowed+"/") {
			return ""
		}
	}
	return "the row of " + owner + " in docs/architecture.md does not list it"
}

func TestImportLaw(t *testing.T) {
	law := readLaw(t)
	exists := map[string]bool{}
	for _, p := range listPackages(t) {
		for at := p.name(); at != "." && at != ""; at = path.Dir(at) {
			exists[at] = true
		}
		if side, _, _ := strings.Cut(p.name(), "/"); slices.Contains(outside, side) {
			continue
		}
		for _, to := range p.Imports {
			if ours, ok := strings.CutPrefix(to, module+"/"); ok {
				if why := forbidden(law, p.name(), ours); why != "" {
					t.Errorf("%s imports %s: %s", p.name(), ours, why)
				}
			}
			for _, test := range onlyTests {
				if isOrBelow(to, test) && !strings.HasSuffix(p.name(), "test") {
					t.Errorf("%s imports %s outside its tests", p.name(), to)
				}
			}
		}
		if _, owner := rowOf(law, p.name()); owner == "" {
			t.Errorf("%s has no row in the table of docs/architecture.md", p.name())
		}
		// A test may put a system of many packages together, but the two halves stay strangers to each other in their tests too.
		for _, to := range append(p.TestImports, p.XTestImports...) {
			ours, ok := strings.CutPrefix(to, module+"/")
			if !ok {
				continue
			}
			for _, half := range [][2]string{{"slurm/", "estimator"}, {"estimator/", "slurm"}, {"slurm/", "daemon"}, {"estimator/", "daemon"}} {
				if strings.HasPrefix(p.name()+"/", half[0]) && isOrBelow(ours, half[1]) {
					t.Errorf("a test of %s imports %s", p.name(), ours)
				}
			}
		}
		for dependency, owners := range heavy {
			for _, to := range append(append(p.Imports, p.TestImports...), p.XTestImports...) {
				if isOrBelow(to, dependency) && !slices.Contains(owners, p.name()) {
					t.Errorf("%s imports %s, which belongs to %v", p.name(), to, owners)
				}
			}
		}
	}
	for _, r := range law {
		for _, p := range append(r.packages, r.imports...) {
			if !exists[p] {
				t.Errorf("docs/architecture.md has a row about %s, which does not exist", p)
			}
		}
	}
	for dependency, owners := range heavy {
		for _, p := range owners {
			if !exists[p] {
				t.Errorf("%s is said to belong to %s, which does not exist", dependency, p)
			}
		}
	}
}

// TestForbidden keeps the law itself honest: a rule that forbids nothing would pass every tree.
func TestForbidden(t *testing.T) {
	law := []row{
		{packages: []string{"cmd/x"}, anything: true},
		{packages: []string{"daemon/a"}, imports: []string{"estimator", "slurm/wire"}},
		{packages: []string{"slurm/wire"}},
		{packages: []string{"estimator"}},
		{packages: []string{"estimator/vgpu"}, imports: []string{"estimator"}},
		{packages: []string{"internal/leaf"}},
	}
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"cmd/x", "daemon/a", true},
		{"cmd/x", "cmd/y", false},
		{"daemon/a", "slurm/wire", true},
		{"daemon/a", "slurm/client", false},
		{"daemon/a", "daemon/b", false},
		{"slurm/wire", "slurm/wire/vectors", true},
		{"slurm/wire", "slurm/request", false},
		{"slurm/wire", "estimator", false},
		{"estimator/vgpu", "estimator", true},
		{"estimator/vgpu/deep", "estimator/vgpu", true},
		{"estimator/vgpu", "daemon/a", false},
		{"estimator/vgpu", "slurm/wire", false},
		{"estimator/vgpu", "internal/leaf", true},
		{"daemon/a", "internal/leaf", true},
		{"internal/leaf", "estimator", false},
		{"unnamed", "estimator", false},
	} {
		if why := forbidden(law, c.from, c.to); (why == "") != c.allowed {
			t.Errorf("%s imports %s: %q, allowed should be %v", c.from, c.to, why, c.allowed)
		}
	}
}

func isOrBelow(name, prefix string) bool {
	return name == prefix || strings.HasPrefix(name, prefix+"/")
}
