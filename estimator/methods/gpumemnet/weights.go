package gpumemnet

import (
	"embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/gresize/gresize/internal/strictjson"
)

// schemaWeights names the form of a weights file, docs/gpumemnet.md.
const schemaWeights = "gresize.gpumemnet.weights/1"

// Limits on a weights file.
const (
	maxWeightsBytes = 8 << 20
	maxMembers      = 64
	maxDepth        = 32
	maxWidth        = 256
	maxClasses      = 64
	maxTokens       = 1 << 12
	maxEdgeMiB      = 1 << 24
)

//go:embed weights/*.json
var weightsFiles embed.FS

// linear is a matrix with one row for each output, and a bias.
type linear struct {
	Weight [][]float64 `json:"weight"`
	Bias   []float64   `json:"bias"`
}

// norm is a batch norm with the statistics of its training, or without them a layer norm.
type norm struct {
	Weight   []float64 `json:"weight"`
	Bias     []float64 `json:"bias"`
	Mean     []float64 `json:"mean,omitempty"`
	Variance []float64 `json:"variance,omitempty"`
	Eps      float64   `json:"eps"`
}

// memberLayer is a linear layer, with a batch norm and a ReLU behind it unless it is the last.
type memberLayer struct {
	Linear    linear `json:"linear"`
	BatchNorm *norm  `json:"batch_norm,omitempty"`
}

type member []memberLayer

// encoderLayer is one layer of PyTorch's TransformerEncoderLayer with one head, ReLU, and its norms behind the sums.
type encoderLayer struct {
	In     linear `json:"in"` // query, key and value, one below the other
	Out    linear `json:"out"`
	Wide   linear `json:"wide"`
	Narrow linear `json:"narrow"`
	Norm1  norm   `json:"norm1"`
	Norm2  norm   `json:"norm2"`
}

type encoder struct {
	Inputs linear         `json:"inputs"`
	Layers []encoderLayer `json:"layers"`
	Head   []member       `json:"head"`
}

// weights is one file: both nets and the sum of one kind of program, and what goes with them.
type weights struct {
	Schema string `json:"schema"`
	Kind   Kind   `json:"kind"`
	// Answers is what was best by its folds: mlp, encoder or sums.
	Answers string `json:"answers"`
	// EdgesMiB are the upper edges of the classes. FullClass: one more class follows, of what did not fit.
	EdgesMiB  []int64 `json:"edges_mib"`
	FullClass bool    `json:"full_class"`
	// Features are the names of the scalars; Least and Most are their range in training.
	Features []string  `json:"features"`
	Least    []float64 `json:"least"`
	Most     []float64 `json:"most"`
	// Tokens are the kinds of layer; MostTokens is the longest list in training.
	Tokens     []string `json:"tokens"`
	MostTokens int      `json:"most_tokens"`
	// Logarithms: scalars go in as log(1+x). Tokens always do.
	Logarithms     bool      `json:"logarithms"`
	Mean           []float64 `json:"mean"`
	Deviation      []float64 `json:"deviation"`
	TokenMean      []float64 `json:"token_mean"`
	TokenDeviation []float64 `json:"token_deviation"`
	Nets           struct {
		MLP     []member  `json:"mlp"`
		Encoder []encoder `json:"encoder"`
		Sums    *sums     `json:"sums,omitempty"`
	} `json:"nets"`
}

// classes is the number of logits.
func (w *weights) classes() int {
	if w.FullClass {
		return len(w.EdgesMiB) + 1
	}
	return len(w.EdgesMiB)
}

var bundled = map[Kind]func() (*weights, error){
	MLP:         sync.OnceValues(func() (*weights, error) { return readBundled(MLP) }),
	CNN:         sync.OnceValues(func() (*weights, error) { return readBundled(CNN) }),
	Transformer: sync.OnceValues(func() (*weights, error) { return readBundled(Transformer) }),
}

func bundledWeights(k Kind) (*weights, error) {
	if read, ok := bundled[k]; ok {
		return read()
	}
	return nil, fmt.Errorf("gpumemnet: no weights for %q", k)
}

func readBundled(k Kind) (*weights, error) {
	data, err := weightsFiles.ReadFile("weights/" + string(k) + ".json")
	if err != nil {
		return nil, fmt.Errorf("gpumemnet: %w", err)
	}
	w, err := parseWeights(data)
	if err != nil {
		return nil, fmt.Errorf("gpumemnet: weights/%s.json: %w", k, err)
	}
	if w.Kind != k {
		return nil, fmt.Errorf("gpumemnet: weights/%s.json: kind: %q", k, w.Kind)
	}
	return w, nil
}

// parseWeights reads a weights file. What it returns can be evaluated without another look at its shapes.
func parseWeights(data []byte) (*weights, error) {
	w := new(weights)
	if err := strictjson.Unmarshal(data, maxWeightsBytes, w); err != nil {
		return nil, err
	}
	if err := w.validate(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *weights) validate() error {
	if w.Schema != schemaWeights {
		return fmt.Errorf("schema: %q, want %q", w.Schema, schemaWeights)
	}
	if tokensOf[w.Kind] == nil {
		return fmt.Errorf("kind: %q", w.Kind)
	}
	if len(w.EdgesMiB) == 0 || len(w.EdgesMiB) >= maxClasses || w.EdgesMiB[0] <= 0 || !slices.IsSorted(w.EdgesMiB) || w.EdgesMiB[len(w.EdgesMiB)-1] > maxEdgeMiB {
		return fmt.Errorf("edges_mib: %v", w.EdgesMiB)
	}
	if !slices.Equal(w.Features, featureNames(w.Kind)) {
		return fmt.Errorf("features: %v, this program makes %v", w.Features, featureNames(w.Kind))
	}
	if !slices.Equal(w.Tokens, tokensOf[w.Kind]) {
		return fmt.Errorf("tokens: %v, this program makes %v", w.Tokens, tokensOf[w.Kind])
	}
	if w.MostTokens < 1 || w.MostTokens > maxTokens {
		return fmt.Errorf("most_tokens: %d", w.MostTokens)
	}
	n := len(w.Features)
	for _, f := range []struct {
		name     string
		values   []float64
		size     int
		positive bool
	}{{"least", w.Least, n, false}, {"most", w.Most, n, false}, {"mean", w.Mean, n - 2, false}, {"deviation", w.Deviation, n - 2, true},
		{"token_mean", w.TokenMean, 2, false}, {"token_deviation", w.TokenDeviation, 2, true}} {
		if err := vector(f.values, f.size, f.positive); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if has := map[string]bool{"mlp": len(w.Nets.MLP) > 0, "encoder": len(w.Nets.Encoder) > 0, answersSums: w.Nets.Sums != nil}; !has[w.Answers] {
		return fmt.Errorf("answers: %q is no net of the file", w.Answers)
	}
	if err := checkMembers(w.Nets.MLP, n, w.classes()); err != nil && len(w.Nets.MLP) > 0 {
		return fmt.Errorf("nets.mlp: %w", err)
	}
	if w.Nets.Sums != nil {
		if err := w.Nets.Sums.check(w.Kind); err != nil {
			return fmt.Errorf("nets.sums: %w", err)
		}
	}
	if len(w.Nets.Encoder) > maxMembers {
		return fmt.Errorf("nets.encoder: %d, at most %d", len(w.Nets.Encoder), maxMembers)
	}
	for i := range w.Nets.Encoder {
		if err := w.Nets.Encoder[i].check(len(w.Tokens)+2, n, w.classes()); err != nil {
			return fmt.Errorf("nets.encoder[%d]: %w", i, err)
		}
	}
	return nil
}

// vector checks the number of values and that each is a number.
func vector(v []float64, size int, positive bool) error {
	if len(v) != size {
		return fmt.Errorf("%d values, want %d", len(v), size)
	}
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) || positive && x <= 0 {
			return fmt.Errorf("%g", x)
		}
	}
	return nil
}

// check verifies that the layer takes inputs values, and returns the number of its outputs; a want of 0 is any.
func (l *linear) check(inputs, want int) (int, error) {
	outputs := len(l.Weight)
	if outputs < 1 || outputs > maxWidth || want > 0 && outputs != want {
		return 0, fmt.Errorf("%d outputs, want %d", outputs, want)
	}
	for _, row := range l.Weight {
		if err := vector(row, inputs, false); err != nil {
			return 0, fmt.Errorf("weight: %w", err)
		}
	}
	if err := vector(l.Bias, outputs, false); err != nil {
		return 0, fmt.Errorf("bias: %w", err)
	}
	return outputs, nil
}

func (n *norm) check(size int, statistics bool) error {
	if err := errors.Join(vector(n.Weight, size, false), vector(n.Bias, size, false)); err != nil {
		return err
	}
	if statistics {
		if err := errors.Join(vector(n.Mean, size, false), vector(n.Variance, size, false)); err != nil {
			return err
		}
		if slices.Min(n.Variance) < 0 {
			return fmt.Errorf("variance: %g", slices.Min(n.Variance))
		}
	} else if len(n.Mean)+len(n.Variance) > 0 {
		return errors.New("a layer norm has no statistics")
	}
	if !(n.Eps > 0 && n.Eps < 1) {
		return fmt.Errorf("eps: %g", n.Eps)
	}
	return nil
}

func checkMembers(members []member, inputs, classes int) error {
	if len(members) == 0 || len(members) > maxMembers {
		return fmt.Errorf("%d members, want 1 to %d", len(members), maxMembers)
	}
	for i, m := range members {
		if len(m) == 0 || len(m) > maxDepth {
			return fmt.Errorf("[%d]: %d layers, want 1 to %d", i, len(m), maxDepth)
		}
		width := inputs
		for k := range m {
			want, last := 0, k == len(m)-1
			if last {
				want = classes
			}
			var err error
			if width, err = m[k].Linear.check(width, want); err != nil {
				return fmt.Errorf("[%d][%d].linear: %w", i, k, err)
			}
			if last != (m[k].BatchNorm == nil) {
				return fmt.Errorf("[%d][%d].batch_norm: every layer but the last has one", i, k)
			}
			if !last {
				if err := m[k].BatchNorm.check(width, true); err != nil {
					return fmt.Errorf("[%d][%d].batch_norm: %w", i, k, err)
				}
			}
		}
	}
	return nil
}

func (e *encoder) check(token, scalars, classes int) error {
	width, err := e.Inputs.check(token, 0)
	if err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	if len(e.Layers) > maxDepth {
		return fmt.Errorf("layers: %d, at most %d", len(e.Layers), maxDepth)
	}
	for i := range e.Layers {
		l := &e.Layers[i]
		wide, err := l.Wide.check(width, 0)
		if err == nil {
			_, err = l.Narrow.check(wide, width)
		}
		if err == nil {
			_, err = l.In.check(width, 3*width)
		}
		if err == nil {
			_, err = l.Out.check(width, width)
		}
		if err := errors.Join(err, l.Norm1.check(width, false), l.Norm2.check(width, false)); err != nil {
			return fmt.Errorf("layers[%d]: %w", i, err)
		}
	}
	if err := checkMembers(e.Head, width+scalars, classes); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	return nil
}
