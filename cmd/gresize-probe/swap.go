package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gresize/gresize/daemon/probejob"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/offload"
)

// withPlan makes a plan with which the job's script fits a card that is too small for it, and probes the script with it, as any job is probed. The reason says why there is none.
func (p *program) withPlan(ctx context.Context, job *probejob.Job) (*trace.Bundle, *probejob.Plan, *estimator.Reason) {
	failed := func(err error) (*trace.Bundle, *probejob.Plan, *estimator.Reason) {
		return nil, nil, &estimator.Reason{Code: estimator.CodeProbeRefused, Detail: trace.Clip([]byte(err.Error()), estimator.MaxDetailBytes)}
	}
	o, err := p.options(job)
	if err != nil {
		return failed(err)
	}
	fitted, err := offload.Fit(ctx, offload.Request{Run: o, TargetBytes: job.Swap.TargetBytes, Link: swap.PublishedLink, Tell: func(string) {}})
	if err != nil {
		return failed(err)
	}
	if fitted.Plan == nil {
		return failed(fmt.Errorf("a run for a plan found that %d bytes are enough as it is, and the run before found that they are not", job.Swap.TargetBytes))
	}
	if fitted.Plan.Slowdown == nil && fitted.Plan.Moves() > 0 {
		return failed(errors.New("how long the kernels of a step take is not known, so that no slowdown can be told"))
	}
	plan := &probejob.Plan{Slowdown: 1, HostBytes: fitted.Plan.HostBytes, MovedBytes: fitted.Plan.MovedBytes}
	if s := fitted.Plan.Slowdown; s != nil {
		plan.Slowdown = 1 + max(s.High, 0)
	}
	if plan.Body, err = json.Marshal(fitted.Plan); err != nil {
		return failed(err)
	}
	if err := plan.Validate(); err != nil {
		return failed(err)
	}
	o.Plan, o.Env = plan.Body, fitted.Plan.Environment(o.Env)
	result, err := probe.Run(ctx, o)
	if err != nil {
		return failed(err)
	}
	return result.Bundle, plan, nil
}

// plan leaves a plan, before the bundle of the run with it.
func (c *client) plan(ctx context.Context, plan *probejob.Plan) error {
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return c.post(ctx, "/plan", "application/json", data)
}
