package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gresize/gresize/internal/quantity"
)

// maxFaults bounds how many faults one look at a file names.
const maxFaults = 32

// FileError is a fault in the file, for a person.
type FileError struct {
	Path         string
	Line, Column int // 0 when no place in the file is at fault
	Field        string
	Problem      string
	Hint         string
	cause        error
}

// Unwrap is the error of the system, where there was one.
func (e *FileError) Unwrap() error { return e.cause }

func (e *FileError) Error() string {
	place := e.Path
	if e.Line > 0 {
		place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	text := place + ": "
	if e.Field != "" {
		text += e.Field + ": "
	}
	text += e.Problem
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Faults are what is wrong with a file, in the order of its lines.
type Faults []*FileError

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes each fault known to errors.As and errors.Is.
func (f Faults) Unwrap() []error {
	all := make([]error, len(f))
	for i, fault := range f {
		all[i] = fault
	}
	return all
}

// Place gives faults that were found after reading the file, and have a field only, their place in it.
func Place(path string, faults []*FileError) {
	if len(faults) == 0 {
		return
	}
	text, err := readText(path)
	for _, fault := range faults {
		fault.Path = path
		if err == nil {
			fault.Line, fault.Column, _ = position(text, strings.Split(fault.Field, "."))
		}
	}
}

// Parse reads and checks a text; path is only for errors, which are Faults.
func Parse(path, text string) (*Config, error) {
	c, faults := examine(path, text)
	if len(faults) > 0 {
		return nil, faults
	}
	return c, nil
}

// faults collects what is wrong with one text.
type faults struct {
	path, text string
	found      Faults
	more       bool
	// fields have a fault, and tables a key that was not read: what is missing there may be meant by it.
	fields, tables map[string]bool
}

// add says what is wrong with the value of a field, and the way out.
func (f *faults) add(field, hint, format string, args ...any) {
	if len(f.found) == maxFaults { // a place is looked for through the whole text
		f.more = true
		return
	}
	line, column, stands := position(f.text, strings.Split(field, "."))
	if !stands && f.tables[tableOf(field)] {
		return
	}
	f.keep(&FileError{Path: f.path, Line: line, Column: column, Field: field, Problem: fmt.Sprintf(format, args...), Hint: hint})
}

func (f *faults) keep(fault *FileError) {
	if len(f.found) == maxFaults {
		f.more = true
		return
	}
	f.fields[fault.Field] = true
	f.found = append(f.found, fault)
}

// unread is a key that could not be read.
func (f *faults) unread(fault *FileError) {
	f.tables[tableOf(fault.Field)] = true
	f.keep(fault)
}

// at says whether one of the fields has a fault: what follows from its value is then not judged.
func (f *faults) at(fields ...string) bool {
	return slices.ContainsFunc(fields, func(field string) bool { return f.fields[field] })
}

// all are the faults by their place.
func (f *faults) all() Faults { return ordered(f.path, f.found, f.more) }

func ordered(path string, found Faults, more bool) Faults {
	slices.SortStableFunc(found, func(a, b *FileError) int { return cmp.Compare(a.Line, b.Line) })
	if more {
		found = append(found, &FileError{Path: path, Problem: fmt.Sprintf("more faults than these %d", len(found)), Hint: "mend them first"})
	}
	return found
}

// And adds what was found after reading the file and has a field only.
func (f Faults) And(path string, later []*FileError) Faults {
	room := maxFaults - len(f)
	if len(later) == 0 || room < 0 {
		return f
	}
	more := len(later) > room
	later = later[:min(len(later), room)]
	Place(path, later)
	return ordered(path, slices.Concat(f, later), more)
}

// tableOf is the table in which a field stands, whichever its row.
func tableOf(field string) string {
	field = indexed.ReplaceAllString(field, "")
	return field[:max(strings.LastIndexByte(field, '.'), 0)]
}

// examine finds all that is wrong with a text. The configuration is nil where its values cannot be told.
func examine(path, text string) (*Config, Faults) {
	f := &faults{path: path, text: text, fields: map[string]bool{}, tables: map[string]bool{}}
	c, meta := f.decode()
	if c == nil {
		return nil, f.all()
	}
	if c.Version != Version && meta.IsDefined("version") { // of another version every key may mean something else
		f.found, f.more = nil, false
		f.add("version", fmt.Sprintf("write version = %d", Version), "is %d, this program reads version %d", c.Version, Version)
		return nil, f.all()
	}
	unknown := map[string]bool{}
	for _, key := range append(meta.Undecoded(), misspelled(meta)...) {
		if parent := key[:len(key)-1]; unknown[parent.String()] {
			unknown[key.String()] = true // its table is named
			continue
		}
		if name := key.String(); !unknown[name] && !f.more {
			unknown[name] = true
			line, column, _ := position(f.text, key)
			f.unread(&FileError{Path: path, Line: line, Column: column, Field: name, Problem: "unknown key", Hint: nearest(key)})
		}
	}
	if !meta.IsDefined("probe", "budget") {
		c.Probe.Budget = min(c.Probe.Budget, c.Probe.Hold)
	}
	c.check(f)
	return c, f.all()
}

// decode reads the text, and goes on behind a value that cannot be read where the rest of the text does not hang on it.
func (f *faults) decode() (*Config, toml.MetaData) {
	for len(f.found) < maxFaults {
		c := Defaults()
		meta, err := toml.Decode(f.text, &c)
		if err == nil {
			return &c, meta
		}
		fault := decodeFault(f.path, err)
		inItsRow(f.text, fault)
		f.unread(fault)
		rest, ok := without(f.text, fault.Line)
		if !ok {
			return nil, meta
		}
		f.text = rest
	}
	f.more = true
	return nil, toml.MetaData{}
}

// inItsRow moves a fault to the row of its table in which it lies: of a key that several rows have, toml names the last.
func inItsRow(text string, fault *FileError) {
	table, name, _ := strings.Cut(fault.Field, ".")
	if fault.Line < 1 || name == "" {
		return
	}
	var places []int
	for row := range maxTargets + 1 {
		line, _, stands := position(text, toml.Key{fmt.Sprintf("%s[%d]", table, row), name})
		if line == 0 {
			break
		}
		if stands {
			places = append(places, line)
		}
	}
	if len(places) < 2 || !slices.Contains(places, fault.Line) {
		return
	}
	lines := strings.Split(text, "\n")
	for _, line := range places {
		alone := slices.Clone(lines)
		for _, other := range places {
			if other != line {
				alone[other-1] = ""
			}
		}
		var c Config
		if _, err := toml.Decode(strings.Join(alone, "\n"), &c); err != nil && decodeFault("", err).Problem == fault.Problem {
			value := strings.IndexByte(lines[line-1], '=') + 1
			value += len(lines[line-1][value:]) - len(strings.TrimLeft(lines[line-1][value:], " \t\"'"))
			fault.Line, fault.Column = line, value+1
			return
		}
	}
}

// without is a text with an empty line in the place of one; ok says that the line was a key with its value, and that the rest can be read.
func without(text string, line int) (rest string, ok bool) {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return "", false
	}
	var alone, others map[string]any
	if _, err := toml.Decode(lines[line-1], &alone); err != nil || len(alone) == 0 || strings.HasPrefix(strings.TrimSpace(lines[line-1]), "[") {
		return "", false
	}
	lines[line-1] = ""
	rest = strings.Join(lines, "\n")
	// Only one key twice may be there still.
	_, err := toml.Decode(rest, &others)
	return rest, err == nil || strings.Contains(err.Error(), "already been defined")
}

// decodeFault is the fault that ended a reading of the text.
func decodeFault(path string, err error) *FileError {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		return &FileError{Path: path, Line: parse.Position.Line, Column: max(parse.Position.Col, 1), Field: parse.LastKey, Problem: strings.TrimPrefix(parse.Message, "toml: "), Hint: hintOf(parse.Message)}
	}
	// A value of the wrong kind has its place in the text alone.
	if m := wrongKind.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		return &FileError{Path: path, Line: line, Column: 1, Field: m[2], Problem: typeProblem(m[3]), Hint: typeHint}
	}
	return &FileError{Path: path, Problem: err.Error(), Hint: tomlHint}
}

// What a person can do about a text that is no TOML, and about a value of another kind.
const (
	tomlHint = `texts stand in "quotes", tables in [brackets], one key = value a line; docs/configuration.md lists the keys`
	typeHint = `sizes, times and words stand in "quotes", numbers, true and false do not, lists in [brackets]; docs/configuration.md lists the keys`
)

// hintOf is the way out of what toml, or a value that reads itself, has found.
func hintOf(message string) string {
	switch {
	case strings.Contains(message, quantity.Words+" \""):
		return `sizes stand in "quotes"` // the rest it says itself
	case strings.Contains(message, wordsNoTime):
		return `for example "90s", "5m" or "1h30m"`
	}
	return tomlHint
}

var (
	wrongKind = regexp.MustCompile(`^toml: line (\d+) \(last key "([^"]*)"\): (.*)$`)
	indexed   = regexp.MustCompile(`\[(\d+)\]`)
)

// position finds the line and column at which a key stands: those of its table where it does not stand in the text itself, (0, 0) where that does not either.
func position(text string, key toml.Key) (line, column int, stands bool) {
	wanted, row := make([]string, 0, len(key)), -1
	for _, part := range key {
		if m := indexed.FindStringSubmatch(part); m != nil {
			row, _ = strconv.Atoi(m[1])
			part = part[:strings.IndexByte(part, '[')]
		}
		wanted = append(wanted, part)
	}
	table, seen := "", -1
	full := strings.Join(wanted, ".")
	tableLine := 0
	for i, raw := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(raw)
		column := strings.Index(raw, trimmed) + 1
		if strings.HasPrefix(trimmed, "[") {
			name := strings.Trim(strings.TrimSpace(strings.SplitN(trimmed, "#", 2)[0]), "[] ")
			table = strings.ReplaceAll(name, `"`, "")
			if table == strings.Join(wanted[:len(wanted)-1], ".") {
				if seen++; seen == row || row < 0 {
					tableLine = i + 1
				}
			}
			if table == full {
				return i + 1, column, true
			}
			continue
		}
		name, _, found := strings.Cut(trimmed, "=")
		if !found {
			continue
		}
		here := strings.Trim(strings.TrimSpace(name), `"'`)
		if table != "" {
			here = table + "." + here
		}
		if here == full && (row < 0 || seen == row) {
			return i + 1, column, true
		}
	}
	if tableLine > 0 {
		return tableLine, 1, false
	}
	return 0, 0, false
}
