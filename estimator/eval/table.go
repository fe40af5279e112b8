// Package eval compares estimators with measured truth: it reads a table of what runs really took, has every estimator answer for each
// row, keeps the answers in a file that an interrupted comparison goes on with, and says how wrong each estimator is. It starts no
// run itself; docs/eval.md describes both files.
package eval

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/internal/regular"
)

// Limits on a table.
const (
	maxTableBytes = 64 << 20
	maxTableRows  = 100_000
	maxFieldBytes = 16 << 10
)

// Truth says what a measured figure is.
type Truth string

// The kinds of truth.
const (
	// Exact: the peak of a run that went to its end.
	Exact Truth = "exact"
	// OOM: the run ran out of the card's memory; the figure is the level that it had reached.
	OOM Truth = "oom"
	// Crash: the run ended for another cause, and the figure says nothing about its need.
	Crash Truth = "crash"
	// AtLeast: the need is not below the figure.
	AtLeast Truth = "at_least"
)

// Workload is what one run is of: a program with its arguments, on a card. Rows of a table may share one.
type Workload struct {
	// Script is the program's file, seen from the folder of the table; Arguments are its arguments, with one blank between two.
	Script    string
	Arguments string
	// GPU is the id of a profile.
	GPU string
}

func (w Workload) String() string {
	return strings.TrimSpace(w.Script+" "+w.Arguments) + " on " + w.GPU
}

// Row is one row of a table of truth.
type Row struct {
	Workload
	Line          int
	MeasuredBytes int64
	Truth         Truth
	// Machine names the constant that was measured along with the need, such as the context and the other residents of that machine's card;
	// empty: none was.
	Machine string
	// Fit: the row is one of the few from which the constant of its machine is taken, and of no score.
	Fit bool
	// Group is the part of the table that is summed up apart.
	Group string
	// Published are estimates of other authors' programs, by their names.
	Published map[string]int64
}

// The columns of a table.
const (
	columnWorkload  = "workload"
	columnArguments = "arguments"
	columnGPU       = "gpu"
	columnMeasured  = "measured_bytes"
	columnTruth     = "truth"
	columnMachine   = "machine"
	columnUse       = "use"
	columnGroup     = "group"
	columnNote      = "note"
	publishedPrefix = "published_"
)

var (
	neededColumns   = []string{columnWorkload, columnGPU, columnMeasured, columnTruth}
	optionalColumns = []string{columnArguments, columnMachine, columnUse, columnGroup, columnNote}
	truths          = []string{string(Exact), string(OOM), string(Crash), string(AtLeast)}
)

// FileError is a fault in one of the two files, with its place and, in Hint, the way out.
type FileError struct {
	File         string
	Line, Column int
	Fault, Hint  string
}

func (e *FileError) Error() string {
	text := e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	text += ": " + e.Fault
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// ReadTable reads a table of truth.
func ReadTable(path string) ([]Row, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readTable(f, path)
}

func readTable(r io.Reader, name string) ([]Row, error) {
	t := &sheet{name: name, reader: newReader(r), cards: cards{}}
	if err := t.readHeader(neededColumns, optionalColumns, publishedPrefix); err != nil {
		return nil, err
	}
	var rows []Row
	for {
		ok, err := t.next()
		if err != nil || !ok {
			return rows, err
		}
		if len(rows) == maxTableRows {
			return nil, t.fault("", fmt.Sprintf("more than %d rows", maxTableRows), "split the table")
		}
		row, err := t.row()
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
}

func (t *sheet) row() (Row, error) {
	line, _ := t.reader.FieldPos(0)
	row := Row{Line: line, Machine: t.text(columnMachine), Group: t.text(columnGroup), Published: map[string]int64{}}
	row.Script, row.Arguments = t.text(columnWorkload), strings.Join(strings.Fields(t.text(columnArguments)), " ")
	if row.Script == "" {
		return row, t.fault(columnWorkload, "empty", "name the script, seen from the folder of the table")
	}
	card, err := t.cards.load(t.text(columnGPU))
	if err != nil {
		return row, t.fault(columnGPU, err.Error(), "gresize gpu list has the names")
	}
	row.GPU = card.ID
	if row.MeasuredBytes, err = t.bytes(columnMeasured); err != nil {
		return row, err
	}
	if row.Truth = Truth(t.text(columnTruth)); !slices.Contains(truths, string(row.Truth)) {
		return row, t.fault(columnTruth, fmt.Sprintf("%.40q is no kind of truth", row.Truth), "write one of "+strings.Join(truths, ", "))
	}
	if row.Truth == Exact && row.MeasuredBytes == 0 {
		return row, t.fault(columnMeasured, "nothing was measured, and the truth is called exact", "write what was measured, in bytes, or leave the row out")
	}
	switch use := t.text(columnUse); use {
	case "", "test":
	case "fit":
		if row.Fit = true; row.Machine == "" || row.Truth != Exact {
			return row, t.fault(columnUse, "fit in a row without a machine or without exact truth", "a constant is taken from exact figures of a named machine")
		}
	default:
		return row, t.fault(columnUse, fmt.Sprintf("%.40q", use), "write fit, test or nothing")
	}
	for _, column := range t.header {
		published, ok := strings.CutPrefix(column, publishedPrefix)
		if !ok || t.text(column) == "" {
			continue
		}
		if row.Published[published], err = t.bytes(column); err != nil {
			return row, err
		}
	}
	return row, nil
}

// cards are the profiles that were read already, by their names: a table has many rows of few of them.
type cards map[string]*gpu.Profile

func (c cards) load(name string) (*gpu.Profile, error) {
	if card := c[name]; card != nil {
		return card, nil
	}
	card, err := gpu.Load(name)
	if err == nil {
		c[name] = card
	}
	return card, err
}

// sheet is a CSV file that is read with names for its columns.
type sheet struct {
	name   string
	reader *csv.Reader
	header []string
	record []string
	cards  cards
}

// byteOrderMark is what spreadsheets put before the first column.
const byteOrderMark = "\ufeff"

func newReader(r io.Reader) *csv.Reader {
	buffered := bufio.NewReader(&bounded{r, maxTableBytes})
	if head, err := buffered.Peek(len(byteOrderMark)); err == nil && string(head) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark)) // it was just seen
	}
	reader := csv.NewReader(buffered)
	reader.Comment, reader.ReuseRecord = '#', true
	return reader
}

// bounded is a reader that fails when there is more than so much: a table that is cut off would say something else.
type bounded struct {
	in   io.Reader
	left int64
}

var errTooLong = fmt.Errorf("more than %d bytes: split the file", int64(maxTableBytes))

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

// next reads a record. What encoding/csv says is put into a fault of ours.
func (t *sheet) next() (bool, error) {
	record, err := t.reader.Read()
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		hint := "a field with a comma or a quotation mark stands in quotation marks, in which \"\" is one"
		if errors.Is(parse.Err, csv.ErrFieldCount) {
			hint = fmt.Sprintf("the header has %d columns", len(t.header))
		}
		return false, &FileError{t.name, parse.Line, parse.Column, parse.Err.Error(), hint}
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", t.name, err)
	}
	t.record = record
	for i, field := range record {
		fault, hint := "", ""
		if len(field) > maxFieldBytes {
			fault = fmt.Sprintf("a field of %d bytes, at most %d", len(field), maxFieldBytes)
		} else if at := strings.IndexFunc(field, unicode.IsControl); at >= 0 {
			fault, hint = fmt.Sprintf("a control character, %q, in a field", field[at]), "each field is plain text on one line" // it would steer the terminal that shows it
		}
		if fault != "" {
			line, column := t.reader.FieldPos(i)
			return false, &FileError{t.name, line, column, fault, hint}
		}
	}
	return true, nil
}

// readHeader reads the first record as the names of the columns.
func (t *sheet) readHeader(needed, optional []string, prefix string) error {
	ok, err := t.next()
	if err != nil {
		return err
	}
	if !ok {
		return &FileError{t.name, 1, 1, "empty", "the first line names the columns: " + strings.Join(needed, ",")}
	}
	t.header = slices.Clone(t.record)
	known := slices.Concat(needed, optional)
	for i, column := range t.header {
		line, at := t.reader.FieldPos(i)
		if !slices.Contains(known, column) && (prefix == "" || !strings.HasPrefix(column, prefix) || column == prefix) {
			return &FileError{t.name, line, at, fmt.Sprintf("no column is called %.60q", column), "there are " + strings.Join(known, ", ")}
		}
		if slices.Contains(t.header[:i], column) {
			return &FileError{t.name, line, at, fmt.Sprintf("a second column %s", column), ""}
		}
	}
	for _, column := range needed {
		if !slices.Contains(t.header, column) {
			return &FileError{t.name, 1, 1, "no column " + column, "the header needs " + strings.Join(needed, ",")}
		}
	}
	return nil
}

func (t *sheet) text(column string) string {
	if i := slices.Index(t.header, column); i >= 0 {
		return strings.TrimSpace(t.record[i])
	}
	return ""
}

func (t *sheet) bytes(column string) (int64, error) {
	n, err := strconv.ParseInt(t.text(column), 10, 64)
	if err != nil || n < 0 || n > estimator.MaxBytes {
		return 0, t.fault(column, fmt.Sprintf("%.40q is no number of bytes", t.text(column)), "write digits alone: 1 GiB is 1073741824")
	}
	return n, nil
}

// fault is an error at a column of the record that was read last.
func (t *sheet) fault(column, fault, hint string) error {
	line, at := t.reader.FieldPos(max(0, slices.Index(t.header, column)))
	if column != "" {
		fault = column + ": " + fault
	}
	return &FileError{t.name, line, at, fault, hint}
}
