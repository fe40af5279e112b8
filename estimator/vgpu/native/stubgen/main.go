// Command stubgen writes the generated half of the stub libraries: for every SONAME of the union of all symbol
// manifests a C file with weak default answers, a linker version script, and a makefile that lists them.
//
//	go run ./estimator/vgpu/native/stubgen ANSWERS PUBLIC OUTDIR [RELEASE...]
package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator/vgpu/manifest"
)

// maxParameters bounds the parameter lists that answers may name.
const maxParameters = 32

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: stubgen ANSWERS PUBLIC OUTDIR [RELEASE...]")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintf(os.Stderr, "stubgen: %v\n", err)
		os.Exit(1)
	}
}

// run writes the stubs of all releases, or of those that are named.
func run(answersPath, publicPath, out string, only []string) error {
	text, err := os.ReadFile(answersPath)
	if err != nil {
		return err
	}
	rules, err := parseRules(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", answersPath, err)
	}
	if text, err = os.ReadFile(publicPath); err != nil {
		return err
	}
	public, err := parsePublic(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", publicPath, err)
	}
	all, err := manifest.All()
	if err != nil {
		return err
	}
	if len(only) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(m manifest.Manifest) bool { return !slices.Contains(only, m.Torch) })
	}
	union, err := manifest.Union(all)
	if err != nil {
		return err
	}
	manifest.Widen(union)
	sonames := make([]string, 0, len(union))
	for soname, lib := range union {
		sonames = append(sonames, soname)
		if err := writeIfChanged(filepath.Join(out, soname+".c"), source(soname, lib, public, rules)); err != nil {
			return err
		}
		if err := writeIfChanged(filepath.Join(out, soname+".map"), versionScript(lib)); err != nil {
			return err
		}
	}
	sort.Strings(sonames)
	return writeIfChanged(filepath.Join(out, "stubs.mk"), "STUBS := "+strings.Join(sonames, " ")+"\n")
}

// writeIfChanged keeps the time stamp of what is already right, so that make rebuilds only what changed.
func writeIfChanged(name, text string) error {
	if old, err := os.ReadFile(name); err == nil && string(old) == text {
		return nil
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

type out struct {
	index int
	ctype string // int, long or handle
	value string // a C expression
}

type rule struct {
	library, pattern, kind string
	outs                   []out
}

var kinds = map[string]bool{"launch": true, "inert": true, "unanswered": true, "solver": true, "sparse": true}

var term = regexp.MustCompile(`^(-?[0-9]+|[aA][0-9]+)$`)

func parseRules(text string) ([]rule, error) {
	var rules []rule
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		r, err := parseRule(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(fields []string) (rule, error) {
	if len(fields) < 3 {
		return rule{}, fmt.Errorf("want LIBRARY NAME-PATTERN KIND")
	}
	r := rule{library: fields[0], pattern: fields[1], kind: fields[2]}
	if _, err := path.Match(r.pattern, ""); err != nil {
		return r, fmt.Errorf("pattern %q: %w", r.pattern, err)
	}
	if !kinds[r.kind] {
		return r, fmt.Errorf("unknown kind %q", r.kind)
	}
	rest := fields[3:]
	for ; len(rest) >= 4 && rest[0] == "out"; rest = rest[4:] {
		index, err := strconv.Atoi(rest[1])
		if err != nil || index < 0 || index >= maxParameters {
			return r, fmt.Errorf("out: %q is no parameter index", rest[1])
		}
		if rest[2] != "int" && rest[2] != "long" && rest[2] != "handle" {
			return r, fmt.Errorf("out: unknown type %q", rest[2])
		}
		value, err := expression(rest[3])
		if err != nil {
			return r, err
		}
		r.outs = append(r.outs, out{index, rest[2], value})
	}
	if len(rest) != 0 {
		return r, fmt.Errorf("%q is no OUT INDEX TYPE VALUE", strings.Join(rest, " "))
	}
	return r, nil
}

// expression turns "64*a1+A2" into C over the parameters p1, p2.
func expression(text string) (string, error) {
	var sums []string
	for _, sum := range strings.Split(text, "+") {
		var factors []string
		for _, factor := range strings.Split(sum, "*") {
			switch {
			case !term.MatchString(factor):
				return "", fmt.Errorf("value: %q is neither a number nor a parameter", factor)
			case factor[0] == 'a':
				factors = append(factors, "(int64_t)(int32_t)(intptr_t)p"+factor[1:])
			case factor[0] == 'A':
				factors = append(factors, "(int64_t)(intptr_t)p"+factor[1:])
			default:
				factors = append(factors, factor)
			}
		}
		sums = append(sums, strings.Join(factors, " * "))
	}
	return strings.Join(sums, " + "), nil
}

func match(rules []rule, soname, symbol string) (rule, bool) {
	library := manifest.Base(soname)
	for _, r := range rules {
		if ok, _ := path.Match(r.pattern, symbol); ok && r.library == library {
			return r, true
		}
	}
	return rule{kind: "unanswered"}, false
}

var parameter = regexp.MustCompile(`\bp([0-9]+)\b`)

// parameters is how many parameters a function must declare so that the rule can name its own.
func (r rule) parameters() int {
	n := 0
	for _, o := range r.outs {
		n = max(n, o.index+1)
		for _, m := range parameter.FindAllStringSubmatch(o.value, -1) {
			if index, err := strconv.Atoi(m[1]); err == nil {
				n = max(n, index+1)
			}
		}
	}
	return n
}

var publicName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)

// parsePublic reads lines of LIBRARY NAME. The names become C source, so nothing but plain ones passes.
func parsePublic(text string) (map[string][]string, error) {
	names := map[string][]string{}
	for n, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 || !publicName.MatchString(fields[1]) {
			return nil, fmt.Errorf("line %d: want LIBRARY NAME", n+1)
		}
		if !slices.Contains(names[fields[0]], fields[1]) {
			names[fields[0]] = append(names[fields[0]], fields[1])
		}
	}
	return names, nil
}

func source(soname string, lib manifest.Library, public map[string][]string, rules []rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "/* Generated by stubgen: default answers of %s. Answers written by hand replace them. */\n#include \"gv.h\"\n", soname)
	for _, symbol := range lib.Symbols {
		r, _ := match(rules, soname, symbol)
		writeSymbol(&b, symbol, "weak", r)
	}
	library, _, _ := strings.Cut(soname, ".so")
	for _, symbol := range public[library] {
		if _, found := slices.BinarySearch(lib.Symbols, symbol); found {
			continue
		}
		attributes := "weak"
		r, answered := match(rules, soname, symbol)
		if !answered { // the section tells the look-up by name which functions are nobody's answer
			attributes = `weak, section("gv_default")`
		}
		writeSymbol(&b, symbol, attributes, r)
	}
	return b.String()
}

func writeSymbol(b *strings.Builder, symbol, attributes string, r rule) {
	var parameters []string
	for i := range r.parameters() {
		parameters = append(parameters, fmt.Sprintf("void *p%d", i))
	}
	if len(parameters) == 0 {
		parameters = []string{"void"}
	}
	fmt.Fprintf(b, "\n__attribute__((%s)) GV_EXPORT long %s(%s)\n{\n", attributes, symbol, strings.Join(parameters, ", "))
	if r.kind == "unanswered" {
		fmt.Fprintf(b, "\tstatic struct gv_unanswered symbol = {\"%s\", 0, 0};\n\n\tgv_unanswered(&symbol);\n", symbol)
	}
	for i, o := range r.outs {
		switch o.ctype {
		case "handle":
			fmt.Fprintf(b, "\tif (p%d)\n\t\t*(void **)p%d = gv_new(0);\n", o.index, o.index)
			continue
		case "int":
			fmt.Fprintf(b, "\tif (p%d)\n\t\t*(int *)p%d = (int)(%s);\n", o.index, o.index, o.value)
		case "long":
			fmt.Fprintf(b, "\tif (p%d)\n\t\t*(int64_t *)p%d = (int64_t)(%s);\n", o.index, o.index, o.value)
		}
		if bound, ok := map[string]string{"solver": "GV_BOUND_SOLVER", "sparse": "GV_BOUND_SPARSE"}[r.kind]; ok && i == 0 {
			fmt.Fprintf(b, "\tgv_bounded(%s, (uint64_t)(%s));\n", bound, o.value)
		}
	}
	if r.kind == "launch" {
		b.WriteString("\tgv_launched();\n")
	}
	b.WriteString("\treturn 0;\n}\n")
}

// versionScript exports what the sources mark, under the version node that the importers bind to.
func versionScript(lib manifest.Library) string {
	if lib.Node == "" {
		return "{ global: *; };\n"
	}
	return lib.Node + " { global: *; };\n"
}
