package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// glossary is the table under "Words" of docs/architecture.md: what not to write, and what to write for it.
func glossary(t *testing.T) map[string]string {
	t.Helper()
	_, table, found := strings.Cut(string(read(t, "docs/architecture.md")), "\n## Words\n")
	table, _, _ = strings.Cut(table, "\n## ")
	quoted := regexp.MustCompile(`"([^"]+)"`)
	instead := map[string]string{}
	for line := range strings.Lines(table) {
		cells := tableRow.FindStringSubmatch(strings.TrimSpace(line))
		if cells == nil {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			instead[m[1]] = strings.TrimSpace(cells[1])
		}
	}
	if !found || len(instead) < 10 {
		t.Fatalf("%d words read from the table of docs/architecture.md", len(instead))
	}
	return instead
}

// pattern finds what the glossary does not want; quoted and in code a word may stand.
func pattern(instead map[string]string) *regexp.Regexp {
	var words []string
	for word := range instead {
		words = append(words, strings.ReplaceAll(regexp.QuoteMeta(word), " ", `\s+`))
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	return regexp.MustCompile(`(?i)(?:^|[^\w"“-])(` + strings.Join(words, "|") + `)(?:$|[^\w"”-])`)
}

func unwelcome(text string, words *regexp.Regexp) string {
	m := words.FindStringSubmatch(codeWord.ReplaceAllString(text, "``"))
	if m == nil {
		return ""
	}
	return strings.ToLower(strings.Join(strings.Fields(m[1]), " "))
}

// TestOneWordForOneThing holds pages and messages to the glossary.
func TestOneWordForOneThing(t *testing.T) {
	instead := glossary(t)
	words := pattern(instead)
	for _, page := range sourceFiles(t, ".md") {
		for i, line := range strings.Split(string(read(t, page)), "\n") {
			if word := unwelcome(line, words); word != "" {
				t.Errorf("%s:%d: %q is another's word: docs/architecture.md, Words, %q", page, i+1, word, instead[word])
			}
		}
	}
	for _, name := range sourceFiles(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, read(t, name), parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				if word := unwelcome(text, words); word != "" {
					t.Errorf("%s: %q is another's word: docs/architecture.md, Words, %q", set.Position(lit.Pos()), word, instead[word])
				}
			}
			return true
		})
	}
}

func TestUnwelcome(t *testing.T) {
	words := pattern(map[string]string{"let go": "hold", "he": "they"})
	for text, want := range map[string]string{
		"the job is let go": "let go", "Let  go": "let go", "outlet gone": "", "\"let go\" is not said": "", "`let go`": "", "then he waits": "he", "the": "", "a he-man": "",
	} {
		if word := unwelcome(text, words); word != want {
			t.Errorf("%q: %q, want %q", text, word, want)
		}
	}
}

// written are the pages whose lines a command writes.
var written = []string{"docs/releases.md", "docs/rewrites.md", "docs/failures.md"}

// TestLinesFitATerminal: 120 columns, but for tables, code, and what has no blank to break at.
func TestLinesFitATerminal(t *testing.T) {
	for _, page := range sourceFiles(t, ".md") {
		if slices.Contains(written, page) {
			continue
		}
		if fault := tooLong(string(read(t, page))); fault != 0 {
			t.Errorf("%s:%d: more than 120 columns", page, fault)
		}
	}
}

// tooLong is the number of the first line that is.
func tooLong(text string) int {
	code := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code || strings.HasPrefix(strings.TrimSpace(line), "|") || strings.HasPrefix(line, "    ") || utf8.RuneCountInString(line) <= 120 {
			continue
		}
		if strings.Contains(codeWord.ReplaceAllString(strings.TrimLeft(line, " -*0123456789."), "``"), " ") {
			return i + 1
		}
	}
	return 0
}

func TestTooLong(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for text, want := range map[string]int{
		long: 1, "a\n\n" + long: 3, "| " + long + " |": 0, "```\n" + long + "\n```": 0, strings.Repeat("x", 130): 0, "- `" + long + "`": 0, "    " + long: 0, strings.Repeat("é", 119): 0,
	} {
		if got := tooLong(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestTheReadmeIsShort: a newcomer reads it whole.
func TestTheReadmeIsShort(t *testing.T) {
	if lines := strings.Count(string(read(t, "README.md")), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, more than 120", lines)
	}
	for i, line := range strings.Split(string(read(t, "RELIABILITY.md")), "\n") {
		for _, cell := range strings.Split(line, " | ") {
			if utf8.RuneCountInString(cell) > 280 {
				t.Errorf("RELIABILITY.md:%d: a cell of %d characters: runs belong on docs/reliability-runs.md", i+1, utf8.RuneCountInString(cell))
			}
		}
	}
}
