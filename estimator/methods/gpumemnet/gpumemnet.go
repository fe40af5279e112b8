// Package gpumemnet is the estimator of GPUMemNet (arXiv 2602.17817): small nets that put a training program into a class of memory by its list of
// layers alone. The answer is the upper edge of the class. The nets were trained on programs of random shape that were run on the virtual GPU
// (tools/gpumemnet), and a sum was fitted to the same; here they are only evaluated, and they answer only for what is like their training data.
package gpumemnet

import (
	"fmt"
	"slices"
)

// Name is the name of this estimator in answers.
const Name = "gpumemnet"

const (
	bytesPerMiB = 1 << 20
	answersSums = "sums"
)

// Layer is one line of a printed summary of a model.
type Layer struct {
	// Class is the name of the layer's class, such as Linear.
	Class string
	// Activations is the number of elements of its output for one sample.
	Activations int64
	// Parameters is the number of its own parameters.
	Parameters int64
}

// Program is what the nets are told: the layers in the order of the forward pass, the samples of one batch, and how many numbers the optimizer keeps for
// each parameter: 0 as SGD does, 1 as with momentum, 2 as Adam.
type Program struct {
	Layers          []Layer
	Batch           int64
	OptimizerStates int64
}

// Kind is a family of programs, for which there is a net of its own.
type Kind string

// The three kinds.
const (
	MLP         Kind = "mlp"
	CNN         Kind = "cnn"
	Transformer Kind = "transformer"
)

// Unknown says why the nets have no answer for a program. It is an answer, not a fault.
type Unknown struct {
	// Code is stable: no_layers, unknown_layer, outside_training, beyond_bins.
	Code   string
	Detail string
}

func (u *Unknown) Error() string { return u.Code + ": " + u.Detail }

// Answer is the class that a program was put into.
type Answer struct {
	Kind Kind
	// Net is what answered: mlp (the ensemble of perceptrons), encoder, or sums (least squares).
	Net string
	// Class is its number, from 0.
	Class int
	// LowerBytes and UpperBytes are the edges of the class: bytes that PyTorch reserves at the peak.
	LowerBytes, UpperBytes int64
	// Probability is how sure the answer is, not how often it is right: the share of the class in the softmax of the logits, and of a sum the share of
	// the errors on programs that were not fitted which leave it in its class.
	Probability float64
}

// Classify puts a program into a class. The error is an *Unknown where the nets have no answer.
func Classify(p Program) (Answer, error) {
	kind, err := p.kind()
	if err != nil {
		return Answer{}, err
	}
	w, err := bundledWeights(kind)
	if err != nil {
		return Answer{}, err
	}
	return w.classify(p)
}

func (w *weights) classify(p Program) (Answer, error) {
	x, tokens, err := w.features(p)
	if err != nil {
		return Answer{}, err
	}
	if err := w.inRange(x, tokens); err != nil {
		return Answer{}, err
	}
	class, probability := w.class(w.logits(w.Answers, x, tokens))
	if class == len(w.EdgesMiB) {
		return Answer{}, &Unknown{"beyond_bins", fmt.Sprintf("the answer is that PyTorch would reserve more than %d MiB, the largest that it was trained on", w.EdgesMiB[class-1])}
	}
	a := Answer{Kind: w.Kind, Net: w.Answers, Class: class, UpperBytes: w.EdgesMiB[class] * bytesPerMiB, Probability: probability}
	if class > 0 {
		a.LowerBytes = w.EdgesMiB[class-1] * bytesPerMiB
	}
	return a, nil
}

// class is the largest of the logits and its share, or the class of a sum.
func (w *weights) class(logits []float64) (class int, share float64) {
	if w.Answers == answersSums {
		return w.classAndShare(logits[0])
	}
	for i, l := range logits {
		if l > logits[class] {
			class = i
		}
	}
	return class, softmax(slices.Clone(logits))[class]
}
