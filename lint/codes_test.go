package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// codeHomes are the packages whose constants are the codes that bundles, logs and answers keep.
var codeHomes = []string{"estimator", "daemon/decision", "slurm/request", "slurm/wire"}

// programFiles are the Go files that are no tests, by name.
func programFiles(t *testing.T, set *token.FileSet) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	for _, name := range sourceFiles(t, ".go") {
		data := read(t, name)
		if strings.HasSuffix(name, "_test.go") || data == nil {
			continue
		}
		file, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	return files
}

// constants calls back for each string constant of a file with its name.
func constants(file *ast.File, found func(name, text string, at *ast.BasicLit)) {
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			values := spec.(*ast.ValueSpec)
			for i, v := range values.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, _ := strconv.Unquote(lit.Value)
					found(values.Names[i].Name, text, lit)
				}
			}
		}
	}
}

// TestCodesHaveOneHome: a code is written out once, where it is declared. Another constant of the same text, such as how a job ended, is a word of its own.
func TestCodesHaveOneHome(t *testing.T) {
	set := token.NewFileSet()
	files := programFiles(t, set)
	home, declared := map[string]string{}, map[*ast.BasicLit]bool{}
	for name, file := range files {
		constants(file, func(constant, text string, at *ast.BasicLit) {
			declared[at] = true
			if (strings.HasPrefix(constant, "Code") || strings.HasPrefix(constant, "Skip")) && slices.Contains(codeHomes, path.Dir(name)) && strings.Contains(text, "_") {
				if first := home[text]; first != "" && path.Dir(name) == path.Dir(strings.SplitN(first, ":", 2)[0]) {
					t.Errorf("%s: %q is declared at %s already", set.Position(at.Pos()), text, first)
				}
				home[text] = set.Position(at.Pos()).String()
			}
		})
	}
	if len(home) < 100 {
		t.Fatalf("only %d codes were found", len(home))
	}
	for name, file := range files {
		if strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "estimator/snapshot/") {
			continue // what PyTorch calls its fields; a plugin of somebody else's
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !declared[lit] {
				if text, _ := strconv.Unquote(lit.Value); home[text] != "" {
					t.Errorf("%s: %q is a code: name the constant of %s", set.Position(lit.Pos()), text, home[text])
				}
			}
			return true
		})
	}
}
