package probe

import (
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// profiled is the engine of the mode in which a command runs on the CPU under PyTorch's profiler. The replaced libraries are there as well: they
// answer what the program asks about its card.
type profiled struct{}

func (profiled) Name() string { return string(trace.ModeProfile) }

func (profiled) Environment(o EngineOptions, base []string) ([]string, error) {
	return vgpu.Environment(o, base)
}

// Read reads what the processes left, those first that trained.
func (profiled) Read(reportDir string) (Reports, error) {
	processes, err := cpuprofile.ReadProcesses(reportDir)
	if err != nil {
		return Reports{}, err
	}
	if len(processes) == 0 {
		return vgpu.ReadReports(reportDir) // where torch could not even be imported, that is said there
	}
	r := Reports{TorchSeen: true}
	for i := range processes {
		p := processes[i].Report
		r.Stopped, r.BudgetSpent = r.Stopped || p.Stopped(), r.BudgetSpent || p.BudgetSpent()
		if x := p.Exception; x != nil && r.Failure == "" {
			r.Failure = x.Type + ": " + x.Text
		}
		if p.Steps == 0 && len(processes[i].Trace) == 0 {
			continue
		}
		r.Ranks = append(r.Ranks, trace.Rank{Report: processes[i].Raw, Profile: processes[i].Trace})
	}
	r.BudgetSpent = r.BudgetSpent && !r.Stopped
	first := processes[0].Report
	r.Steps = first.Steps
	r.Versions = estimator.Versions{Python: first.Python, Torch: first.Torch}
	if first.CUDA != nil {
		r.Versions.CUDA = *first.CUDA
	}
	if r.Failure != "" {
		r.Reasons = append(r.Reasons, reason(estimator.CodePhaseNotReached, vgpu.EndedBeforeItsTime+r.Failure))
	}
	if len(r.Ranks) > trace.MaxRanks {
		return Reports{}, fmt.Errorf("%d processes trained, at most %d are handled", len(r.Ranks), trace.MaxRanks)
	}
	// A bundle has room for few traces, and one process is all that the methods know how to read.
	for i := 1; i < len(r.Ranks); i++ {
		r.Ranks[i].Profile = nil
	}
	return r, nil
}

// Estimate leaves the answer to the estimators that read a profile: the bundle is what the run was for.
func (e profiled) Estimate(b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	return estimator.NewUnknown(e.Name(), p.ID, append(slices.Clone(b.Manifest.Reasons), reason(estimator.CodeNoEstimator, "the run was made for its bundle"))...)
}
