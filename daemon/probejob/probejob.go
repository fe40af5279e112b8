// Package probejob is the document that a probe fetches: what the daemon wants to have run. Both sides of probeapi import it.
package probejob

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// Schema names the JSON form of Job.
const Schema = "gresize.probejob/1"

// Bounds on what a probe takes on.
const (
	maxDevices       = 64
	maxTasks         = 1024
	maxBudgetSeconds = 24 * 3600
	maxParts         = 16
	maxSlowdown      = 1000
	maxBytes         = 1 << 48
)

// Job is what a probe is told. []byte is base64 in JSON.
type Job struct {
	Schema string `json:"schema"`
	Script []byte `json:"script"`
	// Argv are the script's arguments, without its own path.
	Argv    [][]byte `json:"argv"`
	WorkDir string   `json:"work_dir"`
	// GPU is the id of the profile to model, Devices how many of them.
	GPU           string `json:"gpu"`
	Steps         int    `json:"steps"`
	BudgetSeconds int    `json:"budget_seconds"`
	Devices       int    `json:"devices"`
	// Tasks is the number of tasks on the node; 0 means 1.
	Tasks int `json:"tasks,omitempty"`
	// Array is set for a task of a job array.
	Array *ArrayTask `json:"array,omitempty"`
	// RecordInputs asks for the list of the files that the script reads.
	RecordInputs bool `json:"record_inputs,omitempty"`
	// Inputs are the files that the probe of an earlier job read, in the form of estimator/probe/inputs: when all of them are unchanged, nothing is run, and
	// that is reported with InputsOf, which is that job's row in the log.
	Inputs   []byte `json:"inputs,omitempty"`
	InputsOf int64  `json:"inputs_of,omitempty"`
	// Recording is how the script is run and what is recorded of it.
	Recording Recording `json:"recording,omitzero"`
	// Swap asks for a plan with which the script runs on a card that is too small for it, and for the bundle of a run with it.
	Swap *Swap `json:"swap,omitempty"`
}

// Swap is what the plan is made for.
type Swap struct {
	// TargetBytes is the card's memory that the job may take, all in all.
	TargetBytes int64 `json:"target_bytes"`
}

// MaxPlanBytes bounds a plan's file, which the daemon keeps and a node fetches.
const MaxPlanBytes = 256 << 10

// Plan is what a probe found: a plan, which is read by the job's own processes alone, and what it costs.
type Plan struct {
	// Slowdown is by how many times a step is longer at most, by roofline; 1: by nothing.
	Slowdown   float64 `json:"slowdown"`
	HostBytes  int64   `json:"host_bytes"`
	MovedBytes int64   `json:"moved_bytes"`
	// Body is the plan's file.
	Body []byte `json:"body"`
}

// Validate returns the first fault with the field's name.
func (p *Plan) Validate() error {
	switch {
	case !(p.Slowdown >= 1 && p.Slowdown <= maxSlowdown):
		return fmt.Errorf("slowdown: %v is not between 1 and %d", p.Slowdown, maxSlowdown)
	case p.HostBytes < 0 || p.HostBytes > maxBytes || p.MovedBytes < 0 || p.MovedBytes > maxBytes:
		return fmt.Errorf("host_bytes or moved_bytes: %d, %d", p.HostBytes, p.MovedBytes)
	case len(p.Body) == 0 || len(p.Body) > MaxPlanBytes:
		return fmt.Errorf("body: %d bytes, at most %d", len(p.Body), MaxPlanBytes)
	}
	return nil
}

// ArrayTask is what a task of a job array sees of it.
type ArrayTask struct {
	JobID uint32 `json:"job_id"`
	Task  uint32 `json:"task"`
	Count uint32 `json:"count"`
	Min   uint32 `json:"min"`
	Max   uint32 `json:"max"`
	Step  uint32 `json:"step"`
}

// Recording is what the site's estimators need of a run: its mode and its optional parts, in the words of the trace bundle. The zero value is a run on
// the virtual GPU.
type Recording struct {
	Mode  string   `json:"mode,omitempty"`
	Parts []string `json:"parts,omitempty"`
}

var recordingWord = regexp.MustCompile(`^[a-z][a-z_]{0,31}$`)

func (r *Recording) validate() error {
	if len(r.Parts) > maxParts {
		return fmt.Errorf("recording.parts: %d, at most %d", len(r.Parts), maxParts)
	}
	for _, word := range append([]string{r.Mode}, r.Parts...) {
		if word != "" && !recordingWord.MatchString(word) {
			return fmt.Errorf("recording: %.40q is no word", word)
		}
	}
	return nil
}

// Unchanged is the word of a probe that all files are as they were for an earlier job.
type Unchanged struct {
	// Job is Job.InputsOf.
	Job int64 `json:"job"`
}

// Validate returns the first fault with the field's name.
func (j *Job) Validate() error {
	switch {
	case j.Schema != Schema:
		return fmt.Errorf("schema: %q, want %q", j.Schema, Schema)
	case len(j.Script) < 2 || !bytes.HasPrefix(j.Script, []byte("#!")):
		return errors.New("script: does not begin with #! and an interpreter")
	case !filepath.IsAbs(j.WorkDir):
		return fmt.Errorf("work_dir: %q is not absolute", j.WorkDir)
	case j.Steps < 0 || j.BudgetSeconds < 1 || j.BudgetSeconds > maxBudgetSeconds:
		return fmt.Errorf("steps or budget_seconds: %d, %d", j.Steps, j.BudgetSeconds)
	case j.Tasks < 0 || j.Tasks > maxTasks:
		return fmt.Errorf("tasks: %d", j.Tasks)
	case j.Devices < 0 || j.Devices > maxDevices:
		return fmt.Errorf("devices: %d", j.Devices)
	}
	if j.Swap != nil && (j.Swap.TargetBytes < 1 || j.Swap.TargetBytes > maxBytes) {
		return fmt.Errorf("swap.target_bytes: %d", j.Swap.TargetBytes)
	}
	return j.Recording.validate()
}
