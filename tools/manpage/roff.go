package main

import (
	"fmt"
	"regexp"
	"strings"
)

// title begins a page. It bears no date: the same text gives the same bytes.
func title(name string, section int) string {
	return fmt.Sprintf(".TH \"%s\" %d \"\" \"gresize\" \"gresize\"\n.nh\n.ad l\n", strings.ToUpper(escape(name)), section)
}

func section(heading string) string { return fmt.Sprintf(".SH \"%s\"\n", escape(heading)) }

// item is a word and what it means.
func item(word, text string) string {
	return fmt.Sprintf(".TP\n\\fB%s\\fR\n%s\n", escape(word), inline(text))
}

// escape makes a text mean itself to roff.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, `-`, `\-`, `"`, `\(dq`, `^`, `\(ha`, `~`, `\(ti`, "`", "\\(ga").Replace(s)
}

// guard keeps what begins a line from being taken for a request.
func guard(s string) string {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// literal keeps lines as they are, without their common indentation and the empty ones at both ends.
func literal(lines []string) string {
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	indent := -1
	for _, line := range lines {
		if line != "" {
			n := len(line) - len(strings.TrimLeft(line, " "))
			if indent < 0 || n < indent {
				indent = n
			}
		}
	}
	var b strings.Builder
	b.WriteString(".nf\n")
	for _, line := range lines {
		if line != "" {
			line = line[indent:]
		}
		b.WriteString(guard(escape(line)) + "\n")
	}
	b.WriteString(".fi\n")
	return b.String()
}

var capitals = regexp.MustCompile(`^[A-Z][A-Z ]+$`)

// prose prints paragraphs; lines that are indented stay lines, and a line of capitals is a heading.
func prose(lines []string) string {
	var b strings.Builder
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case capitals.MatchString(line):
			b.WriteString(section(line))
		case line == "":
			if i > 0 && i+1 < len(lines) && !capitals.MatchString(lines[i+1]) {
				b.WriteString(".PP\n")
			}
		case strings.HasPrefix(line, " "):
			end := i
			for end < len(lines) && strings.HasPrefix(lines[end], " ") {
				end++
			}
			b.WriteString(literal(lines[i:end]))
			i = end - 1
		default:
			b.WriteString(guard(escape(line)) + "\n")
		}
	}
	return b.String()
}

var (
	mark = regexp.MustCompile("`([^`]+)`|\\*\\*([^*]+)\\*\\*|\\[([^]]+)\\]\\([^)]*\\)|\\*([a-z]+)\\*")
	// What roff spaces out by itself.
	spaceBefore = regexp.MustCompile(`\.PP\n(\.(?:SH|TP))`)
	spaceAfter  = regexp.MustCompile(`(\.SH "[^"]*"\n)\.PP\n`)
	tableEnd    = regexp.MustCompile(`^\|[-| :]+\|$`)
)

// inline turns the marks of Markdown inside a line into roff.
func inline(s string) string {
	var b strings.Builder
	at := 0
	for _, m := range mark.FindAllStringSubmatchIndex(s, -1) {
		b.WriteString(escape(s[at:m[0]]))
		for group, wrap := range []string{"", "\\fB%s\\fR", "\\fB%s\\fR", "%s", "\\fI%s\\fR"} {
			if group > 0 && m[2*group] >= 0 {
				fmt.Fprintf(&b, wrap, escape(s[m[2*group]:m[2*group+1]]))
			}
		}
		at = m[1]
	}
	b.WriteString(escape(s[at:]))
	return guard(b.String())
}

// markdown prints the part of Markdown that the manual's page on the configuration is written in: headings, paragraphs, fences, lists, and tables, whose
// rows become items: the first cell is the word, the second, if there are three, is its default.
func markdown(text string) string {
	var b strings.Builder
	b.WriteString(section("DESCRIPTION"))
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " ")
		switch {
		case strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "#"):
			b.WriteString(section(strings.ToUpper(strings.TrimSpace(strings.TrimLeft(line, "#")))))
		case strings.HasPrefix(line, "```"):
			end := i + 1
			for end < len(lines) && !strings.HasPrefix(lines[end], "```") {
				end++
			}
			b.WriteString(literal(lines[i+1 : min(end, len(lines))]))
			i = end
		case tableEnd.MatchString(line):
		case strings.HasPrefix(line, "|"):
			if i+1 < len(lines) && tableEnd.MatchString(lines[i+1]) {
				continue // the heads of the columns
			}
			b.WriteString(row(line))
		case strings.HasPrefix(line, "- "):
			b.WriteString(".IP \\(bu 2\n" + inline(line[2:]) + "\n")
		case line == "":
			if i > 1 && i+1 < len(lines) {
				b.WriteString(".PP\n")
			}
		default:
			b.WriteString(inline(strings.TrimSpace(line)) + "\n")
		}
	}
	return spaceAfter.ReplaceAllString(spaceBefore.ReplaceAllString(b.String(), "$1"), "$1")
}

func row(line string) string {
	const pipe = "\x00"
	cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, pipe), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], pipe, "|"))
	}
	word := strings.Trim(cells[0], "`")
	text := strings.Join(cells[1:], " ")
	if len(cells) == 3 {
		text = cells[2]
		if cells[1] != "–" && cells[1] != "" {
			text += " Default: " + cells[1] + "."
			if !strings.HasSuffix(cells[2], ".") {
				text = cells[2] + ". Default: " + cells[1] + "."
			}
		}
	}
	return item(word, text)
}
