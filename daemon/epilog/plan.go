package epilog

import (
	"fmt"
	"path/filepath"
)

// SchemaPlan names the JSON form of a question for a plan, which is a Wanted.
const SchemaPlan = "gresize.plan/1"

// PathPlan is where the TaskProlog of a job that begins asks for its plan, in the name of the job's owner, on the address of the probes.
const PathPlan = "/v1/plan"

// Plan is the answer. Most jobs have none.
type Plan struct {
	// Body is the plan's file (gresize.offload/1); empty: there is none.
	Body []byte `json:"body,omitempty"`
	// Slowest is by how many times a step may be longer before the job ends to run again as its owner asked; 0: it goes on, however slow it is.
	Slowest float64 `json:"slowest,omitempty"`
}

// SlowStep begins the line with which a job that runs with a plan says that its steps are too slow. The Python layer has the same words.
const SlowStep = "gresize: steps are too slow with the plan: "

// PlansFolder is where a node keeps the plans of the jobs that run there, each in a file of the job's owner.
const PlansFolder = "/tmp"

// PlanFile is the pattern of the name of a job's file in it.
func PlanFile(job uint32) string { return fmt.Sprintf("gresize-job%d-*.plan", job) }

// PlanFiles are those that a job has left.
func PlanFiles(job uint32) []string {
	files, err := filepath.Glob(filepath.Join(PlansFolder, PlanFile(job)))
	if err != nil {
		return nil
	}
	return files
}
