package eval

import (
	"errors"
	"io"
	"strings"
	"testing"
)

const header = "workload,arguments,gpu,measured_bytes,truth,machine,use,group,published_other\n"

func TestReadTable(t *testing.T) {
	rows, err := readTable(strings.NewReader("# where it is from\n"+header+
		"train.py,\"a  b\",A100-40,1073741824,exact,lab,fit,g,\ntrain.py,,rtx3060,5,oom,,,,7\n"), "t.csv")
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Arguments != "a b" || r.GPU != "a100-40" || r.MeasuredBytes != 1<<30 || r.Truth != Exact || !r.Fit || r.Machine != "lab" || r.Group != "g" || len(r.Published) != 0 || r.Line != 3 {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Truth != OOM || r.Fit || r.Published["other"] != 7 {
		t.Errorf("%+v", r)
	}
}

// TestBadTables holds that a fault names its place and the way out.
func TestBadTables(t *testing.T) {
	for _, c := range []struct {
		text         string
		line, column int
		says         []string
	}{
		{"", 1, 1, []string{"empty", "names the columns"}},
		{"workload,gpu\n", 1, 1, []string{"no column measured_bytes"}},
		{"workload,card,gpu,measured_bytes,truth\n", 1, 10, []string{`"card"`, "there are workload"}},
		{"workload,gpu,gpu,measured_bytes,truth\n", 1, 14, []string{"second column gpu"}},
		{header + "a.py,,nocard,1,exact,,,,\n", 2, 7, []string{"gpu:", "gresize gpu list"}},
		{header + "a.py,,a100-40,1 GiB,exact,,,,\n", 2, 15, []string{"measured_bytes:", "digits alone"}},
		{header + "a.py,,a100-40,-1,exact,,,,\n", 2, 15, []string{"measured_bytes:"}},
		{header + "a.py,,a100-40,9223372036854775807,exact,,,,\n", 2, 15, []string{"measured_bytes:"}},
		{header + "a.py,,a100-40,1,true,,,,\n", 2, 17, []string{"truth:", "at_least"}},
		{header + "a.py,,a100-40,0,exact,,,,\n", 2, 15, []string{"measured_bytes:", "leave the row out"}},
		{header + "a.py,,a100-40,1,exact,,fit,,\n", 2, 24, []string{"use:", "machine"}},
		{header + "a.py,,a100-40,1,oom,lab,fit,,\n", 2, 25, []string{"use:", "exact"}},
		{header + "a.py,,a100-40,1,exact,,,,x\n", 2, 26, []string{"published_other:"}},
		{header + ",,a100-40,1,exact,,,,\n", 2, 1, []string{"workload: empty"}},
		{header + "a.py,a100-40\n", 2, 1, []string{"number of fields", "9 columns"}},
		{header + "a.py,\"a100\"x,1,2,exact,,,,\n", 2, 11, []string{"quot"}},
		{header + "a.py,\x1b[2J,a100-40,1,exact,,,,\n", 2, 6, []string{"a control character", "plain text"}},
		{header + "\"a\nb.py\",,a100-40,1,exact,,,,\n", 2, 1, []string{"a control character"}},
		{header + "a.py,,a100-40,1,exact,lab\x00,,,\n", 2, 23, []string{"a control character"}},
		{header + "a.py," + strings.Repeat("x", maxFieldBytes+1) + ",a100-40,1,exact,,,,\n", 2, 6, []string{"at most"}},
	} {
		_, err := readTable(strings.NewReader(c.text), "t.csv")
		var fault *FileError
		if !errors.As(err, &fault) || fault.File != "t.csv" || fault.Line != c.line || fault.Column != c.column {
			t.Errorf("%.60q: %v, want t.csv:%d:%d", c.text, err, c.line, c.column)
			continue
		}
		for _, say := range c.says {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%.60q: %v, want it to say %q", c.text, err, say)
			}
		}
	}
}

// TestTableFromASpreadsheet: a mark before the first column and ends of lines as Windows has them are no fault.
func TestTableFromASpreadsheet(t *testing.T) {
	rows, err := readTable(strings.NewReader(byteOrderMark+strings.ReplaceAll(header+"train.py,,a100-40,1,exact,,,,\n", "\n", "\r\n")), "t.csv")
	if err != nil || len(rows) != 1 {
		t.Errorf("%v, %d rows", err, len(rows))
	}
}

// endless gives one row after the other.
type endless struct{ at int }

func (e *endless) Read(p []byte) (int, error) {
	const row = "train.py,,a100-40,1,exact,,,,\n"
	for i := range p {
		p[i] = row[e.at%len(row)]
		e.at++
	}
	return len(p), nil
}

// TestEndlessTable holds that a table without an end is refused, and not read in part.
func TestEndlessTable(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"rows":      io.MultiReader(strings.NewReader(header), &endless{}),
		"remarks":   io.MultiReader(strings.NewReader(header), remarks{}),
		"one field": io.MultiReader(strings.NewReader(header+"\""), &endless{}),
	} {
		if rows, err := readTable(r, "t.csv"); err == nil {
			t.Errorf("%s: %d rows were taken", name, len(rows))
		}
	}
}

type remarks struct{}

func (remarks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = "#\n"[i%2]
	}
	return len(p) &^ 1, nil
}

func FuzzReadTable(f *testing.F) {
	f.Add(header + "train.py,a b,a100-40,1,exact,lab,fit,g,\n")
	f.Add("\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := readTable(strings.NewReader(text), "t.csv")
		for _, r := range rows {
			if err == nil && (r.Script == "" || r.MeasuredBytes < 0 || r.Fit && r.Machine == "") {
				t.Errorf("%+v", r)
			}
		}
	})
}
