package gpumemnet

import (
	"errors"
	"fmt"
	"slices"
)

const bytesPerNumber = 4 // fp32

// sums is what a program reserves as a sum of what its layers hold, each with a factor that least squares found: tools/gpumemnet/sums.py.
type sums struct {
	Terms   []string  `json:"terms"`
	Factors []float64 `json:"factors"`
	// Ratios say how the true figure of programs that were not fitted lies to the sum, from the smallest to the largest.
	Ratios []float64 `json:"ratios"`
}

func termNames(k Kind) []string {
	names := []string{"constant"}
	for _, token := range tokensOf[k] {
		names = append(names, "outputs of "+token)
	}
	return append(names, "parameters", "states", "largest outputs", "largest parameters", "largest outputs of two")
}

// terms are those of a program, in MiB.
func terms(k Kind, batch, states float64, tokens []token) []float64 {
	kinds := len(tokensOf[k])
	out := make([]float64, len(termNames(k)))
	after := out[1+kinds:] // parameters, states, largest outputs, largest parameters, largest outputs of two
	before := 0.0
	for _, t := range tokens {
		mib, parameters := t.activations*batch*bytesPerNumber/bytesPerMiB, t.parameters*bytesPerNumber/bytesPerMiB
		out[1+t.kind] += mib
		after[0] += parameters
		after[2], after[3], after[4] = max(after[2], mib), max(after[3], parameters), max(after[4], before+mib)
		before = mib
	}
	out[0], after[1] = 1, after[0]*states
	return out
}

// mib is the sum.
func (s *sums) mib(k Kind, x []float64, tokens []token) float64 {
	return dot(s.Factors, terms(k, x[scalarBatch], x[scalarStates], tokens))
}

// classAndShare puts a sum into a class, and says which share of the ratios leaves it there, the sum itself counted as one.
func (w *weights) classAndShare(mib float64) (class int, share float64) {
	class = w.classOf(mib)
	in := 1
	for _, r := range w.Nets.Sums.Ratios {
		if w.classOf(mib*r) == class {
			in++
		}
	}
	return class, float64(in) / float64(1+len(w.Nets.Sums.Ratios))
}

func (w *weights) classOf(mib float64) int {
	for i, edge := range w.EdgesMiB {
		if mib <= float64(edge) {
			return i
		}
	}
	return len(w.EdgesMiB)
}

func (s *sums) check(k Kind) error {
	if !slices.Equal(s.Terms, termNames(k)) {
		return fmt.Errorf("terms: %v, this program makes %v", s.Terms, termNames(k))
	}
	if err := vector(s.Factors, len(s.Terms), false); err != nil {
		return fmt.Errorf("factors: %w", err)
	}
	if len(s.Ratios) < 1 || len(s.Ratios) > maxMembers {
		return fmt.Errorf("ratios: %d, want 1 to %d", len(s.Ratios), maxMembers)
	}
	if err := vector(s.Ratios, len(s.Ratios), true); err != nil {
		return fmt.Errorf("ratios: %w", err)
	}
	if slices.Min(s.Factors) < 0 {
		return errors.New("factors: nothing that a program holds makes it smaller")
	}
	return nil
}
