// Package faketensor answers from a run in which the tensors on the card had no content: the most bytes of storages that lived at once. It has the
// whole training step, and the published form: one forward, and the backward pass of the output's sum. docs/bundle.md describes the report, which
// comes from a user's process.
package faketensor

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/internal/quantity"
)

// The names in answers.
const (
	Name          = "faketensor"
	PublishedName = "faketensor-published"
)

const (
	schema         = "gresize.fake/1"
	formWhole      = "whole"
	formPublished  = "published"
	maxReportBytes = 1 << 20
	maxCards       = 64
	maxNames       = 64
	maxTextBytes   = 4096
	maxCount       = 1 << 30
	maxWallSeconds = 30 * 24 * 3600
	maxMemoryBytes = int64(1) << 44
	// leastSteps: an optimizer makes its state in the first step, so the second one is the first that has all.
	leastSteps = 2
)

// The reasons for which a process writes its report that are told apart.
const (
	reasonStopped     = "stopped"
	reasonBudgetSpent = "budget_spent"
	reasonCPUOnly     = "cpu_only_torch"
)

// Report is what one process left.
type Report struct {
	Schema    string           `json:"schema"`
	Form      string           `json:"form"`
	Reason    string           `json:"reason"`
	Exception *trace.Exception `json:"exception"`
	// WithoutContent is the operator that asked for a value that no tensor had; empty when none did.
	WithoutContent     string `json:"without_content"`
	Python             string `json:"python"`
	Torch              string `json:"torch"`
	CUDA               string `json:"cuda"`
	WorldSize          int    `json:"world_size"`
	Steps              int    `json:"steps"`
	BackwardCalls      int    `json:"backward_calls"`
	AfterForwardBytes  int64  `json:"after_forward_bytes"`
	AfterBackwardBytes int64  `json:"after_backward_bytes"`
	Peaks              []struct {
		Index     int   `json:"index"`
		PeakBytes int64 `json:"peak_bytes"`
	} `json:"peaks"`
	// ValuesRead counts numbers that were answered though no tensor had them.
	ValuesRead int `json:"values_read"`
	// Replaced is what was not done as on a GPU, such as compile.
	Replaced    []string `json:"replaced"`
	WallSeconds float64  `json:"wall_seconds"`
}

// PeakBytes is the most that lived on one card.
func (r *Report) PeakBytes() int64 {
	var peak int64
	for _, p := range r.Peaks {
		peak = max(peak, p.PeakBytes)
	}
	return peak
}

// Parse reads and checks a report.
func Parse(data []byte) (*Report, error) {
	var r Report
	if err := trace.UnmarshalReport(data, &r, &r.Schema, schema); err != nil {
		return nil, err
	}
	if r.Form != formWhole && r.Form != formPublished {
		return nil, fmt.Errorf("form: %.80q is not known", r.Form)
	}
	if len(r.Peaks) > maxCards || len(r.Replaced) > maxNames {
		return nil, errors.New("peaks or replaced: too many entries")
	}
	for name, n := range map[string]int{"world_size": r.WorldSize, "steps": r.Steps, "backward_calls": r.BackwardCalls, "values_read": r.ValuesRead} {
		if n < 0 || n > maxCount {
			return nil, fmt.Errorf("%s: %d is out of range", name, n)
		}
	}
	sizes := []int64{r.AfterForwardBytes, r.AfterBackwardBytes}
	for _, p := range r.Peaks {
		if p.Index < 0 || p.Index >= maxCards {
			return nil, fmt.Errorf("peaks: a card with the number %d", p.Index)
		}
		sizes = append(sizes, p.PeakBytes)
	}
	for _, size := range sizes {
		if size < 0 || size > maxMemoryBytes {
			return nil, fmt.Errorf("peaks: %d bytes are out of range", size)
		}
	}
	if math.IsNaN(r.WallSeconds) || r.WallSeconds < 0 || r.WallSeconds > maxWallSeconds {
		return nil, errors.New("wall_seconds: out of range")
	}
	texts := []*string{&r.Reason, &r.WithoutContent, &r.Python, &r.Torch, &r.CUDA}
	if r.Exception != nil {
		texts = append(texts, &r.Exception.Type, &r.Exception.Text)
	}
	for i := range r.Replaced {
		texts = append(texts, &r.Replaced[i])
	}
	for _, text := range texts {
		if len(*text) > maxTextBytes {
			return nil, fmt.Errorf("a text of %d bytes, at most %d: %.40q", len(*text), maxTextBytes, *text)
		}
	}
	return &r, nil
}

// Run is what the processes of a run left.
type Run struct {
	// Reports are those of all processes, Ranks those that put something on a card, as they are in a bundle.
	Reports []*Report
	Ranks   []trace.Rank
}

// Stopped and BudgetSpent say that the run was ended on purpose; CPUOnly that no PyTorch of it knows CUDA.
func (r *Run) Stopped() bool     { return r.has(reasonStopped) }
func (r *Run) BudgetSpent() bool { return r.has(reasonBudgetSpent) && !r.Stopped() }
func (r *Run) CPUOnly() bool     { return len(r.Ranks) == 0 && r.has(reasonCPUOnly) }

func (r *Run) has(reason string) bool {
	return slices.ContainsFunc(r.Reports, func(p *Report) bool { return p.Reason == reason })
}

var reportName = regexp.MustCompile(`^fake-[0-9]{1,10}\.json$`)

// ReadRun reads the reports in a directory. An error names the file.
func ReadRun(dir string) (*Run, error) {
	run := new(Run)
	err := trace.ReadReports(dir, reportName, maxReportBytes, func(_ []string, data []byte) error {
		report, err := Parse(data)
		if err != nil {
			return err
		}
		run.Reports = append(run.Reports, report)
		if report.PeakBytes() > 0 && len(run.Ranks) < trace.MaxRanks {
			run.Ranks = append(run.Ranks, trace.Rank{Report: data})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("faketensor: %w", err)
	}
	return run, nil
}

// Estimate answers from the whole training step, beside what the card's context and libraries take.
func Estimate(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	outside, outsideHigh := card.OutsideBytes([]string{"cublas"})
	return estimate(b, card, Name, formWhole, outside, outsideHigh)
}

// Published answers as the published figures were made: nothing is added to what the tensors hold.
func Published(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	return estimate(b, card, PublishedName, formPublished, 0, 0)
}

func estimate(b *trace.Bundle, card *gpu.Profile, name, form string, outside, outsideHigh int64) (estimator.Estimate, error) {
	unknown := func(code, detail string) (estimator.Estimate, error) {
		return estimator.NewUnknown(name, card.ID, append(slices.Clone(b.Manifest.Reasons), estimator.Reason{Code: code, Detail: detail})...), nil
	}
	r, err := Parse(b.Ranks[0].Report)
	if err != nil {
		return estimator.Estimate{}, fmt.Errorf("ranks/0/report.json: %w", err)
	}
	bytes := r.PeakBytes()
	switch {
	case r.Form != form:
		return unknown(estimator.CodeRecordedOtherwise, fmt.Sprintf("%s needs a run in the form %s, the bundle is of one in the form %s", name, form, r.Form))
	case len(b.Ranks) > 1 || r.WorldSize > 1 || len(r.Peaks) > 1:
		return unknown(estimator.CodeNotCovered, "the method knows one process on one card")
	case r.WithoutContent != "":
		return unknown(estimator.CodeNotCovered, "the program asks for a value that no tensor has: "+r.WithoutContent)
	case form == formPublished && r.AfterBackwardBytes == 0:
		return unknown(estimator.CodeNoStepSeen, "no forward of a network was seen whose output has a gradient")
	case form == formWhole && r.Steps < leastSteps:
		return unknown(estimator.CodeNoStepSeen, fmt.Sprintf("%s of an optimizer %s seen, %d are needed", quantity.Count(r.Steps, "step"), quantity.Word(r.Steps, "was", "were"), leastSteps))
	}
	if form == formPublished {
		bytes = r.AfterBackwardBytes
	}
	e := estimator.Estimate{Confidence: estimator.Low, Fits: bytes+outside <= card.Total.Bytes, Reasons: append(slices.Clone(b.Manifest.Reasons),
		estimator.Reason{Code: estimator.CodeFakeTensors, Detail: "the bytes of tensors that live at once: no allocator, no workspaces"})}
	if r.ValuesRead > 0 {
		e.Reasons = append(e.Reasons, estimator.Reason{Code: estimator.CodeValuesReadBack, Detail: fmt.Sprintf("%s that no tensor had %s answered by 0", quantity.Count(r.ValuesRead, "number"), quantity.Word(r.ValuesRead, "was", "were"))})
	}
	if slices.Contains(r.Replaced, "compile") {
		e.Reasons = append(e.Reasons, estimator.Reason{Code: estimator.CodeFakeTensors, Detail: "what the program compiles was run uncompiled"})
	}
	e.Ranks = []estimator.Rank{{PeakAllocatedBytes: bytes, PeakReservedBytes: bytes, OutsideBytes: outside, ComfortableBytes: bytes + outside,
		ComfortableHighBytes: bytes + max(outside, outsideHigh)}}
	return e, nil
}
