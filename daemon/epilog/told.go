package epilog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/strictjson"
)

// SchemaTold names the JSON form of Told.
const SchemaTold = "gresize.actual/1"

// PathTold is where it is sent, on the address of the probes.
const PathTold = "/v1/actual"

const (
	maxToldBytes = 4 << 10
	// maxRuns is above how often Slurm starts a job again.
	maxRuns = 1 << 16
)

// outOfMemory is how a run ended that had too little GPU memory.
const outOfMemory = "out_of_memory"

// Outcomes are the words for how a run ended that may be told.
var Outcomes = []string{"completed", "failed", outOfMemory, "unknown"}

// Told is what the site's own monitoring knows of one run of a job.
type Told struct {
	Schema string `json:"schema"`
	JobID  uint32 `json:"job_id"`
	// Run is 0 for the first start of the job and 1 after its first requeue; nil: the latest.
	Run *int `json:"run,omitempty"`
	// Node is empty where the whole job is meant.
	Node string `json:"node,omitempty"`
	// PeakBytes is what the GPU of the job held that held most.
	PeakBytes int64 `json:"peak_bytes"`
	// Outcome is empty where Slurm is to be asked.
	Outcome string `json:"outcome,omitempty"`
}

// ParseTold reads it defensively.
func ParseTold(data []byte) (Told, error) {
	var t Told
	if err := strictjson.Unmarshal(data, maxToldBytes, &t); err != nil {
		return t, fmt.Errorf("actual: %w", err)
	}
	return t, t.Validate()
}

// Validate says what is wrong with it.
func (t Told) Validate() error {
	switch {
	case t.Schema != SchemaTold:
		return fmt.Errorf("schema: %q, want %q", t.Schema, SchemaTold)
	case t.JobID == 0:
		return errors.New("job_id: 0 is no job")
	case t.Run != nil && (*t.Run < 0 || *t.Run > maxRuns):
		return fmt.Errorf("run: %d is not between 0 and %d", *t.Run, maxRuns)
	case t.Node != "" && !nodeName.MatchString(t.Node):
		return fmt.Errorf("node: %.40q is no name", t.Node)
	case t.PeakBytes < 1 || t.PeakBytes > estimator.MaxBytes:
		return fmt.Errorf("peak_bytes: %d is not between 1 and %d", t.PeakBytes, estimator.MaxBytes)
	case t.Outcome != "" && !slices.Contains(Outcomes, t.Outcome):
		return fmt.Errorf("outcome: %.40q is none of %q", t.Outcome, Outcomes)
	}
	return nil
}

// ToldAnswer is what was recorded.
type ToldAnswer struct {
	JobID   uint32 `json:"job_id"`
	Run     int    `json:"run"`
	Outcome string `json:"outcome"`
	// EstimateBytes is the upper end of the estimate for the card on which the job ran; 0: there is none.
	EstimateBytes int64 `json:"estimate_bytes,omitempty"`
}
