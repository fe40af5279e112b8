package bundled

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/gpumemnet"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/trace/modules"
)

// maxOwnShare: up to one in so many parameters may belong to no layer.
const maxOwnShare = 100

// knownOptimizers keep none, one or two numbers for each parameter and make no more than that in a step; beside them a counter or two.
var knownOptimizers = []string{"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Adamax"}

const maxStateRest = 0.1

// byClass answers with GPUMemNet's nets: the upper edge of the class that a program is put into.
func byClass(b *trace.Bundle, card *gpu.Profile) (estimator.Estimate, error) {
	e := estimator.Estimate{Confidence: estimator.Low, Fits: true, Reasons: slices.Clone(b.Manifest.Reasons)}
	outside, outsideHigh := card.OutsideBytes(b.Manifest.Libraries)
	if len(b.Ranks) > 1 {
		return notCovered(gpumemnet.Name, b, card, fmt.Sprintf("%d ranks: the nets know programs on one GPU", len(b.Ranks))), nil
	}
	for i := range b.Ranks {
		data := b.Ranks[i].Parts[trace.PartModules]
		if len(data) == 0 {
			return notCovered(gpumemnet.Name, b, card, fmt.Sprintf("rank %d has no table of modules", i)), nil
		}
		table, err := modules.Read(data)
		if err != nil {
			return estimator.Estimate{}, fmt.Errorf("ranks/%d/modules.jsonl: %w", i, err)
		}
		program, err := layerList(table)
		if err != nil {
			return notCovered(gpumemnet.Name, b, card, err.Error()), nil
		}
		a, err := gpumemnet.Classify(program)
		var unknown *gpumemnet.Unknown
		if errors.As(err, &unknown) {
			return notCovered(gpumemnet.Name, b, card, unknown.Error()), nil
		}
		if err != nil {
			return estimator.Estimate{}, err
		}
		e.Reasons = append(e.Reasons, estimator.Reason{Code: estimator.CodeRuleOfThumb, Detail: fmt.Sprintf(
			"a class of memory by the list of layers alone, as a %s: %d to %d MiB reserved, the upper edge is the answer", a.Kind, a.LowerBytes>>20, a.UpperBytes>>20)})
		rank := wholeRank(i, a.UpperBytes, outside, outsideHigh)
		rank.ComfortableLowBytes = a.LowerBytes + outside
		e.Ranks = append(e.Ranks, rank)
		e.Fits = e.Fits && a.UpperBytes+outside <= card.Total.Bytes
	}
	return e, nil
}

// layerList is the list of layers of the one network that is trained, as a printed summary has it. What the nets were not trained on is an error:
// they know fp32, and optimizers that keep up to two numbers for each parameter.
func layerList(t *modules.Table) (gpumemnet.Program, error) {
	var network *modules.Network
	for i := range t.Networks {
		if n := &t.Networks[i]; n.Trainable > 0 {
			if network != nil {
				return gpumemnet.Program{}, errors.New("several networks are trained: the nets know programs with one")
			}
			network = n
		}
	}
	switch {
	case t.Compiled || t.LeftOut > 0:
		return gpumemnet.Program{}, errors.New("a compiled or very large network has no whole list of layers")
	case network == nil || network.Batch < 1:
		return gpumemnet.Program{}, errors.New("no network that is trained, with a batch, was seen")
	case network.Trainable < network.Parameters:
		return gpumemnet.Program{}, errors.New("parameters without gradients: the nets know networks that are trained whole")
	case len(t.Optimizers) != 1:
		return gpumemnet.Program{}, fmt.Errorf("%d optimizers: the nets know programs with one", len(t.Optimizers))
	}
	states := math.Round(t.Optimizers[0].StateMultiplier())
	if !slices.Contains(knownOptimizers, t.Optimizers[0].Class) || math.Abs(t.Optimizers[0].StateMultiplier()-states) > maxStateRest {
		return gpumemnet.Program{}, fmt.Errorf("the optimizer %.64q keeps %.2f numbers for each parameter: the nets know %s", t.Optimizers[0].Class, t.Optimizers[0].StateMultiplier(),
			strings.Join(knownOptimizers, ", "))
	}
	p := gpumemnet.Program{Batch: network.Batch, OptimizerStates: int64(states)}
	own := int64(0) // parameters that belong to no layer, such as a class token
	attention := -1 // the last attention, to which an output layer belongs that is never called by itself
	for i := range network.Modules {
		m := &network.Modules[i]
		if m.Class == "NonDynamicallyQuantizableLinear" && attention >= 0 {
			p.Layers[attention].Parameters += m.Parameters
			continue
		}
		if !m.Leaf && m.Class != "MultiheadAttention" && m.Class != "BatchNormAct2d" {
			own += m.Parameters
			continue
		}
		if m.ParameterType != "" && m.ParameterType != "float32" || m.OutputType != "" && m.OutputType != "float32" {
			return p, fmt.Errorf("%.64s computes in %.16s and holds %.16s: the nets know fp32", m.Class, m.OutputType, m.ParameterType)
		}
		for call := range m.CallsOnce {
			if len(p.Layers) > modules.MaxRows {
				return p, fmt.Errorf("more than %d layers", modules.MaxRows)
			}
			layer := gpumemnet.Layer{Class: m.Class, Activations: m.OutputElements / network.Batch}
			if call == 0 {
				layer.Parameters = m.Parameters
			}
			if m.Class == "MultiheadAttention" {
				attention = len(p.Layers)
			}
			p.Layers = append(p.Layers, layer)
		}
	}
	if own > network.Parameters/maxOwnShare {
		return p, fmt.Errorf("%d of %d parameters are of no layer that a summary shows", own, network.Parameters)
	}
	return p, nil
}
