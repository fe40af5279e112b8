package lint

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines is the length above which a file is no longer read in one go.
const maxLines = 700

// treeFiles are the files in git or about to be, by their paths in the repository.
func treeFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return strings.Split(strings.Trim(string(out), "\x00"), "\x00")
}

// sourceFiles are those that people write, by the ends of their names.
func sourceFiles(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var files []string
	for _, name := range treeFiles(t) {
		for _, suffix := range suffixes {
			if strings.HasSuffix(name, suffix) && !strings.Contains(name, "testdata/") {
				files = append(files, name)
			}
		}
	}
	if len(files) == 0 {
		t.Fatalf("no files %v", suffixes)
	}
	return files
}

// read is nil for a file that somebody has just deleted but git still lists.
func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return data
}

func TestOnePackageCommentEach(t *testing.T) {
	comments := map[string][]string{}
	for _, name := range sourceFiles(t, ".go") {
		data := read(t, name)
		if data == nil {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		// The tests of package x in package x_test need no comment of their own.
		key := filepath.Dir(name) + " " + strings.TrimSuffix(file.Name.Name, "_test")
		if _, seen := comments[key]; !seen {
			comments[key] = nil
		}
		if file.Doc != nil {
			comments[key] = append(comments[key], name)
			if want := "Package " + file.Name.Name + " "; file.Name.Name != "main" && !strings.HasPrefix(file.Doc.Text(), want) {
				t.Errorf("%s: the package comment does not begin with %q", name, want)
			}
		}
	}
	for key, where := range comments {
		if len(where) != 1 {
			t.Errorf("package %s has %d package comments %v, not one", key, len(where), where)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, name := range sourceFiles(t, ".go", ".c", ".h", ".py", ".sh") {
		data := read(t, name)
		if bytes.Contains(data[:min(len(data), 400)], []byte("Code generated")) {
			continue
		}
		if lines := bytes.Count(data, []byte("\n")); lines > maxLines {
			t.Errorf("%s has %d lines, more than %d: split it by what its parts do", name, lines, maxLines)
		}
	}
}
