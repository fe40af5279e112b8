package history

import (
	"errors"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"pgregory.net/rapid"
)

const gib = int64(1) << 30

func runs(n int, r Row) []Row {
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = r
	}
	return rows
}

func TestEstimate(t *testing.T) {
	command := []string{"python", "train.py", "--batch", "8"}
	job := Job{Fingerprint: "f", Arguments: command, TraceBytes: 10 * gib}
	equal := Row{Fingerprint: "f", Arguments: command, ActualBytes: 11 * gib, EstimateBytes: 10 * gib}
	other := Row{Fingerprint: "g", Arguments: []string{"python", "train.py", "--batch", "16"}, ActualBytes: 22 * gib, EstimateBytes: 20 * gib}
	stranger := Row{Fingerprint: "h", Arguments: []string{"python", "other.py"}, ActualBytes: 80 * gib, EstimateBytes: 1 * gib}
	with := func(r Row, change func(*Row)) Row { change(&r); return r }
	for name, c := range map[string]struct {
		rows []Row
		job  Job
		want Answer
		err  error
	}{
		"nothing":            {nil, job, Answer{}, ErrFew},
		"strangers":          {runs(20, stranger), job, Answer{}, ErrFew},
		"two equal runs":     {runs(2, equal), job, Answer{}, ErrFew},
		"three equal runs":   {append(runs(9, stranger), runs(3, equal)...), job, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: 3, Equal: true}, nil},
		"without a trace":    {runs(3, equal), Job{Fingerprint: "f"}, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: 3, Equal: true}, nil},
		"the highest counts": {append(runs(3, equal), with(equal, func(r *Row) { r.ActualBytes = 12 * gib })), job, Answer{Bytes: 11 * gib, HighBytes: 12 * gib, Runs: 4, Equal: true}, nil},
		"they disagree":      {append(runs(3, equal), with(equal, func(r *Row) { r.ActualBytes = 20 * gib })), job, Answer{}, ErrDisagree},
		"with the trace":     {runs(3, equal), Job{Fingerprint: "f", TraceBytes: 30 * gib}, Answer{}, ErrDisagree},
		"one died":           {append(runs(3, equal), with(equal, func(r *Row) { r.Died, r.ActualBytes = true, 12*gib })), job, Answer{}, ErrDied},
		"one died with less": {append(runs(3, equal), with(equal, func(r *Row) { r.Died, r.ActualBytes = true, 5*gib })), job, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: 3, Equal: true}, nil},
		"one died, unknown":  {append(runs(3, equal), with(equal, func(r *Row) { r.Died, r.ActualBytes = true, 0 })), job, Answer{}, ErrDied},
		"scripts by name":    {runs(8, Row{Script: "sha", ActualBytes: 22 * gib, EstimateBytes: 20 * gib}), Job{Script: "sha", TraceBytes: 10 * gib}, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: 8}, nil},
		"another script":     {runs(8, Row{Script: "sha", ActualBytes: 22 * gib, EstimateBytes: 20 * gib}), Job{Script: "ahs", TraceBytes: 10 * gib}, Answer{}, ErrFew},
		"changed files":      {runs(3, equal), Job{Fingerprint: "new", Arguments: command, TraceBytes: 10 * gib}, Answer{}, ErrFew},
		"no fingerprint":     {runs(3, equal), Job{Arguments: command, TraceBytes: 10 * gib}, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: 3, Equal: true}, nil},
		"other arguments":    {runs(8, other), job, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: 8}, nil},
		"seven others":       {runs(7, other), job, Answer{}, ErrFew},
		"others, no trace":   {runs(8, other), Job{Arguments: command}, Answer{}, ErrFew},
		"others disagree":    {append(runs(8, other), with(other, func(r *Row) { r.ActualBytes = 60 * gib })), job, Answer{}, ErrDisagree},
		"no actuals":         {runs(9, with(equal, func(r *Row) { r.ActualBytes = 0 })), job, Answer{}, ErrFew},
		"only the latest":    {append([]Row{with(equal, func(r *Row) { r.ActualBytes = 40 * gib })}, runs(LatestRows, equal)...), job, Answer{Bytes: 11 * gib, HighBytes: 11 * gib, Runs: LatestRows, Equal: true}, nil},
	} {
		got, err := Estimate(c.rows, c.job)
		if !errors.Is(err, c.err) || got.Runs != c.want.Runs || got.Equal != c.want.Equal || near(got.Bytes, c.want.Bytes) || near(got.HighBytes, c.want.HighBytes) {
			t.Errorf("%s: %+v, %v; want %+v, %v", name, got, err, c.want, c.err)
		}
	}
}

func near(a, b int64) bool { return a-b > 1<<20 || b-a > 1<<20 }

func TestScript(t *testing.T) {
	for command, want := range map[string]string{
		"python train.py --config a.py": "train.py", "python3 -u ./a/train.py": "./a/train.py", "python -m pkg.train --x": "pkg.train",
		"torchrun --nproc 2 train.py": "train.py", "bash job.sh": "job.sh", "./train --x": "./train", "python": "", "": "",
		"python -c print()": "", "torchrun -m pkg.train": "torchrun",
	} {
		if got := script(strings.Fields(command)); got != want {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	rows, err := Read(strings.NewReader(`{"fingerprint":"f","arguments":["python","a.py"],"actual_bytes":5,"estimate_bytes":4}` + "\n\n" + `{"died":true,"more":1}`))
	if err != nil || len(rows) != 2 || rows[0].ActualBytes != 5 || !rows[1].Died {
		t.Errorf("%+v, %v", rows, err)
	}
	for text, want := range map[string]string{
		"{}\n{": "line 2: no JSON", `[]`: "line 1: found array, and a run must be an object", `{"actual_bytes":"12"}`: "line 1: actual_bytes: found string, and it must be a whole number of bytes",
		`{"died":1}`: "line 1: died: found number, and it must be true or false", `{"arguments":"python a.py"}`: "line 1: arguments: found string, and it must be a list of texts",
		`{"actual_bytes":1.5}`: "actual_bytes: found number 1.5, and it must be a whole number of bytes", `{"actual_bytes":-1}`: "line 1: actual_bytes -1", `{"estimate_bytes":9000000000000000000}`: "line 1",
		strings.Repeat("{}\n", MaxRows+1): "line 10001: more than", "{}\n" + strings.Repeat(" ", maxLineBytes+1): "line 2",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// FuzzRead: whatever the rows, there is an answer within bounds or a reason.
func FuzzRead(f *testing.F) {
	f.Add(`{"fingerprint":"f","arguments":["python","a.py"],"actual_bytes":5,"estimate_bytes":4}`)
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		check(t, rows, Job{Fingerprint: "f", Arguments: []string{"python", "a.py"}, TraceBytes: 10})
	})
}

type failer interface{ Errorf(string, ...any) }

func check(t failer, rows []Row, job Job) {
	a, err := Estimate(rows, job)
	if err == nil && (a.Bytes <= 0 && job.TraceBytes > 1 || a.HighBytes < a.Bytes || a.HighBytes > estimator.MaxBytes || a.Runs < EnoughEqual) {
		t.Errorf("%+v of %+v for %+v", a, rows, job)
	}
	if err != nil && !errors.Is(err, ErrFew) && !errors.Is(err, ErrDisagree) && !errors.Is(err, ErrDied) {
		t.Errorf("%v", err)
	}
}

func TestAnyRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(0, estimator.MaxBytes)
		var rows []Row
		for range rapid.IntRange(0, 30).Draw(t, "rows") {
			rows = append(rows, Row{Fingerprint: rapid.SampledFrom([]string{"", "f", "g"}).Draw(t, "f"), Arguments: []string{"python", rapid.SampledFrom([]string{"a.py", "b.py"}).Draw(t, "s")},
				ActualBytes: size.Draw(t, "actual"), EstimateBytes: size.Draw(t, "estimate"), Died: rapid.Bool().Draw(t, "died")})
		}
		check(t, rows, Job{Fingerprint: "f", Arguments: []string{"python", "a.py"}, TraceBytes: size.Draw(t, "trace")})
	})
}
