// Package history estimates from what earlier runs of the same job really used: the cheapest estimator, and one that must not be believed blindly.
// Equal runs speak for themselves; other runs of the same script correct what a trace says. It answers only from enough runs that agree with each
// other and with the trace of the present job. Where the rows come from is not its matter.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/gresize/gresize/estimator"
)

// Limits on rows, and how many runs are enough.
const (
	MaxRows      = 10000
	maxLineBytes = 1 << 20
	// LatestRows is how many runs, the latest ones, are looked at: programs and drivers change.
	LatestRows = 50
	// EnoughEqual and EnoughOther are the least numbers of equal runs, and of other runs of the same script.
	EnoughEqual = 3
	EnoughOther = 8
	// MostSpread is the largest over the smallest value of runs that agree.
	MostSpread = 1.25
	// MostDisagreement is how far equal runs may be from the trace, as a factor.
	MostDisagreement = 1.5
)

// Row is one earlier run.
type Row struct {
	// Fingerprint stands for all that a run depends on; rows with the same one are the same job. Empty: not known.
	Fingerprint string `json:"fingerprint"`
	// Script stands for the script that the run is of; empty: it is found in Arguments.
	Script string `json:"script,omitempty"`
	// Arguments are the command of the run: the program first.
	Arguments []string `json:"arguments"`
	// ActualBytes is the peak that was measured on the GPU that held most; 0: not known.
	ActualBytes int64 `json:"actual_bytes"`
	// EstimateBytes is what a trace of the run said before; 0: there was none.
	EstimateBytes int64 `json:"estimate_bytes"`
	// Died says that the run ended for want of memory: it needed more than what was measured, if anything was.
	Died bool `json:"died,omitempty"`
}

// Job is the present one. TraceBytes is what its own trace says; 0: there is none.
type Job struct {
	Fingerprint string
	Script      string
	Arguments   []string
	TraceBytes  int64
}

func scriptOf(named string, arguments []string) string {
	if named != "" {
		return named
	}
	return script(arguments)
}

// Answer is what earlier runs say of a job.
type Answer struct {
	// Bytes is the point, HighBytes the upper end.
	Bytes, HighBytes int64
	// Runs is how many stand behind it; Equal says that they were runs of the same job.
	Runs  int
	Equal bool
}

// Why there is no answer.
var (
	// ErrFew means that too few runs are known.
	ErrFew = errors.New("too few earlier runs are known")
	// ErrDisagree means that the runs contradict each other, or the trace of the job.
	ErrDisagree = errors.New("earlier runs disagree")
	// ErrDied means that an equal run died of memory with as much as the others had.
	ErrDied = errors.New("an equal run died for want of memory")
)

// Estimate answers from rows in the order of time, the latest last. The error wraps one of those above.
func Estimate(rows []Row, job Job) (Answer, error) {
	var equal, other []Row
	program := scriptOf(job.Script, job.Arguments)
	for i := range rows {
		switch r := rows[i]; {
		case r.ActualBytes < 0 || r.ActualBytes == 0 && !r.Died || r.ActualBytes > estimator.MaxBytes || r.EstimateBytes < 0 || r.EstimateBytes > estimator.MaxBytes:
		case same(&r, &job):
			equal = append(equal, r)
		case program != "" && scriptOf(r.Script, r.Arguments) == program:
			other = append(other, r)
		}
	}
	equal, other = latest(equal), latest(other)
	if len(equal) >= EnoughEqual {
		return fromEqual(equal, job)
	}
	a, err := fromOther(append(other, equal...), job)
	if errors.Is(err, ErrFew) {
		err = fmt.Errorf("%w: %d of this job, %d are enough; %w", ErrFew, len(equal), EnoughEqual, err)
	}
	return a, err
}

// same reports whether a row is a run of the job itself. A fingerprint decides; arguments alone do where one of both has none.
func same(r *Row, j *Job) bool {
	if r.Fingerprint != "" && j.Fingerprint != "" {
		return r.Fingerprint == j.Fingerprint
	}
	return len(j.Arguments) > 0 && slices.Equal(r.Arguments, j.Arguments)
}

func latest(rows []Row) []Row { return rows[max(0, len(rows)-LatestRows):] }

// fromEqual answers from runs of the job itself.
func fromEqual(rows []Row, job Job) (Answer, error) {
	var lived []int64
	died := int64(0)
	for _, r := range rows {
		switch {
		case r.Died && r.ActualBytes == 0:
			return Answer{}, fmt.Errorf("%w, and how much it had is not known", ErrDied)
		case r.Died:
			died = max(died, r.ActualBytes)
		default:
			lived = append(lived, r.ActualBytes)
		}
	}
	if len(lived) < EnoughEqual {
		return Answer{}, fmt.Errorf("%w: %d of this job ended well, %d are enough", ErrFew, len(lived), EnoughEqual)
	}
	slices.Sort(lived)
	point, high := lived[len(lived)/2], lived[len(lived)-1]
	if died > lived[0] {
		return Answer{}, fmt.Errorf("%w: it had %s, others lived with %s", ErrDied, mib(died), mib(lived[0]))
	}
	if spread := float64(high) / float64(lived[0]); spread > MostSpread {
		return Answer{}, fmt.Errorf("%w: runs of this job took from %s to %s", ErrDisagree, mib(lived[0]), mib(high))
	}
	if job.TraceBytes > 0 {
		if ratio := float64(high) / float64(job.TraceBytes); ratio > MostDisagreement || ratio < 1/MostDisagreement {
			return Answer{}, fmt.Errorf("%w with the trace: they took %s, the trace says %s", ErrDisagree, mib(high), mib(job.TraceBytes))
		}
	}
	return Answer{Bytes: point, HighBytes: high, Runs: len(lived), Equal: true}, nil
}

// fromOther corrects the trace by how wrong the traces of the script's earlier runs were.
func fromOther(rows []Row, job Job) (Answer, error) {
	var ratios []float64
	for _, r := range rows {
		if r.EstimateBytes > 0 && !r.Died {
			ratios = append(ratios, float64(r.ActualBytes)/float64(r.EstimateBytes))
		}
	}
	if len(ratios) < EnoughOther {
		return Answer{}, fmt.Errorf("%w: %d of this script that had a trace, %d are enough", ErrFew, len(ratios), EnoughOther)
	}
	if job.TraceBytes <= 0 {
		return Answer{}, fmt.Errorf("%w: runs with other arguments say nothing without a trace of this one", ErrFew)
	}
	slices.Sort(ratios)
	low, high := ratios[0], ratios[len(ratios)-1]
	if high/low > MostSpread {
		return Answer{}, fmt.Errorf("%w: runs of this script took from %.2f to %.2f times what their traces said", ErrDisagree, low, high)
	}
	a := Answer{Runs: len(ratios)}
	if top := float64(job.TraceBytes) * high; top > float64(estimator.MaxBytes) {
		return Answer{}, fmt.Errorf("%w: %.3g bytes are more than any card has", ErrDisagree, top)
	}
	a.Bytes, a.HighBytes = int64(float64(job.TraceBytes)*ratios[len(ratios)/2]), int64(float64(job.TraceBytes)*high)
	return a, nil
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

// inWords says a fault of JSON without the names of Go's types.
func inWords(err error) string {
	var kind *json.UnmarshalTypeError
	var form *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Sprintf("found %s, and a run must be an object: {\"arguments\": [...], \"actual_bytes\": N}", kind.Value)
	case errors.As(err, &kind):
		want := map[reflect.Kind]string{reflect.Int64: "a whole number of bytes, without quotation marks", reflect.Bool: "true or false", reflect.String: "a text", reflect.Slice: "a list of texts"}[kind.Type.Kind()]
		return fmt.Sprintf("%.80s: found %.80s, and it must be %s", kind.Field, kind.Value, want)
	case errors.As(err, &form):
		return fmt.Sprintf("no JSON from its %d. character on: %v", form.Offset, form)
	}
	return err.Error()
}

// Read reads rows, one JSON object a line, the latest last. An error names the line.
func Read(r io.Reader) ([]Row, error) {
	var rows []Row
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	number := 0
	for lines.Scan() {
		number++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		if len(rows) >= MaxRows {
			return nil, fmt.Errorf("line %d: more than %d rows", number, MaxRows)
		}
		var row Row
		if err := json.Unmarshal(text, &row); err != nil {
			return nil, fmt.Errorf("line %d: %s", number, inWords(err))
		}
		if row.ActualBytes < 0 || row.ActualBytes > estimator.MaxBytes || row.EstimateBytes < 0 || row.EstimateBytes > estimator.MaxBytes {
			return nil, fmt.Errorf("line %d: actual_bytes %d or estimate_bytes %d is out of range", number, row.ActualBytes, row.EstimateBytes)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	return rows, nil
}
