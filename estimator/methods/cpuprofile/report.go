// Package cpuprofile reads what a run on the CPU under PyTorch's profiler left: the report of each process, and the profiler's trace with its
// memory events, operators, modules and iterations. What a GPU would have done instead is the matter of the estimators that read it.
package cpuprofile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/gresize/gresize/estimator/trace"
)

// Schema names the form of a process's report.
const Schema = "gresize.profile/1"

// How a profile was recorded.
const (
	// RecordingWhole: from the first step on, with the steps of optimizers as a GPU would make them.
	RecordingWhole = "whole"
	// RecordingPublished: as xMem's published program records, without the first step.
	RecordingPublished = "published"
)

// Why a process wrote its report.
const (
	reasonStopped     = "stopped"
	reasonBudgetSpent = "budget_spent"
)

// Limits on what a user's process wrote.
const (
	maxReportBytes  = 4 << 20
	maxWeights      = 100000
	maxCount        = 1 << 30
	maxWeightBytes  = int64(1) << 44
	maxNames        = 64
	maxTextBytes    = 1024
	maxWallSeconds  = 30 * 24 * 3600
	traceNotWritten = "none"
)

// WeightKind is what a weight is.
type WeightKind int64

// The kinds of weights.
const (
	// Trained is a parameter with a gradient, Frozen one without, Buffer no parameter.
	Trained WeightKind = iota
	Frozen
	Buffer
)

// Weight is a parameter or a buffer: its bytes and its WeightKind.
type Weight [2]int64

// Bytes is the size of the weight.
func (w Weight) Bytes() int64 { return w[0] }

// Kind is what the weight is.
func (w Weight) Kind() WeightKind { return WeightKind(w[1]) }

// Report is what the Python layer of one process left beside its trace.
type Report struct {
	Schema    string           `json:"schema"`
	PID       int              `json:"pid"`
	Reason    string           `json:"reason"`
	Exception *trace.Exception `json:"exception"`
	Python    string           `json:"python"`
	Torch     string           `json:"torch"`
	CUDA      *string          `json:"cuda"`
	Rank      *int             `json:"rank"`
	WorldSize *int             `json:"world_size"`
	// Recording is RecordingWhole or RecordingPublished.
	Recording string `json:"recording"`
	// Steps counts all steps of the optimizer, Iterations those in the trace.
	Steps         int      `json:"steps"`
	Iterations    int      `json:"iterations"`
	BackwardCalls int      `json:"backward_calls"`
	Optimizers    []string `json:"optimizers"`
	// Trace says what became of the trace: written, too_large, failed or none.
	Trace string `json:"trace"`
	// Weights are in the order in which the model is moved to a GPU.
	Weights []Weight `json:"weights"`
	// Moved counts tensors that the program copied to the GPU, Replaced names what was not done as on a GPU.
	Moved    int64    `json:"moved"`
	Replaced []string `json:"replaced"`
	// LeftOnGPUBytes is what could not be led to the CPU.
	LeftOnGPUBytes int64   `json:"left_on_gpu_bytes"`
	HostPeakBytes  int64   `json:"host_peak_bytes"`
	WallSeconds    float64 `json:"wall_seconds"`
}

// Stopped says that the run was ended on purpose because enough was seen.
func (r *Report) Stopped() bool { return r.Reason == reasonStopped }

// BudgetSpent says that the run was ended because its time was over.
func (r *Report) BudgetSpent() bool { return r.Reason == reasonBudgetSpent }

// ParseReport reads and checks a report.
func ParseReport(data []byte) (*Report, error) {
	var r Report
	if err := trace.UnmarshalReport(data, &r, &r.Schema, Schema); err != nil {
		return nil, err
	}
	if r.Recording != RecordingWhole && r.Recording != RecordingPublished {
		return nil, fmt.Errorf("recording: %.40q is not known", r.Recording)
	}
	for _, n := range []int64{int64(r.Steps), int64(r.Iterations), int64(r.BackwardCalls), r.Moved} {
		if n < 0 || n > maxCount {
			return nil, fmt.Errorf("steps, iterations, backward_calls or moved: %d is out of range", n)
		}
	}
	if r.LeftOnGPUBytes < 0 || r.HostPeakBytes < 0 || math.IsNaN(r.WallSeconds) || r.WallSeconds < 0 || r.WallSeconds > maxWallSeconds {
		return nil, errors.New("left_on_gpu_bytes, host_peak_bytes or wall_seconds: out of range")
	}
	if len(r.Weights) > maxWeights {
		return nil, fmt.Errorf("weights: %d, at most %d", len(r.Weights), maxWeights)
	}
	for i, w := range r.Weights {
		if w.Bytes() < 0 || w.Bytes() > maxWeightBytes || w.Kind() < Trained || w.Kind() > Buffer {
			return nil, fmt.Errorf("weights[%d]: %d bytes of kind %d", i, w[0], w[1])
		}
	}
	if len(r.Optimizers) > maxNames || len(r.Replaced) > maxNames {
		return nil, errors.New("optimizers or replaced: too many entries")
	}
	for _, name := range slices.Concat(r.Optimizers, r.Replaced) {
		if !trace.PlainName(name) {
			return nil, fmt.Errorf("optimizers or replaced: %.40q is no name", name)
		}
	}
	if w, k := r.WorldSize, r.Rank; w != nil && (*w < 0 || *w > maxCount) || k != nil && (*k < 0 || *k > maxCount) {
		return nil, errors.New("rank or world_size: out of range")
	}
	for _, text := range []*string{&r.Reason, &r.Python, &r.Torch, &r.Trace, r.CUDA} {
		if text != nil {
			*text = clip(*text)
		}
	}
	if r.Exception != nil {
		r.Exception.Type, r.Exception.Text = clip(r.Exception.Type), clip(r.Exception.Text)
	}
	return &r, nil
}

func clip(s string) string { return trace.Clip([]byte(s), maxTextBytes) }

// Process is what one process left: its report as it was written, and its trace packed by gzip.
type Process struct {
	Report *Report
	Raw    json.RawMessage
	Trace  []byte
}

var reportName = regexp.MustCompile(`^profile-([0-9]{1,10})\.json$`)

// ReadProcesses reads a report directory, which a user's processes wrote: those that took the most steps first. Files with other names are passed
// over; a report that cannot be read is an error that names the file.
func ReadProcesses(dir string) ([]Process, error) {
	var processes []Process
	err := trace.ReadReports(dir, reportName, maxReportBytes, func(match []string, data []byte) error {
		r, err := ParseReport(data)
		if err != nil {
			return err
		}
		p := Process{Report: r, Raw: data}
		if pid, _ := strconv.Atoi(match[1]); r.Trace != traceNotWritten {
			p.Trace, err = trace.ReadRegular(filepath.Join(dir, fmt.Sprintf("profile-%d.json.gz", pid)), trace.MaxProfileBytes)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("the trace of process %d: %w", pid, err)
			}
		}
		processes = append(processes, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	slices.SortStableFunc(processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Report.Steps, a.Report.Steps), cmp.Compare(a.Report.PID, b.Report.PID))
	})
	return processes, nil
}
