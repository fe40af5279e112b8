package probe

import (
	"slices"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/faketensor"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// faked is the engine of the mode in which the tensors on the card have no content. The replaced libraries answer what the program asks about its card.
type faked struct{}

func (faked) Name() string { return string(trace.ModeFake) }

func (faked) Environment(o EngineOptions, base []string) ([]string, error) {
	return vgpu.Environment(o, base)
}

// Read reads what the processes left.
func (faked) Read(reportDir string) (Reports, error) {
	run, err := faketensor.ReadRun(reportDir)
	if err != nil {
		return Reports{}, err
	}
	if len(run.Reports) == 0 {
		return vgpu.ReadReports(reportDir) // where torch could not even be imported, that is said there
	}
	r := Reports{TorchSeen: true, CPUOnly: run.CPUOnly(), Stopped: run.Stopped(), BudgetSpent: run.BudgetSpent(), Ranks: run.Ranks}
	for _, p := range run.Reports {
		r.Steps = max(r.Steps, p.Steps)
		r.Versions = estimator.Versions{Python: p.Python, Torch: p.Torch, CUDA: p.CUDA}
		if p.WithoutContent != "" {
			r.Reasons = append(r.Reasons, reason(estimator.CodeNotCovered, "the program asks for a value that no tensor has: "+p.WithoutContent))
		}
		if x := p.Exception; x != nil && r.Failure == "" {
			r.Failure = x.Type + ": " + x.Text
		}
	}
	return r, nil
}

// Estimate leaves the answer to the estimators that read such a run.
func (e faked) Estimate(b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	return estimator.NewUnknown(e.Name(), p.ID, append(slices.Clone(b.Manifest.Reasons), reason(estimator.CodeNoEstimator, "the run was made for its bundle"))...)
}
