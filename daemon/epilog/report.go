// Package epilog is what the Epilog of a node tells gresized after a job, for
// both sides: the document, and on the node the reading of NVML's accounting
// and of the job's output. It decides nothing.
package epilog

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/internal/strictjson"
)

// Schema names the JSON form of Report.
const Schema = "gresize.epilog/1"

// Path is where reports are sent on the address of the probes.
const Path = "/v1/epilog"

// Limits of a report.
const (
	MaxReportBytes = 16 << 10
	MaxPeaks       = 64
	MaxLineBytes   = 300
	maxPathBytes   = 4096
)

// Report is what one node says. It is sent once, and once more when the answer asked to look through the job's output and a line was found.
type Report struct {
	Schema string `json:"schema"`
	JobID  uint32 `json:"job_id"`
	UID    uint32 `json:"uid"`
	Node   string `json:"node"`
	// Peaks are those of the job's GPUs, where NVML's accounting knows them.
	Peaks []Peak `json:"peaks,omitempty"`
	// MemoryLine is the line of the output that says that the GPU's memory was used up.
	MemoryLine string `json:"memory_line,omitempty"`
}

// Peak is what the largest process of the job took on one GPU.
type Peak struct {
	GPU       string `json:"gpu"`
	PeakBytes int64  `json:"peak_bytes"`
	Processes int    `json:"processes"`
}

// Answer says what else gresized would like to know.
type Answer struct {
	// Scan are files to look through, as the user of the job.
	Scan []string `json:"scan,omitempty"`
	GID  uint32   `json:"gid,omitempty"`
}

var (
	nodeName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	gpuName  = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,128}$`)
)

// ParseReport reads a report defensively.
func ParseReport(data []byte) (Report, error) {
	var r Report
	if err := strictjson.Unmarshal(data, MaxReportBytes, &r); err != nil {
		return r, fmt.Errorf("report: %w", err)
	}
	switch {
	case r.Schema != Schema:
		return r, fmt.Errorf("schema: %q, want %q", r.Schema, Schema)
	case r.JobID == 0:
		return r, errors.New("job_id: 0 is no job")
	case !nodeName.MatchString(r.Node):
		return r, fmt.Errorf("node: %.40q is no name", r.Node)
	case len(r.Peaks) > MaxPeaks:
		return r, fmt.Errorf("peaks: %d, at most %d", len(r.Peaks), MaxPeaks)
	case len(r.MemoryLine) > MaxLineBytes:
		return r, fmt.Errorf("memory_line: %d bytes, at most %d", len(r.MemoryLine), MaxLineBytes)
	}
	for i, p := range r.Peaks {
		if !gpuName.MatchString(p.GPU) || p.PeakBytes < 1 || p.PeakBytes > estimator.MaxBytes || p.Processes < 1 {
			return r, fmt.Errorf("peaks[%d]: %+v is out of range", i, p)
		}
	}
	return r, nil
}

// ParseAnswer reads an answer defensively.
func ParseAnswer(data []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("answer: %w", err)
	}
	if len(a.Scan) > 2 {
		return a, fmt.Errorf("answer: %d files to look through, at most 2", len(a.Scan))
	}
	for _, path := range a.Scan {
		if !filepath.IsAbs(path) || len(path) > maxPathBytes || strings.ContainsRune(path, 0) {
			return a, fmt.Errorf("answer: %.80q is no absolute path", path)
		}
	}
	return a, nil
}
