// Package estimator owns the words that every estimator and every reader of an
// answer share: what an Estimate is, how sure it is, and why. It knows nothing
// of Slurm, of daemons or of how an estimate is made.
package estimator

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
)

// SchemaEstimate names the JSON form of Estimate. It changes when a key changes its meaning.
const SchemaEstimate = "gresize.estimate/1"

// Confidence says how far an Estimate may be trusted.
type Confidence string

// The four levels, from the best to the worst.
const (
	// Exact: every answer that the run asked for was answered by real code or a proven model.
	Exact Confidence = "exact"
	// High: a bounded part was modelled; the interval covers it.
	High Confidence = "high"
	// Low: the number is a hint.
	Low Confidence = "low"
	// Unknown: no number may be used.
	Unknown Confidence = "unknown"
)

var confidenceRank = map[Confidence]int{Exact: 3, High: 2, Low: 1, Unknown: 0}

// Valid reports whether c is one of the four levels.
func (c Confidence) Valid() bool { _, ok := confidenceRank[c]; return ok }

// AtMost returns the weaker of c and limit.
func (c Confidence) AtMost(limit Confidence) Confidence {
	if confidenceRank[limit] < confidenceRank[c] {
		return limit
	}
	return c
}

// Reason is one cause for a step down in confidence. Code is stable, Detail is for people.
type Reason struct {
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// HasReason says whether the estimate has a reason of this code.
func (e *Estimate) HasReason(code string) bool {
	return slices.ContainsFunc(e.Reasons, func(r Reason) bool { return r.Code == code })
}

// Rank is what one GPU of the job needs. All sizes are bytes.
type Rank struct {
	Rank int `json:"rank"`
	// PeakAllocatedBytes is the largest sum of live blocks of PyTorch's allocator.
	PeakAllocatedBytes int64 `json:"peak_allocated_bytes"`
	// PeakReservedBytes is the largest sum of segments of PyTorch's allocator.
	PeakReservedBytes int64 `json:"peak_reserved_bytes"`
	// OutsideBytes is device memory that no allocator of PyTorch sees: context, modules, handles, NCCL.
	OutsideBytes int64 `json:"outside_bytes"`
	// ComfortableBytes = PeakReservedBytes + OutsideBytes: the job runs as on a larger card.
	ComfortableBytes int64 `json:"comfortable_bytes"`
	// ComfortableLowBytes is the lower end of the interval where it lies below ComfortableBytes: the need depends on values. 0: there is none.
	ComfortableLowBytes int64 `json:"comfortable_low_bytes,omitempty"`
	// ComfortableHighBytes is the upper end of the interval round ComfortableBytes; requests are made from it.
	ComfortableHighBytes int64 `json:"comfortable_high_bytes"`
	// MinimumBytes is the smallest card on which the same requests still succeed, with retries and cached memory given back, and what lies
	// outside; 0 when it was not found. Smaller workspaces that a library may fall back to are not in it.
	MinimumBytes int64 `json:"minimum_bytes,omitempty"`
}

// Versions is what the answer rests on.
type Versions struct {
	Gresize string `json:"gresize"`
	Python  string `json:"python,omitempty"`
	Torch   string `json:"torch,omitempty"`
	JAX     string `json:"jax,omitempty"`
	CUDA    string `json:"cuda,omitempty"`
	CuDNN   string `json:"cudnn,omitempty"`
	Driver  string `json:"driver,omitempty"`
}

// Estimate is the answer of an estimator for one job on one GPU model.
type Estimate struct {
	Schema    string `json:"schema"`
	Estimator string `json:"estimator"`
	GPU       string `json:"gpu"`
	Ranks     []Rank `json:"ranks"`
	// HostPeakBytes is the most host memory that all processes of the job take together, on a node with the GPU, but for what NVIDIA's libraries take there:
	// DriverHostHighBytes at most for each rank. 0: not known.
	HostPeakBytes int64      `json:"host_peak_bytes,omitempty"`
	Confidence    Confidence `json:"confidence"`
	Reasons       []Reason   `json:"reasons"`
	Versions      Versions   `json:"versions"`
	WallSeconds   float64    `json:"wall_seconds"`
	Steps         int        `json:"steps"`
	Fits          bool       `json:"fits"` // the run did not meet the end of the modelled card's memory
}

// DriverHostHighBytes is the most of the host's memory that NVIDIA's driver and libraries were seen to take in one process that uses a GPU: 1122 MiB for PyTorch's
// kernels and 594 MiB for cuDNN's (pytorch/pytorch 12873, kernels loaded at once; 1203 MiB of both in 106511, five years later; with lazy loading, the default of CUDA 12.2,
// less). No run on the virtual GPU loads them, and none of it was measured by ourselves: it is a bound beside HostPeakBytes, and not in it.
const DriverHostHighBytes = int64(1717) << 20

// Limits on what Validate accepts; an estimator's answer is a stranger's input.
const (
	MaxRanks       = 1024
	MaxReasons     = 256
	MaxDetailBytes = 2048
	MaxBytes       = int64(1) << 50
)

var reasonCode = regexp.MustCompile(`^[a-z][a-z0-9_]{1,63}$`)

// Validate checks ranges and consistency. It returns the first fault with the field's name.
func (e *Estimate) Validate() error {
	if e.Schema != SchemaEstimate {
		return fmt.Errorf("schema: %q, want %q", e.Schema, SchemaEstimate)
	}
	if !e.Confidence.Valid() {
		return fmt.Errorf("confidence: unknown level %q", e.Confidence)
	}
	if len(e.Ranks) > MaxRanks {
		return fmt.Errorf("ranks: %d, at most %d", len(e.Ranks), MaxRanks)
	}
	if len(e.Ranks) == 0 && e.Confidence != Unknown {
		return errors.New("ranks: none, though the confidence is not unknown")
	}
	if len(e.Reasons) > MaxReasons {
		return fmt.Errorf("reasons: %d, at most %d", len(e.Reasons), MaxReasons)
	}
	for i, r := range e.Reasons {
		if !reasonCode.MatchString(r.Code) {
			return fmt.Errorf("reasons[%d].code: %q is no code", i, r.Code)
		}
		if len(r.Detail) > MaxDetailBytes {
			return fmt.Errorf("reasons[%d].detail: %d bytes, at most %d", i, len(r.Detail), MaxDetailBytes)
		}
	}
	if math.IsNaN(e.WallSeconds) || math.IsInf(e.WallSeconds, 0) || e.WallSeconds < 0 || e.Steps < 0 {
		return errors.New("wall_seconds or steps: out of range")
	}
	for i, r := range e.Ranks {
		for _, f := range []struct {
			name string
			v    int64
		}{{"peak_allocated_bytes", r.PeakAllocatedBytes}, {"peak_reserved_bytes", r.PeakReservedBytes}, {"outside_bytes", r.OutsideBytes},
			{"comfortable_bytes", r.ComfortableBytes}, {"comfortable_high_bytes", r.ComfortableHighBytes}, {"comfortable_low_bytes", r.ComfortableLowBytes}, {"minimum_bytes", r.MinimumBytes}} {
			if f.v < 0 || f.v > MaxBytes {
				return fmt.Errorf("ranks[%d].%s: %d is out of range", i, f.name, f.v)
			}
		}
		if r.PeakAllocatedBytes > r.PeakReservedBytes {
			return fmt.Errorf("ranks[%d]: allocated is larger than reserved", i)
		}
		if r.ComfortableBytes != r.PeakReservedBytes+r.OutsideBytes || r.ComfortableHighBytes < r.ComfortableBytes || r.ComfortableLowBytes > r.ComfortableBytes {
			return fmt.Errorf("ranks[%d]: comfortable does not add up", i)
		}
		if r.MinimumBytes > r.ComfortableBytes {
			return fmt.Errorf("ranks[%d]: minimum is larger than comfortable", i)
		}
	}
	return nil
}

// Largest returns the rank that needs the most memory; ok is false when there is none.
func (e *Estimate) Largest() (r Rank, ok bool) {
	for _, x := range e.Ranks {
		if !ok || x.ComfortableHighBytes > r.ComfortableHighBytes {
			r, ok = x, true
		}
	}
	return r, ok
}

// NewUnknown makes the answer that carries no number.
func NewUnknown(estimatorName, gpu string, reasons ...Reason) Estimate {
	return Estimate{Schema: SchemaEstimate, Estimator: estimatorName, GPU: gpu, Ranks: []Rank{}, Confidence: Unknown, Reasons: reasons}
}
