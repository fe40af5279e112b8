// Package bundled lists gresize's own estimators: what each is called, how a command has to be run for it, and how it answers. The daemon,
// the command line and the evaluation ask them from here in their own process; estimator/methods/bundled/plugin makes plugins of them.
package bundled

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/capacity"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/faketensor"
	"github.com/gresize/gresize/estimator/methods/gpumemnet"
	"github.com/gresize/gresize/estimator/methods/veritasest"
	"github.com/gresize/gresize/estimator/methods/xmem"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// Method is one estimator.
type Method struct {
	Name    string
	Version string
	// Summary is one line for people.
	Summary string
	// Recording is how the probe has to run a command for it.
	Recording trace.Recording
	// Estimate answers for a bundle that was recorded so, on this card. It gives Ranks, Confidence, Fits and Reasons; FromBundle fills in
	// the rest. What is not known is estimator.Unknown with a reason; an error says that the bundle is damaged.
	Estimate func(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error)
}

// Default is the name of the estimator that is asked where none is named.
const Default = vgpu.Name

// Published ends the name of an estimator that keeps to the published program, faults included, where that is not what its paper means.
const Published = "-published"

// How a command is run for the estimators of a profile, and for those of tensors without content.
var (
	profile       = trace.Recording{Mode: trace.ModeProfile}
	fake          = trace.Recording{Mode: trace.ModeFake}
	fakePublished = trace.Recording{Mode: trace.ModeFake, Parts: []trace.Part{trace.PartPublished}}
	asPublished   = trace.Recording{Mode: trace.ModeProfile, Parts: []trace.Part{trace.PartPublished}}
)

// all is the list; its order is that of tables.
var all = []Method{
	{Name: vgpu.Name, Version: "1", Summary: "what the command itself did on the virtual GPU", Estimate: virtual},
	{Name: xmem.Name, Version: "1", Summary: "xMem in its paper's meaning: a run on the CPU, in the order that a GPU would have", Recording: profile, Estimate: xmem.Estimate},
	{Name: xmem.PublishedName, Version: "1", Summary: "xMem as its published program computes, faults included (estimate --estimator xmem --faithful)",
		Recording: asPublished, Estimate: xmem.Published},
	{Name: veritasest.Name, Version: "1", Summary: "VeritasEst, xMem's predecessor, for convolutional networks", Recording: profile, Estimate: veritasest.Estimate},
	{Name: horusName, Version: "1", Summary: "the formula of Horus as it was meant: outputs of layers, parameters, gradients", Recording: layers, Estimate: horusMeant},
	{Name: horusPublishedName, Version: "1", Summary: "the formula of Horus as it was printed: gradients for each sample, and 800 MiB", Recording: layers, Estimate: horusPublished},
	{Name: faketensor.Name, Version: "1", Summary: "tensors without content: forward, backward and optimizer steps of the command itself", Recording: fake, Estimate: faketensor.Estimate},
	{Name: faketensor.PublishedName, Version: "1", Summary: "the same as published: one forward, and the backward pass of the output's sum", Recording: fakePublished,
		Estimate: faketensor.Published},
	{Name: gpumemnet.Name, Version: "3", Summary: "GPUMemNet, fitted on the virtual GPU: a class of memory by the list of layers", Recording: layers, Estimate: byClass},
	{Name: HistoryName, Version: "1", Summary: "what earlier runs really used, from the file that " + historyVariable + " names", Estimate: fromHistory},
}

// All returns the estimators, the default one first.
func All() []Method { return slices.Clone(all) }

// Names are the names of all estimators.
func Names() []string {
	names := make([]string, 0, len(all))
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

// Find returns the estimator with a name.
func Find(name string) (Method, error) {
	for _, m := range all {
		if m.Name == name {
			return m, nil
		}
	}
	return Method{}, fmt.Errorf("no estimator %.80q is bundled; there are %s", name, strings.Join(Names(), ", "))
}

// FromBundle answers for a bundle. One speaks of the card on which it was recorded and of no other, and serves the estimators
// for whose mode the command was run.
func (m Method) FromBundle(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	if b.Manifest.GPU.ID != card.ID {
		return estimator.Estimate{}, fmt.Errorf("recorded on a %q, the question is about a %s", b.Manifest.GPU.ID, card.ID)
	}
	e, err := m.answer(b, card)
	if err != nil {
		return estimator.Estimate{}, err
	}
	e.Schema, e.Estimator, e.GPU, e.Versions, e.Steps, e.HostPeakBytes = estimator.SchemaEstimate, m.Name, card.ID, b.Manifest.Versions, b.Manifest.Steps, b.Manifest.HostPeakBytes
	if e.WallSeconds == 0 {
		e.WallSeconds = (b.Manifest.Timings.SandboxMillis + b.Manifest.Timings.RunMillis) / 1000
	}
	if e.Ranks == nil {
		e.Ranks = []estimator.Rank{}
	}
	if e.Reasons == nil {
		e.Reasons = []estimator.Reason{}
	}
	return e, e.Validate()
}

func (m Method) answer(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	if was, wanted := b.Manifest.RunMode(), m.Recording.RunMode(); was != wanted {
		return estimator.NewUnknown(m.Name, card.ID, estimator.Reason{Code: estimator.CodeRecordedOtherwise,
			Detail: fmt.Sprintf("%s needs a run in the mode %s, the bundle is of one in the mode %s", m.Name, wanted, was)}), nil
	}
	if len(b.Ranks) == 0 || b.Manifest.Outcome == trace.Crashed || b.Manifest.Outcome == trace.NotRun {
		reasons := b.Manifest.Reasons
		if len(reasons) == 0 {
			reasons = []estimator.Reason{{Code: estimator.CodeNoGPUUsed, Detail: "no process put anything on a GPU"}}
		}
		return estimator.NewUnknown(m.Name, card.ID, slices.Clone(reasons)...), nil
	}
	return m.Estimate(b, card)
}

// virtual is the estimator of the virtual GPU.
func virtual(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	e := vgpu.Estimate(b, card)
	capacity.Complete(&e, b)
	return e, nil
}
