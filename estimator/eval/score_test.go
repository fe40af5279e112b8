package eval

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
)

// measured is a comparison of one estimator whose every figure can be reckoned by hand: a card of 80 GiB less what its profile says.
func measured(t *testing.T) (*Comparable, []Row, *Answers) {
	t.Helper()
	const gib = 1 << 30
	rows := []Row{
		{Truth: Exact, MeasuredBytes: 11 * gib, Machine: "lab", Fit: true}, // 0: the constant is 1 GiB
		{Truth: Exact, MeasuredBytes: 11 * gib, Machine: "lab"},            // 1: exactly right
		{Truth: Exact, MeasuredBytes: 20 * gib, Machine: "lab"},            // 2: 10 % too low
		{Truth: Exact, MeasuredBytes: 10 * gib, Machine: "lab"},            // 3: 20 % too high
		{Truth: OOM, MeasuredBytes: 70 * gib, Machine: "lab"},              // 4: foreseen
		{Truth: OOM, MeasuredBytes: 70 * gib, Machine: "lab"},              // 5: not foreseen
		{Truth: Exact, MeasuredBytes: 70 * gib, Machine: "lab"},            // 6: thought not to fit
		{Truth: Crash, MeasuredBytes: 3 * gib, Machine: "lab"},             // 7: says nothing
		{Truth: AtLeast, MeasuredBytes: 40 * gib, Machine: "lab"},          // 8: too low
		{Truth: Exact, MeasuredBytes: 10 * gib, Machine: "lab"},            // 9: unknown
		{Truth: Exact, MeasuredBytes: 10 * gib, Machine: "other"},          // 10: no constant, so its own outside: 5 % too high
		{Truth: Exact, MeasuredBytes: 11 * gib, Machine: "lab", Fit: true}, // 11
		{Truth: Exact, MeasuredBytes: 12 * gib, Machine: "lab", Fit: true}, // 12
		{Truth: Exact, MeasuredBytes: 10 * gib},                            // 13: not asked about
	}
	estimates := []int64{10, 10, 17, 11, 75, 20, 75, 3, 20, 0, 10, 10, 10}
	answers := open(t, filepath.Join(t.TempDir(), "a.csv"))
	t.Cleanup(func() { _ = answers.Close() })
	for i := range rows {
		rows[i].Workload = Workload{Script: "train.py", Arguments: string(rune('a' + i)), GPU: "a100-80"}
		if i >= len(estimates) {
			continue
		}
		a := Answer{Workload: rows[i].Workload, Estimator: "one", Version: "1", Verdict: Fits, Confidence: estimator.High,
			ReservedBytes: estimates[i] * gib, HighBytes: estimates[i]*gib + gib, OutsideBytes: gib / 2, RunSeconds: 9, EstimateSeconds: 1}
		switch i {
		case 4, 6:
			a.Verdict = Full
		case 9:
			a.Verdict = Unknown
		}
		if err := answers.Append(a); err != nil {
			t.Fatal(err)
		}
	}
	rows[2].Published = map[string]int64{"theirs": 10 * gib}
	c, err := Compare(rows, answers)
	if err != nil {
		t.Fatal(err)
	}
	return c, rows, answers
}

func TestScores(t *testing.T) {
	c, rows, answers := measured(t)
	if len(c.Constants) != 1 || c.Constants[0].Bytes != 1<<30 || c.Constants[0].Rows != 3 || !c.Constants[0].Sound() {
		t.Errorf("constants %+v", c.Constants)
	}
	s := c.Scores()[0]
	near := func(what string, got, want float64) {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	if s.Rows != 9 || s.Answered != 8 || s.Scored != 4 || s.OOMRows != 2 || s.OOMForeseen != 1 || s.FalseOOM != 1 {
		t.Errorf("%+v", s)
	}
	near("median error", s.MedianError, 0.075)
	near("mean error", s.MeanError, 0.35/4)
	near("95th percentile", s.P95Error, 0.2)
	near("too low", s.Under, 2.0/5)
	near("by over 5 %", s.Under5, 2.0/5)
	near("below the upper end", s.Covered, 3.0/4)
	near("seconds", s.Seconds, 10)
	// Judged are rows 1 to 6, 9 and 10; accurate 1, 3, 4 and 10. Row 2 holds 19 GiB without the constant and would be limited to 17.5.
	near("failure", s.Failure, 4.0/8)
	card := float64(c.Cases[0].CapacityBytes) / (1 << 30)
	near("conserved", s.ConservedGiB, ((card-10.5)+(card-11.5)+(card-10.5)+card-17.5-20.5-75.5)/8)
	near("conserved as published", s.ConservedAsPublishedGiB, (4*card-(10.5+11.5+10.5)/(1<<30)-17.5-20.5-75.5)/8)
	published := c.Scores()[1]
	if published.Estimator != "theirs (published)" || published.Rows != 1 || !math.IsNaN(published.Seconds) {
		t.Errorf("%+v", published)
	}
	near("published error", published.MedianError, 0.5)
	if got := Left(rows, answers); got != "14 rows: 1 crash and 3 that constants are taken from are in no score, 1 was not asked about" {
		t.Error(got)
	}
	if l := c.Largest("one", 1); len(l) != 1 || math.Abs(l[0].Error()-0.2) > 1e-9 {
		t.Errorf("largest %+v", l)
	}
}

// TestConstantNeedsRows holds that one row, or an estimate above all that was measured, makes no constant: the estimator's own outside stands in.
func TestConstantNeedsRows(t *testing.T) {
	const gib = 1 << 30
	for name, x := range map[string]struct {
		fits     int
		reserved int64
		added    int64
		says     string
	}{
		"one row":    {1, 10, gib / 2, "| lab | one | none (of 1 row, 3 are needed): its own outside | 1 |"},
		"two rows":   {2, 10, gib / 2, "of 2 rows"},
		"three":      {3, 10, gib, "| lab | one | 1024 MiB | 3 |"},
		"below zero": {3, 99, gib / 2, "| lab | one | none (below zero): its own outside | 3 | -90112 to -90112 MiB |"},
	} {
		answers := open(t, filepath.Join(t.TempDir(), "a.csv"))
		var rows []Row
		for i := range x.fits + 1 {
			rows = append(rows, Row{Workload: Workload{Script: "train.py", Arguments: string(rune('a' + i)), GPU: "a100-80"}, Truth: Exact, MeasuredBytes: 11 * gib, Machine: "lab", Fit: i > 0})
			if err := answers.Append(Answer{Workload: rows[i].Workload, Estimator: "one", Version: "1", Verdict: Fits, Confidence: estimator.Low, ReservedBytes: x.reserved * gib, OutsideBytes: gib / 2}); err != nil {
				t.Fatal(err)
			}
		}
		c, err := Compare(rows, answers)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := c.Print(&b, 0); err != nil {
			t.Fatal(err)
		}
		if len(c.Cases) != 1 || c.Cases[0].AddedBytes != x.added || !strings.Contains(b.String(), x.says) {
			t.Errorf("%s: %+v\n%s", name, c.Cases, b.String())
		}
		if err := answers.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestPrint(t *testing.T) {
	c, _, _ := measured(t)
	var b bytes.Buffer
	if err := c.Print(&b, 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| lab | one | 1024 MiB | 3 | 1024 to 2048 MiB |", "| all | one | 9 | 8 | 7.50 % |", "| all | theirs (published) | 1 | 1 | 50.00 %", "| train.py d on a100-80 | 10240 MiB | 12288 MiB | +20.0 % |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestPlot draws names that would break markup, and no rows at all.
func TestPlot(t *testing.T) {
	c, _, _ := measured(t)
	c.Cases[0].Row.Group = `<&"`
	for name, x := range map[string]*Comparable{"rows": c, "none": {}} {
		var b bytes.Buffer
		if err := x.Plot(&b, `a <title>`); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if name == "rows" && (strings.Count(text, "<circle")+strings.Count(text, "M0") == 0 || !strings.Contains(text, "one: 4 rows, median error 7.5 %")) {
			t.Errorf("%s:\n%s", name, text)
		}
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
		}
		if strings.Contains(text, "NaN") && name == "rows" {
			t.Error("a place that is no number")
		}
	}
}
