package probe

import (
	"errors"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

// virtualGPU is the engine of estimator/vgpu.
type virtualGPU struct{}

func (virtualGPU) Environment(EngineOptions, []string) ([]string, error) {
	return nil, errors.New("not built")
}
func (virtualGPU) Read(string) (Reports, error) { return Reports{}, errors.New("not built") }
func (virtualGPU) Estimate(*trace.Bundle, *gpu.Profile) estimator.Estimate {
	return estimator.Estimate{}
}
