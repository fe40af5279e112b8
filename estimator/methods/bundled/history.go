package bundled

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/history"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/quantity"
	"github.com/gresize/gresize/internal/regular"
)

// HistoryName is the estimator that answers from what earlier runs really used.
const HistoryName = "history"

// historyVariable names a file of earlier runs. It is the variable of whoever asks, never of the job that is asked about.
const historyVariable = "GRESIZE_HISTORY"

// History is the estimator history with the earlier runs, the latest last, that whoever asks knows of the job; that of the list has those of a file.
func History(rows []history.Row, job history.Job) Method {
	m, err := Find(HistoryName)
	if err != nil {
		panic(err) // the list has it
	}
	m.Estimate = func(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
		return historyOf(rows, job, "", b, card)
	}
	return m
}

// fromHistory answers from the file of earlier runs, held against the trace of this one.
func fromHistory(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	rows, err := historyRows()
	if err != nil {
		return estimator.Estimate{}, err
	}
	missing := ""
	if os.Getenv(historyVariable) == "" {
		missing = "; " + historyVariable + " names no file of earlier runs"
	}
	return historyOf(rows, history.Job{Arguments: b.Manifest.Command}, missing, b, card)
}

// historyOf answers from rows, held against the trace of the bundle. missing ends the reason of an answer that has too few.
func historyOf(rows []history.Row, job history.Job, missing string, b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	traced, err := virtual(b, card)
	if err != nil {
		return estimator.Estimate{}, err
	}
	if largest, ok := traced.Largest(); ok && traced.Confidence != estimator.Unknown {
		job.TraceBytes = largest.ComfortableHighBytes
	}
	return historyAnswer(rows, job, missing, &traced, b, card), nil
}

func historyRows() ([]history.Row, error) {
	path := os.Getenv(historyVariable)
	if path == "" {
		return nil, nil
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", historyVariable, err)
	}
	defer f.Close()
	rows, err := history.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", historyVariable, path, err)
	}
	return rows, nil
}

func historyAnswer(rows []history.Row, job history.Job, missing string, traced *estimator.Estimate, b *trace.Bundle, card *gpu.Profile) estimator.Estimate {
	answer, err := history.Estimate(rows, job)
	if err != nil {
		reason := estimator.Reason{Code: estimator.CodeFewActuals, Detail: err.Error() + missing}
		if !errors.Is(err, history.ErrFew) {
			reason = estimator.Reason{Code: estimator.CodeActualsDisagree, Detail: err.Error()}
		}
		return estimator.NewUnknown(HistoryName, card.ID, append(slices.Clone(b.Manifest.Reasons), reason)...)
	}
	e := estimator.Estimate{Confidence: estimator.High, Fits: answer.HighBytes <= card.Total.Bytes, Reasons: slices.Clone(b.Manifest.Reasons)}
	what := quantity.Count(answer.Runs, "run") + " of this job"
	if !answer.Equal {
		e.Confidence = estimator.Low
		what = fmt.Sprintf("the trace, corrected by %s of this script with other arguments", quantity.Count(answer.Runs, "run"))
	}
	e.Reasons = append(e.Reasons, estimator.Reason{Code: estimator.CodeEarlierRuns, Detail: what})
	outside, _ := card.OutsideBytes(b.Manifest.Libraries)
	outside = min(outside, answer.Bytes)
	for i := range b.Ranks {
		// A measured peak is that of the card that held most, and has all of it in one.
		r := wholeRank(i, answer.Bytes-outside, outside, outside)
		r.ComfortableHighBytes = answer.HighBytes
		if i < len(traced.Ranks) {
			r.PeakAllocatedBytes = min(r.PeakReservedBytes, traced.Ranks[i].PeakAllocatedBytes)
		}
		e.Ranks = append(e.Ranks, r)
	}
	return e
}
