package vgpu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace"
)

// Ahead is what a process was seen to have before it beyond the steps that were run.
type Ahead struct {
	// ChangesAhead are blocks of the program that were not run, may still be, and can be seen to take memory; NotRun may take some as well, and nothing
	// says that they will be run. GrowthAhead are loaders of which each batch leaves something.
	ChangesAhead []string `json:"changes_ahead,omitempty"`
	NotRun       []string `json:"not_run,omitempty"`
	GrowthAhead  []string `json:"growth_ahead,omitempty"`
	// Afterwards are functions that a thread, the end of the program, a signal or a finalizer calls, and that may take memory; and processes.
	Afterwards []string `json:"afterwards,omitempty"`
	// StepLeavesBytes is what each of the last steps left allocated, at most; StepsInAll is how many steps the program makes, or what stands for
	// that where it does not say.
	StepLeavesBytes int64 `json:"step_leaves_bytes,omitempty"`
	StepsInAll      int64 `json:"steps_in_all,omitempty"`
	// FirstAnswerBytes is what was allocated at most when the time-lapse began.
	FirstAnswerBytes int64 `json:"first_answer_bytes,omitempty"`
	// InFlightBytes is what each step leaves to another stream in a program that never waits for the card.
	InFlightBytes int64 `json:"in_flight_bytes,omitempty"`
	// BatchesVary says how the batches or samples of a data set differ. StepsUneven: steps without a data loader allocated other sizes each.
	BatchesVary string `json:"batches_vary,omitempty"`
	StepsUneven bool   `json:"steps_uneven,omitempty"`
	// LargestBatch: samples have several sizes, and a batch of the largest was run.
	LargestBatch bool `json:"largest_batch,omitempty"`
	// BatchSpread is by which part of the larger one the lengths of rows differ that a batch puts one after the other; small ones only.
	BatchSpread float64 `json:"batch_spread,omitempty"`
}

// How the Python layer says that a program was followed in time-lapse; anything else is the error that it met there.
const (
	lapseOn         = "on" // it still is, or was ended without a word
	lapseProgram    = "program"
	lapseNothingNew = "nothing_new"
	lapseBudget     = "budget"
)

// spreadFactor is by how many times the spread of the batches that were seen the interval is widened: a choice, fitted to nothing.
const spreadFactor = 2

// stepsMost bounds the steps that a report may name.
const stepsMost = 1 << 50

// What all steps together leave may be so much of the peak, or so many bytes, for the upper end to hold it: a choice. A number that is kept of each
// of a million steps is within it.
const (
	leftMostPercent = 5
	leftMostBytes   = 512 << 20
)

// leftInAll is what all steps of the program leave allocated, and whether that is little enough beside a peak for the upper end to hold it.
func (h *Ahead) leftInAll(peakBytes int64) (bytes int64, little bool) {
	if h.StepLeavesBytes == 0 {
		return 0, true
	}
	most := max(peakBytes/100*leftMostPercent, leftMostBytes)
	if h.StepsInAll == 0 || h.StepLeavesBytes > most/h.StepsInAll {
		return 0, false
	}
	return h.StepLeavesBytes * h.StepsInAll, true
}

func (h *Ahead) check() error {
	if h.StepLeavesBytes < 0 || h.StepLeavesBytes > maxMemoryBytes {
		return errors.New("step_leaves_bytes: out of range")
	}
	if h.FirstAnswerBytes < 0 || h.FirstAnswerBytes > maxMemoryBytes {
		return errors.New("first_answer_bytes: out of range")
	}
	if h.InFlightBytes < 0 || h.InFlightBytes > maxMemoryBytes {
		return errors.New("in_flight_bytes: out of range")
	}
	if h.StepsInAll < 0 || h.StepsInAll > stepsMost {
		return errors.New("steps_in_all: out of range")
	}
	if !(h.BatchSpread >= 0 && h.BatchSpread <= 1) {
		return errors.New("batch_spread: out of range")
	}
	return nil
}

// LaterNeedsMore says whether a run that was followed in time-lapse took more there than at its first answer.
func LaterNeedsMore(b *trace.Bundle) bool {
	for i := range b.Ranks {
		r, err := parseRank(b.Ranks[i].Report)
		if err == nil && r.Coverage.TimeLapse != "" && r.PeakAllocatedBytes > r.Coverage.FirstAnswerBytes {
			return true
		}
	}
	return false
}

// LaterDoubts are the reasons for which what comes later is not known: they hold for other sizes of the same program as well.
func LaterDoubts(e *estimator.Estimate) []estimator.Reason {
	var doubts []estimator.Reason
	for _, r := range e.Reasons {
		if e.Confidence == estimator.Low && r.Code == estimator.CodePhaseNotReached {
			doubts = append(doubts, r)
		}
	}
	return doubts
}

// cut keeps of what a program's own process reports as much as a reason may hold.
func (h Ahead) cut() Ahead {
	for _, places := range []*[]string{&h.ChangesAhead, &h.NotRun, &h.GrowthAhead, &h.Afterwards} {
		*places = placesAhead(*places)
	}
	if h.BatchesVary != "" {
		h.BatchesVary = placesAhead([]string{h.BatchesVary})[0]
	}
	return h
}

// judgeAhead looks at a rank whose run was ended because its steps looked alike: whether they stay so.
func (a *answer) judgeAhead(h *Ahead, peakBytes int64) {
	if len(h.ChangesAhead) > 0 {
		a.lower(estimator.Low, estimator.CodePhaseNotReached, "what was not run may take more memory: "+strings.Join(h.ChangesAhead, "; "))
	}
	if len(h.Afterwards) > 0 {
		a.lower(estimator.Low, estimator.CodePhaseNotReached, "what runs beside the loop or after it may take memory: "+strings.Join(h.Afterwards, "; "))
	}
	if h.InFlightBytes > 0 {
		a.lower(estimator.Low, estimator.CodeMemoryGrows, fmt.Sprintf("each step leaves %d MiB to another stream (record_stream) and none waits for the card, which holds them for as many steps as the host is ahead", h.InFlightBytes>>20))
	}
	if len(h.GrowthAhead) > 0 {
		a.lower(estimator.Low, estimator.CodeMemoryGrows, "tensors are kept each time a later step comes by: "+strings.Join(h.GrowthAhead, "; "))
	}
	if left, little := h.leftInAll(peakBytes); !little {
		a.lower(estimator.Low, estimator.CodeMemoryGrows, fmt.Sprintf("each of the last steps left %d bytes allocated that the one before did not have", h.StepLeavesBytes))
	} else if left > 0 {
		a.lower(estimator.High, estimator.CodeMemoryGrows, fmt.Sprintf("a step leaves up to %d bytes, and %d steps leave %d: the interval covers that", h.StepLeavesBytes, h.StepsInAll, left))
	}
	switch {
	case h.BatchesVary != "":
		a.lower(estimator.Low, estimator.CodeBatchesVary, "a later batch may be larger: "+h.BatchesVary)
	case h.StepsUneven:
		a.lower(estimator.Low, estimator.CodeBatchesVary, "a later step may take more: the last ones allocated different sizes")
	case h.LargestBatch:
		a.lower(estimator.High, estimator.CodeBatchesVary, fmt.Sprintf("samples have several sizes, and a batch of the largest was run: the interval has %d %% more, for what batches of changing sizes leave to the allocator", valuesAllowancePercent))
	case h.BatchSpread > 0:
		a.lower(estimator.High, estimator.CodeBatchesVary, fmt.Sprintf("batches differ in length by up to %.1f %%: the interval covers %d times that", 100*h.BatchSpread, spreadFactor))
	}
}
