// Package horus is the published formula of Horus: the memory of a training run from the sizes of a network's layers, its parameters and its
// batch, and nothing else. It has two forms: as its authors' successors ran and printed it, and as it was meant.
package horus

import (
	"errors"
	"fmt"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace/modules"
)

// PublishedOutsideBytes is the constant that the published figures have on top of the formula, for a CUDA context.
const PublishedOutsideBytes = 800 << 20

// publishedElementBytes is the size of an element, whatever it really is.
const publishedElementBytes = 4

// ErrNotCovered wraps what the method has no rule for.
var ErrNotCovered = errors.New("horus has no rule for it")

// Counts are what the formula is made of.
type Counts struct {
	// Activations are the elements of the outputs of all layers for one sample.
	Activations int64
	Batch       int64
	Parameters  int64
}

// PublishedBytes is the formula as it was run: 4·(A·B + P + B·P). It multiplies the gradients by the batch.
func (c Counts) PublishedBytes() int64 {
	return publishedElementBytes * (c.Activations*c.Batch + c.Parameters + c.Batch*c.Parameters)
}

// CountPublished counts as the published figures did: pooling layers are left out, a layer after the embedding counts the features of one token,
// and each call of a layer counts.
func CountPublished(t *modules.Table) (Counts, error) {
	n, err := network(t)
	if err != nil {
		return Counts{}, err
	}
	c := Counts{Batch: n.Batch, Parameters: n.Parameters}
	activations := 0.0 // the product of what a stranger says may be beyond an integer
	for i := range n.Modules {
		m := &n.Modules[i]
		if m.Kind == modules.Pool || !m.Leaf || len(m.Outputs) == 0 {
			continue
		}
		activations += float64(featuresOfOne(m)) * float64(m.CallsOnce)
	}
	if sum := publishedElementBytes * (activations + float64(c.Parameters) + 1) * float64(c.Batch+1); sum > float64(estimator.MaxBytes) {
		return Counts{}, fmt.Errorf("%w: %.3g bytes are more than any card has", ErrNotCovered, sum)
	}
	c.Activations = int64(activations)
	return c, nil
}

// featuresOfOne is the size of a layer's output for one sample, as a parser of printed summaries saw it.
func featuresOfOne(m *modules.Module) int64 {
	shape := m.Outputs[0]
	if len(shape) == 3 && m.Kind != modules.Embedding { // batch, tokens, features
		return shape[2]
	}
	elements := int64(1)
	for _, n := range shape[min(1, len(shape)):] {
		if n > 0 && elements > estimator.MaxBytes/n {
			return estimator.MaxBytes
		}
		elements *= n
	}
	return elements
}

// MeantBytes is the formula as it was meant: the outputs of all layers for the batch, the parameters, and one gradient for each parameter that
// gets one, in their real types. Optimizer states and workspaces have no place in the method.
func MeantBytes(t *modules.Table) (int64, error) {
	n, err := network(t)
	if err != nil {
		return 0, err
	}
	bytes := float64(n.ParameterBytes)
	if n.Parameters > 0 {
		bytes += float64(n.ParameterBytes) * float64(n.Trainable) / float64(n.Parameters)
	}
	for i := range n.Modules {
		m := &n.Modules[i]
		if m.Leaf || m.Kind == modules.Attention {
			bytes += float64(m.OutputBytes) * float64(m.CallsOnce)
		}
	}
	if bytes > float64(estimator.MaxBytes) {
		return 0, fmt.Errorf("%w: %.3g bytes are more than any card has", ErrNotCovered, bytes)
	}
	return int64(bytes), nil
}

// network is the one that is trained. The method knows programs that train one network, whose layers were seen.
func network(t *modules.Table) (*modules.Network, error) {
	if t.LeftOut > 0 {
		return nil, fmt.Errorf("%w: the table of modules is not whole", ErrNotCovered)
	}
	var found *modules.Network
	for i := range t.Networks {
		n := &t.Networks[i]
		if n.Trainable == 0 {
			continue // a loss, or a network that is only asked
		}
		if found != nil {
			return nil, fmt.Errorf("%w: several networks are trained, a %s and a %s", ErrNotCovered, found.Class, n.Class)
		}
		found = n
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("%w: no network is trained", ErrNotCovered)
	case t.Compiled && found.Calls == 0:
		return nil, fmt.Errorf("%w: the network is compiled, so its layers were not seen", ErrNotCovered)
	case !found.WithGradient:
		return nil, fmt.Errorf("%w: no forward of the %s was seen that is trained", ErrNotCovered, found.Class)
	case found.Batch == 0:
		return nil, fmt.Errorf("%w: the batch of the %s is not known", ErrNotCovered, found.Class)
	}
	return found, nil
}
