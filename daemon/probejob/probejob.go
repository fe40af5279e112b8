// Package probejob is the document that a probe fetches: what the daemon wants to have run. Both sides of probeapi import it.
package probejob

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
)

// Schema names the JSON form of Job.
const Schema = "gresize.probejob/1"

// Bounds on what a probe takes on.
const (
	maxDevices       = 64
	maxTasks         = 1024
	maxBudgetSeconds = 24 * 3600
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
	return nil
}
