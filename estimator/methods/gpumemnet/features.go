package gpumemnet

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gresize/gresize/internal/quantity"
)

// Limits on a program; it comes from a user's process.
const (
	maxLayers     = 1 << 16
	maxElements   = int64(1) << 50
	maxShownClass = 64
)

// tokenOf is the kind of token for each class of layer that the nets know, here and in tools/gpumemnet/features.py.
var tokenOf = map[string]string{
	"Linear": "linear", "Conv1D": "linear", "Conv2d": "conv2d", "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm", "LayerNorm": "layer_norm",
	"Dropout": "dropout", "MultiheadAttention": "attention", "Embedding": "embedding", "MaxPool2d": "pool", "AvgPool2d": "pool",
	"AdaptiveAvgPool2d": "pool", "Softmax": "activation", "LogSoftmax": "activation", "ReLU6": "activation", "GELUActivation": "activation",
	"NewGELUActivation": "activation", "QuickGELUActivation": "activation", "BatchNormAct2d": "batch_norm", "Sigmoid": "activation",
	"StochasticDepth": "dropout", "DropPath": "dropout", "LayerNorm2d": "batch_norm", "GroupNorm": "batch_norm", "Hardswish": "activation", "Hardsigmoid": "activation",
	"Identity": "activation", "ReLU": "activation", "LeakyReLU": "activation", "PReLU": "activation", "ELU": "activation", "SELU": "activation",
	"GELU": "activation", "Tanh": "activation", "SiLU": "activation", "Softplus": "activation", "Mish": "activation",
}

// functions are the activation functions in the order of the angle that stands for each.
var functions = []string{"Identity", "ReLU", "LeakyReLU", "PReLU", "ELU", "SELU", "GELU", "Tanh", "SiLU", "Softplus", "Mish", "Sigmoid"}

// likeFunction are classes that stand for one of them.
var likeFunction = map[string]string{"ReLU6": "ReLU", "GELUActivation": "GELU", "NewGELUActivation": "GELU", "QuickGELUActivation": "GELU"}

// tokensOf are the kinds of token of each kind of program, in the order of their one-hot place; countsOf those that are counted as features.
var (
	tokensOf = map[Kind][]string{
		MLP:         {"linear", "batch_norm", "activation", "dropout"},
		CNN:         {"conv2d", "batch_norm", "activation", "dropout", "linear", "pool"},
		Transformer: {"linear", "layer_norm", "dropout", "attention", "embedding", "activation"},
	}
	countsOf = map[Kind][]string{
		MLP:         {"batch_norm", "dropout"},
		CNN:         {"conv2d", "batch_norm", "dropout"},
		Transformer: {"linear", "layer_norm", "dropout", "attention"},
	}
	depthOf = map[Kind]string{MLP: "linear", CNN: "conv2d", Transformer: "layer_norm"}
)

// Places of scalar features that are the same for all kinds.
const (
	scalarBatch  = 4
	scalarStates = 5
)

// unboundedForSums are features that a sum has no term of: it knows a deeper network by what its layers hold.
var unboundedForSums = map[string]bool{"depth": true, "batch": true}

// featureNames are the names of the scalar features of a kind, in their order.
func featureNames(k Kind) []string {
	names := append([]string{"depth", "activations", "activations_batch", "parameters", "batch", "optimizer_states"}, countsOf[k]...)
	return append(names, "function_sin", "function_cos")
}

// token is one layer as the encoder sees it.
type token struct {
	kind                    int
	activations, parameters float64
}

// kind says which net a program belongs to.
func (p Program) kind() (Kind, error) {
	if len(p.Layers) == 0 || p.Batch < 1 {
		return "", &Unknown{"no_layers", "no list of layers with a batch size"}
	}
	if len(p.Layers) > maxLayers {
		return "", &Unknown{"outside_training", quantity.Count(len(p.Layers), "layer")}
	}
	has := map[string]bool{}
	for _, l := range p.Layers {
		has[tokenOf[l.Class]] = true
	}
	switch {
	case has["attention"], has["embedding"] && has["layer_norm"]:
		return Transformer, nil
	case has["conv2d"]:
		return CNN, nil
	case has["linear"]:
		return MLP, nil
	}
	return "", &Unknown{"unknown_layer", "no layer of weights that the nets know"}
}

// features makes what the nets see of a program: the published scalars and the states of the optimizer, as counted, and a token for each layer.
func (w *weights) features(p Program) (x []float64, tokens []token, err error) {
	counts, used := map[string]int{}, map[string]int{}
	var activations, parameters int64
	for _, l := range p.Layers {
		if l.Class == "Flatten" || l.Class == "Identity" && w.Kind != MLP {
			continue
		}
		place := slices.Index(w.Tokens, tokenOf[l.Class])
		if place < 0 {
			return nil, nil, &Unknown{"unknown_layer", fmt.Sprintf("%s is no layer that the nets for a %s know", clip(l.Class), w.Kind)}
		}
		if l.Activations < 0 || l.Parameters < 0 || l.Activations > maxElements || l.Parameters > maxElements {
			return nil, nil, &Unknown{"outside_training", fmt.Sprintf("%s: %d outputs, %d parameters", clip(l.Class), l.Activations, l.Parameters)}
		}
		counts[w.Tokens[place]]++
		name := l.Class
		if like, ok := likeFunction[name]; ok {
			name = like
		}
		used[name]++
		activations, parameters = activations+l.Activations, parameters+l.Parameters
		if activations > maxElements || parameters > maxElements {
			return nil, nil, &Unknown{"outside_training", "more outputs or parameters than any program has"}
		}
		tokens = append(tokens, token{place, float64(l.Activations), float64(l.Parameters)})
	}
	function := 0
	for i, name := range functions {
		if used[name] > used[functions[function]] {
			function = i
		}
	}
	angle := float64(function) * math.Pi / float64(len(functions))
	x = []float64{float64(counts[depthOf[w.Kind]]), float64(activations), float64(activations) * float64(p.Batch), float64(parameters), float64(p.Batch), float64(p.OptimizerStates)}
	for _, c := range countsOf[w.Kind] {
		x = append(x, float64(counts[c]))
	}
	return append(x, math.Sin(angle), math.Cos(angle)), tokens, nil
}

// inRange refuses a program that is larger or smaller than all that the nets were trained on: a net has no idea of what it does not know. A sum goes on to
// smaller ones as it does between them, and does not count layers.
func (w *weights) inRange(x []float64, tokens []token) error {
	var out []string
	sum := w.Answers == answersSums
	for i, name := range w.Features[:len(w.Features)-2] { // the last two are an angle
		if sum && (x[i] <= w.Most[i] || unboundedForSums[name] || slices.Contains(countsOf[w.Kind], name)) {
			continue
		}
		if x[i] < w.Least[i] || x[i] > w.Most[i] {
			out = append(out, fmt.Sprintf("%s %.6g, trained on %.6g to %.6g", name, x[i], w.Least[i], w.Most[i]))
		}
	}
	if len(tokens) > w.MostTokens && !sum {
		out = append(out, fmt.Sprintf("%d layers, trained on at most %d", len(tokens), w.MostTokens))
	}
	if len(out) > 0 {
		return &Unknown{"outside_training", fmt.Sprintf("as a %s: %s", w.Kind, strings.Join(out, "; "))}
	}
	return nil
}

func clip(s string) string {
	if len(s) > maxShownClass {
		s = s[:maxShownClass]
	}
	return strings.ToValidUTF8(s, "?")
}
