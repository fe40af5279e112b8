package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decoderName begins the names of functions that read what others wrote.
var decoderName = regexp.MustCompile(`^(Parse|Decode|Read|Load|Unpack|Unmarshal|Scan|Open)([A-Z]\w*)?$`)

// throughOthers name the fuzz target of the same package that reads the same input without the file, the folder or the bundle around it; in two words, another package's.
var throughOthers = map[string]string{
	"daemon/config.Read":                         "FuzzParse",
	"daemon/epilog.ScanAs":                       "FuzzMemoryLine",
	"daemon/epilog.ScanFile":                     "FuzzMemoryLine",
	"daemon/site.Load":                           "FuzzSite",
	"estimator/allocator/replay.Open":            "FuzzOracle",
	"estimator/methods/cpuprofile.ReadProcesses": "FuzzParseReport",
	"estimator/methods/cpuprofile/rebuilt.Open":  "estimator/methods/xmem FuzzEstimate",
	"estimator/eval.ReadTable":                   "FuzzReadTable",
	"estimator/methods/faketensor.ReadRun":       "FuzzParse",
	"estimator/gpu.Load":                         "FuzzParse",
	"estimator/gpu.ParseFile":                    "FuzzParse",
	"estimator/gpu/calibration.ReadResults":      "FuzzReadRows",
	"estimator/snapshot.ParseAction":             "FuzzRead",
	"estimator/analysis/timeline.Read":           "estimator/trace/events FuzzRead",
	"estimator/trace.Read":                       "FuzzRead",
	"estimator/trace.ReadFile":                   "FuzzRead",
	"estimator/trace.ReadRegular":                "FuzzRead",
	"estimator/vgpu.ReadReports":                 "FuzzReports",
}

// notDecoders look like decoders and are none.
var notDecoders = map[string]string{
	"daemon/decisionlog.Open":         "SQLite reads the file; TestDamagedFileIsMovedAside damages it",
	"daemon/decisionlog.OpenReadOnly": "SQLite reads the file; TestDamagedFileIsMovedAside damages it",
	"internal/regular.Open":           "no byte of the file is read",
	"internal/regular.OpenFile":       "no byte of the file is read",
}

// TestEachDecoderHasAFuzzTarget: an exported function that takes bytes, text, a reader or the name of a file and is named like a decoder is called in the body of a fuzz target, or of a helper
// of one, in its own package. So is whatever of the C of this house reads what others wrote.
func TestEachDecoderHasAFuzzTarget(t *testing.T) {
	decoders := 0
	for _, p := range listPackages(t) {
		dir := filepath.Join("..", filepath.FromSlash(p.name()))
		if strings.HasPrefix(p.name(), "cmd/") || strings.HasPrefix(p.name(), "e2e") || strings.HasPrefix(p.name(), "tools/") || strings.HasSuffix(p.name(), "test") {
			continue
		}
		exported, fuzzed := decodersOf(t, dir), fuzzText(t, dir)
		for _, name := range exported {
			decoders++
			if _, known := notDecoders[p.name()+"."+name]; known {
				continue
			}
			if other, known := throughOthers[p.name()+"."+name]; known {
				where, text := dir, fuzzed
				if folder, target, apart := strings.Cut(other, " "); apart {
					where, other = filepath.Join("..", folder), target
					text = fuzzText(t, where)
				}
				if !strings.Contains(text, "func "+other+"(") {
					t.Errorf("%s.%s: there is no %s in %s", p.name(), name, other, where)
				}
				continue
			}
			if !regexp.MustCompile(`\b` + name + `\(`).MatchString(fuzzed) {
				t.Errorf("%s.%s reads what others wrote, and no fuzz target of its package calls it", p.name(), name)
			}
		}
	}
	if decoders < 30 {
		t.Errorf("%d decoders were found", decoders)
	}
}

// decodersOf names the exported functions of a folder that look like decoders.
func decodersOf(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for _, file := range parsed(t, dir, false) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !decoderName.MatchString(f.Name.Name) || f.Recv != nil || !takesInput(f.Type) {
				continue
			}
			names = append(names, f.Name.Name)
		}
	}
	return names
}

func takesInput(f *ast.FuncType) bool {
	return slices.ContainsFunc(f.Params.List, func(field *ast.Field) bool {
		switch text := fmt.Sprint(typeText(field.Type)); text {
		case "[]byte", "string", "io.Reader", "io.ReaderAt", "[]string":
			return true
		}
		return false
	})
}

func typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.ArrayType:
		return "[]" + typeText(e.Elt)
	case *ast.SelectorExpr:
		return typeText(e.X) + "." + e.Sel.Name
	}
	return ""
}

// fuzzText is the text of all fuzz targets of a folder, with what they call in its tests.
func fuzzText(t *testing.T, dir string) string {
	t.Helper()
	bodies, targets := map[string]string{}, []string{}
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				bodies[f.Name.Name] = string(source[files.Position(f.Pos()).Offset:files.Position(f.End()).Offset])
				if strings.HasPrefix(f.Name.Name, "Fuzz") {
					targets = append(targets, f.Name.Name)
				}
			}
		}
	}
	var text strings.Builder
	for _, target := range targets {
		text.WriteString(bodies[target])
		for name, body := range bodies {
			if name != target && regexp.MustCompile(`\b`+name+`\(`).MatchString(bodies[target]) {
				text.WriteString(body)
			}
		}
	}
	return text.String()
}

func parsed(t *testing.T, dir string, tests bool) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}
