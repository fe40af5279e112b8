package main

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator/vgpu/manifest"
)

func readRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("../answers.txt")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := parseRules(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func readPublic(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../public.txt")
	if err != nil {
		t.Fatal(err)
	}
	public, err := parsePublic(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return public
}

func unionOfAll(t *testing.T) map[string]manifest.Library {
	t.Helper()
	all, err := manifest.All()
	if err != nil {
		t.Fatal(err)
	}
	union, err := manifest.Union(all)
	if err != nil {
		t.Fatal(err)
	}
	return union
}

// A rule that decides nothing is stale, or hidden behind an earlier one.
func TestEveryRuleDecidesSomething(t *testing.T) {
	rules, public := readRules(t), readPublic(t)
	decided := map[string]bool{}
	for soname, lib := range unionOfAll(t) {
		library, _, _ := strings.Cut(soname, ".so")
		for _, symbol := range append(slices.Clone(lib.Symbols), public[library]...) {
			if r, ok := match(rules, soname, symbol); ok {
				decided[r.library+" "+r.pattern] = true
			}
		}
	}
	for _, r := range rules {
		if !decided[r.library+" "+r.pattern] {
			t.Errorf("the rule %s %s matches no symbol of its own", r.library, r.pattern)
		}
	}
}

// A size that stays unwritten once asked for 130 TB: every query of a buffer size must have an out-parameter, C code, or be counted.
func TestEveryBufferSizeIsAnswered(t *testing.T) {
	rules := readRules(t)
	for soname, lib := range unionOfAll(t) {
		if !strings.HasPrefix(soname, "libcusolver.") && !strings.HasPrefix(soname, "libcusparse.") {
			continue
		}
		for _, symbol := range lib.Symbols {
			if ok, _ := path.Match("*[bB]ufferSize*", symbol); !ok {
				continue
			}
			if r, _ := match(rules, soname, symbol); len(r.outs) == 0 {
				t.Errorf("%s:%s has no out-parameter", soname, symbol)
			}
		}
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct{ name, line, complaint string }{
		{"too short", "libx f", "KIND"},
		{"unknown kind", "libx f maybe", "unknown kind"},
		{"bad index", "libx f inert out 99 int 1", "parameter index"},
		{"bad type", "libx f inert out 1 float 1", "unknown type"},
		{"C as value", "libx f inert out 1 int system(0)", "neither a number nor a parameter"},
		{"left over", "libx f inert out 1 int", "is no OUT"},
	} {
		if _, err := parseRules("# comment\n" + c.line); err == nil || !strings.Contains(err.Error(), c.complaint) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v, want a complaint about line 2 with %q", c.name, err, c.complaint)
		}
	}
}

func TestGeneratedSource(t *testing.T) {
	rules, err := parseRules("libx size_* solver out 3 int 64*a1+A2\nlibx go_* launch\nlibx set_* inert\nlibx make inert out 0 handle 0")
	if err != nil {
		t.Fatal(err)
	}
	text := source("libx.so.1", manifest.Library{Symbols: []string{"go_on", "make", "odd", "set_it", "size_of"}}, nil, rules)
	for _, want := range []string{
		"GV_EXPORT long go_on(void)\n{\n\tgv_launched();\n\treturn 0;\n}",
		"GV_EXPORT long set_it(void)\n{\n\treturn 0;\n}",
		"*(void **)p0 = gv_new(0);",
		"static struct gv_unanswered symbol = {\"odd\", 0, 0};",
		"long size_of(void *p0, void *p1, void *p2, void *p3)",
		"*(int *)p3 = (int)(64 * (int64_t)(int32_t)(intptr_t)p1 + (int64_t)(intptr_t)p2);",
		"gv_bounded(GV_BOUND_SOLVER",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the source lacks %q:\n%s", want, text)
		}
	}
}

func TestPublicNames(t *testing.T) {
	for _, bad := range []string{"libcuda", "libcuda cuInit more", "libcuda a-b", `libcuda x"y`, "libcuda 1x"} {
		if _, err := parsePublic("# names\n" + bad + "\n"); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	text := source("libcuda.so.1", manifest.Library{Symbols: []string{"cuInit"}}, map[string][]string{"libcuda": {"cuFoo", "cuInit", "cuCtxBar"}, "libcudart": {"cudaFoo"}},
		[]rule{{library: "libcuda", pattern: "cuCtx*", kind: "inert"}})
	for symbol, attributes := range map[string]string{"cuInit": "weak", "cuFoo": `weak, section("gv_default")`, "cuCtxBar": "weak"} {
		if strings.Count(text, "__attribute__(("+attributes+")) GV_EXPORT long "+symbol+"(void)\n") != 1 {
			t.Errorf("%s is not there once with %s:\n%s", symbol, attributes, text)
		}
	}
	if strings.Contains(text, "cudaFoo") {
		t.Error("a name of another library")
	}
}
