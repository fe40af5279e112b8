package estimator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestEveryReasonHasWordsAndEveryWordAReason(t *testing.T) {
	page, err := os.ReadFile("../docs/estimate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Reasons\n")
	table, _, _ = strings.Cut(table, "\n## ")
	explained := map[string]bool{}
	for line := range strings.Lines(table) {
		if m := regexp.MustCompile("^\\| `([a-z_]+)` \\|").FindStringSubmatch(line); m != nil {
			explained[m[1]] = true
			if meanings[m[1]].text == "" {
				t.Errorf("%s has no words", m[1])
			}
		}
	}
	for code := range meanings {
		if !explained[code] {
			t.Errorf("docs/estimate.md does not explain %s", code)
		}
	}
	constants := codeConstants(t)
	if len(constants) < 60 {
		t.Errorf("%d constants were found", len(constants))
	}
	for name, code := range constants {
		if meanings[code].text == "" {
			t.Errorf("%s (%s) has no sentence among the meanings", name, code)
		}
	}
}

// codeConstants are the constants Code… of reasons.go.
func codeConstants(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reasons.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") || len(spec.Values) != 1 {
			return true
		}
		if text, ok := spec.Values[0].(*ast.BasicLit); ok {
			if code, err := strconv.Unquote(text.Value); err == nil {
				found[spec.Names[0].Name] = code
			}
		}
		return false
	})
	return found
}

func TestWordsOfAReason(t *testing.T) {
	for _, c := range []struct {
		reason        Reason
		words, hinted string
	}{
		{Reason{Code: "no_torch"}, "neither PyTorch nor JAX was seen [no_torch]", "neither PyTorch nor JAX was seen [no_torch]"},
		{Reason{Code: "budget_spent", Detail: "120 s"}, "the run was ended before enough was seen: 120 s [budget_spent]", "the run was ended before enough was seen; --budget gives it more time: 120 s [budget_spent]"},
		{Reason{Code: "of_a_plugin", Detail: "so it says"}, "of_a_plugin: so it says", "of_a_plugin: so it says"},
		{Reason{Code: "of_a_plugin"}, "of_a_plugin", "of_a_plugin"},
	} {
		if got := c.reason.Words(); got != c.words {
			t.Errorf("%q, want %q", got, c.words)
		}
		if got := c.reason.WordsWithHint(); got != c.hinted {
			t.Errorf("%q, want %q", got, c.hinted)
		}
	}
}
