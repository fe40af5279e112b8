package probe

import (
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/capacity"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// Reports sums up what the processes of one run left.
type Reports = vgpu.Reports

// EngineOptions is where the engine finds its things, seen from inside.
type EngineOptions = vgpu.Options

// engineOf is the engine that reads what a mode leaves.
func engineOf(mode trace.Mode) Engine {
	switch mode {
	case trace.ModeProfile:
		return profiled{}
	case trace.ModeFake:
		return faked{}
	}
	return virtualGPU{}
}

// virtualGPU is the engine of estimator/vgpu.
type virtualGPU struct{}

func (virtualGPU) Name() string { return vgpu.Name }

func (virtualGPU) Environment(o EngineOptions, base []string) ([]string, error) {
	return vgpu.Environment(o, base)
}

func (virtualGPU) Read(reportDir string) (Reports, error) { return vgpu.ReadReports(reportDir) }

func (virtualGPU) Estimate(b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	e := vgpu.Estimate(b, p)
	capacity.Complete(&e, b)
	return e
}
