package eval

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/printable"
	"github.com/gresize/gresize/internal/regular"
	"golang.org/x/sys/unix"
)

// Verdict is what an answer says about the card.
type Verdict string

// The verdicts.
const (
	Fits    Verdict = "fits"
	Full    Verdict = "oom"
	Unknown Verdict = "unknown"
)

// Answer is what one estimator says about one workload.
type Answer struct {
	Workload
	Estimator string
	Version   string
	Verdict   Verdict
	// The figures are those of the rank that needs the most; 0 where the verdict is Unknown. With Full they are where the run ended.
	ReservedBytes, OutsideBytes int64
	// HighBytes is the upper end of the interval round ReservedBytes.
	HighBytes  int64
	Confidence estimator.Confidence
	// Reasons are the codes, with a detail for the first one where the verdict is Unknown.
	Reasons string
	// RunSeconds is the time of the run, EstimateSeconds that of the estimator itself.
	RunSeconds, EstimateSeconds float64
	// Torch and Gresize are the versions that made the answer.
	Torch, Gresize string
}

const maxReasonBytes = 200

// newAnswer puts an estimate into an answer.
func newAnswer(w Workload, version string, e *estimator.Estimate, runSeconds, estimateSeconds float64) Answer {
	a := Answer{
		Workload: w, Estimator: e.Estimator, Version: version, Verdict: Unknown, Confidence: e.Confidence, RunSeconds: runSeconds,
		EstimateSeconds: estimateSeconds, Torch: e.Versions.Torch, Gresize: e.Versions.Gresize,
	}
	codes := make([]string, 0, len(e.Reasons))
	full := false
	for _, r := range e.Reasons {
		full = full || r.Code == estimator.CodeOutOfMemory
		if !slices.Contains(codes, r.Code) {
			codes = append(codes, r.Code)
		}
	}
	a.Reasons = strings.Join(codes, " ") // of an estimate that is valid, so they are words
	largest, some := e.Largest()
	switch {
	case some && full:
		a.Verdict = Full
	case some && e.Confidence != estimator.Unknown:
		a.Verdict = Fits
	default:
		if len(e.Reasons) > 0 && e.Reasons[0].Detail != "" {
			a.Reasons += ": " + printable.Text(strings.Join(strings.Fields(e.Reasons[0].Detail), " "))
		}
		a.Reasons = strings.ToValidUTF8(a.Reasons[:min(len(a.Reasons), maxReasonBytes)], "")
		return a
	}
	a.ReservedBytes, a.OutsideBytes, a.HighBytes = largest.PeakReservedBytes, largest.OutsideBytes, largest.ComfortableHighBytes-largest.OutsideBytes
	return a
}

var answerColumns = []string{
	columnWorkload, columnArguments, columnGPU, "estimator", "version", "verdict", "reserved_bytes", "outside_bytes", "high_bytes", "confidence", "reasons",
	"run_seconds", "estimate_seconds", "torch", "gresize",
}

func (a *Answer) record() []string {
	figure := func(n int64) string {
		if a.Verdict == Unknown {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	seconds := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	return []string{
		a.Script, a.Arguments, a.GPU, a.Estimator, a.Version, string(a.Verdict), figure(a.ReservedBytes), figure(a.OutsideBytes), figure(a.HighBytes),
		string(a.Confidence), a.Reasons, seconds(a.RunSeconds), seconds(a.EstimateSeconds), a.Torch, a.Gresize,
	}
}

func (t *sheet) answer() (a Answer, err error) {
	a = Answer{
		Workload: Workload{t.text(columnWorkload), t.text(columnArguments), t.text(columnGPU)}, Estimator: t.text("estimator"), Version: t.text("version"),
		Verdict: Verdict(t.text("verdict")), Confidence: estimator.Confidence(t.text("confidence")), Reasons: t.text("reasons"), Torch: t.text("torch"), Gresize: t.text("gresize"),
	}
	if !slices.Contains([]Verdict{Fits, Full, Unknown}, a.Verdict) {
		return a, t.fault("verdict", fmt.Sprintf("%.40q is none", a.Verdict), "remove the row to have it made again")
	}
	if !a.Confidence.Valid() {
		return a, t.fault("confidence", fmt.Sprintf("%.40q is none", a.Confidence), "remove the row to have it made again")
	}
	if a.Verdict != Unknown {
		for column, to := range map[string]*int64{"reserved_bytes": &a.ReservedBytes, "outside_bytes": &a.OutsideBytes, "high_bytes": &a.HighBytes} {
			if *to, err = t.bytes(column); err != nil {
				return a, err
			}
		}
	}
	for column, to := range map[string]*float64{"run_seconds": &a.RunSeconds, "estimate_seconds": &a.EstimateSeconds} {
		if *to, err = strconv.ParseFloat(t.text(column), 64); err != nil || !(*to >= 0 && *to < 1e9) {
			return a, t.fault(column, fmt.Sprintf("%.40q is no time", t.text(column)), "remove the row to have it made again")
		}
	}
	return a, nil
}

// key is what an answer is of.
type key struct {
	Workload
	estimator string
}

// Answers is the file of answers. Only one comparison at a time may write to it.
type Answers struct {
	file *os.File
	all  []Answer
	at   map[key]int
}

// ErrInUse means that another comparison writes to the file of answers.
var ErrInUse = errors.New("another comparison writes to it")

// OpenAnswers opens a file of answers to go on with, and makes it where there is none. What an interruption left of a line is removed.
func OpenAnswers(path string) (*Answers, error) {
	f, err := regular.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	a := &Answers{file: f, at: map[key]int{}}
	if err := a.open(path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

func (a *Answers) open(path string) error {
	if err := unix.Flock(int(a.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: %w", path, ErrInUse)
	}
	data, err := io.ReadAll(&bounded{a.file, maxTableBytes})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// Nothing is taken from a file that somebody else made.
	if head := strings.Join(answerColumns, ",") + "\n"; !strings.HasPrefix(string(data), head) && !strings.HasPrefix(head, string(data)) {
		if err := a.read(bytes.NewReader(data), path); err != nil {
			return err
		}
		return &FileError{path, 1, 1, "no file of answers", "take another file with -o"}
	}
	if whole := bytes.LastIndexByte(data, '\n') + 1; whole < len(data) {
		if err := a.file.Truncate(int64(whole)); err != nil {
			return err
		}
		data = data[:whole]
	}
	if len(data) == 0 {
		return a.write([][]string{answerColumns})
	}
	return a.read(bytes.NewReader(data), path)
}

// ReadAnswers reads a file of answers that nobody goes on with.
func ReadAnswers(path string) (*Answers, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a := &Answers{at: map[key]int{}}
	return a, a.read(f, path)
}

func (a *Answers) read(r io.Reader, name string) error {
	t := &sheet{name: name, reader: newReader(r)}
	if err := t.readHeader(answerColumns, nil, ""); err != nil {
		return err
	}
	if !slices.Equal(t.header, answerColumns) {
		return &FileError{name, 1, 1, "the columns stand in another order", "take another file with -o"}
	}
	for {
		ok, err := t.next()
		if err != nil || !ok {
			return err
		}
		answer, err := t.answer()
		if err != nil {
			return err
		}
		a.keep(answer)
	}
}

// keep takes an answer in the place of an older one.
func (a *Answers) keep(answer Answer) {
	k := key{answer.Workload, answer.Estimator}
	if i, ok := a.at[k]; ok {
		a.all[i] = answer
		return
	}
	a.at[k] = len(a.all)
	a.all = append(a.all, answer)
}

// Find returns an estimator's answer for a workload.
func (a *Answers) Find(w Workload, estimator string) (Answer, bool) {
	i, ok := a.at[key{w, estimator}]
	if !ok {
		return Answer{}, false
	}
	return a.all[i], true
}

// Estimators are the names that have answers, in the order of their first ones.
func (a *Answers) Estimators() []string {
	var names []string
	for i := range a.all {
		if !slices.Contains(names, a.all[i].Estimator) {
			names = append(names, a.all[i].Estimator)
		}
	}
	return names
}

// Append writes answers, all of one run with one write: an interruption leaves whole lines, or one that OpenAnswers removes.
func (a *Answers) Append(answers ...Answer) error {
	records := make([][]string, 0, len(answers))
	for i := range answers {
		records = append(records, answers[i].record())
	}
	if err := a.write(records); err != nil {
		return err
	}
	for _, answer := range answers {
		a.keep(answer)
	}
	return nil
}

func (a *Answers) write(records [][]string) error {
	var lines bytes.Buffer
	if err := csv.NewWriter(&lines).WriteAll(records); err != nil {
		return err
	}
	if _, err := a.file.Write(lines.Bytes()); err != nil {
		return err
	}
	return a.file.Sync()
}

// Close closes the file.
func (a *Answers) Close() error { return a.file.Close() }
