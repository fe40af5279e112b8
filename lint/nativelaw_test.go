package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const nativeFolder = "../estimator/vgpu/native"

var (
	nativeOrder   = regexp.MustCompile(`(?m)^CORE := \$\(addprefix \$\(NATIVE\)/,([a-z_. ]+)\)$`)
	nativeComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	// A function begins in the first column and its brace is alone on the next line; a variable that others see is a hook.
	nativeDefined = regexp.MustCompile(`(?m)^(?:GV_EXPORT )?(?:[a-z][\w* ]*[ *])((?:gv|gresize)_\w+)\([^;\n]*\)\n\{|^void \(\*((?:gv|gresize)_\w+)\)\(void\);`)
	nativeName    = regexp.MustCompile(`\b(?:gv|gresize)_\w+`)
)

// TestNativeLaw holds the order of the files of libgresize-vgpu.so, as the Makefile has it: a file calls itself and those before it, and no stub reaches into their state.
func TestNativeLaw(t *testing.T) {
	makefile, err := os.ReadFile("../estimator/vgpu/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := nativeOrder.FindSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile of estimator/vgpu has no line CORE")
	}
	order := strings.Fields(string(line[1]))
	texts, owner := map[string]string{}, map[string]string{}
	files, err := filepath.Glob(nativeFolder + "/*.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		texts[name] = nativeComment.ReplaceAllString(string(text), "")
		if !slices.Contains(order, name) {
			if strings.Contains(texts[name], `"state.h"`) {
				t.Errorf("%s includes state.h, which is of libgresize-vgpu.so alone", name)
			}
			continue
		}
		for _, m := range nativeDefined.FindAllStringSubmatch(texts[name], -1) {
			owner[m[1]+m[2]] = name
		}
	}
	if len(owner) < 60 {
		t.Fatalf("%d functions were found in %v", len(owner), order)
	}
	uses := 0
	for at, name := range order {
		for _, used := range nativeName.FindAllString(texts[name], -1) {
			of, ok := owner[used]
			if !ok || of == name {
				continue
			}
			uses++
			if slices.Index(order, of) > at {
				t.Errorf("%s uses %s of %s, which comes after it", name, used, of)
			}
		}
	}
	if uses < 30 {
		t.Errorf("%d uses from file to file were found", uses)
	}
}
