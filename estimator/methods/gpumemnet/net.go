package gpumemnet

import "math"

// logits evaluates one of the nets on unscaled features; of the sum it is the sum itself, in MiB.
func (w *weights) logits(net string, x []float64, tokens []token) []float64 {
	if net == answersSums {
		return []float64{w.Nets.Sums.mib(w.Kind, x, tokens)}
	}
	scaled := w.scale(x)
	if net == "mlp" {
		return ensemble(w.Nets.MLP, scaled)
	}
	sequence := w.scaleTokens(tokens)
	sum := make([]float64, w.classes())
	for i := range w.Nets.Encoder {
		add(sum, w.Nets.Encoder[i].apply(sequence, scaled))
	}
	return divide(sum, len(w.Nets.Encoder))
}

// scale takes the logarithm of what counts without bound and standardises it; the angle at the end stays.
func (w *weights) scale(x []float64) []float64 {
	out := make([]float64, len(x))
	copy(out, x)
	for i := range w.Mean {
		v := x[i]
		if w.Logarithms {
			v = math.Log1p(v)
		}
		out[i] = (v - w.Mean[i]) / w.Deviation[i]
	}
	return out
}

func (w *weights) scaleTokens(tokens []token) [][]float64 {
	out := make([][]float64, len(tokens))
	for i, t := range tokens {
		row := make([]float64, len(w.Tokens)+2)
		row[t.kind] = 1
		row[len(w.Tokens)] = (math.Log1p(t.activations) - w.TokenMean[0]) / w.TokenDeviation[0]
		row[len(w.Tokens)+1] = (math.Log1p(t.parameters) - w.TokenMean[1]) / w.TokenDeviation[1]
		out[i] = row
	}
	return out
}

// ensemble is the mean of its members' logits.
func ensemble(members []member, x []float64) []float64 {
	var sum []float64
	for _, m := range members {
		y := m.apply(x)
		if sum == nil {
			sum = make([]float64, len(y))
		}
		add(sum, y)
	}
	return divide(sum, len(members))
}

func (m member) apply(x []float64) []float64 {
	for i := range m {
		x = m[i].Linear.apply(x)
		if n := m[i].BatchNorm; n != nil {
			for k := range x {
				x[k] = max(0, (x[k]-n.Mean[k])/math.Sqrt(n.Variance[k]+n.Eps)*n.Weight[k]+n.Bias[k])
			}
		}
	}
	return x
}

func (l *linear) apply(x []float64) []float64 {
	y := make([]float64, len(l.Weight))
	for i, row := range l.Weight {
		y[i] = l.Bias[i] + dot(row, x)
	}
	return y
}

// apply is PyTorch's layer norm: the variance is that of the whole, not of a sample.
func (n *norm) apply(x []float64) {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	for i := range x {
		x[i] = (x[i]-mean)/math.Sqrt(variance+n.Eps)*n.Weight[i] + n.Bias[i]
	}
}

// apply runs the tokens through the encoder, sums them up, and gives the sum with the scalars to the head.
func (e *encoder) apply(tokens [][]float64, scalars []float64) []float64 {
	sequence := make([][]float64, len(tokens))
	for i, t := range tokens {
		sequence[i] = e.Inputs.apply(t)
	}
	for i := range e.Layers {
		e.Layers[i].apply(sequence)
	}
	pooled := make([]float64, len(e.Inputs.Weight), len(e.Inputs.Weight)+len(scalars))
	for _, t := range sequence {
		add(pooled, t)
	}
	return ensemble(e.Head, append(pooled, scalars...))
}

func (l *encoderLayer) apply(sequence [][]float64) {
	width := len(l.Out.Weight)
	queries := make([][]float64, len(sequence)) // query, key and value of each token
	for i, t := range sequence {
		queries[i] = l.In.apply(t)
	}
	scores := make([]float64, len(sequence))
	for i, t := range sequence {
		for k := range queries {
			scores[k] = dot(queries[i][:width], queries[k][width:2*width]) / math.Sqrt(float64(width))
		}
		mixed := make([]float64, width)
		for k, share := range softmax(scores) {
			for d, v := range queries[k][2*width:] {
				mixed[d] += share * v
			}
		}
		add(t, l.Out.apply(mixed))
	}
	for _, t := range sequence {
		l.Norm1.apply(t)
		hidden := l.Wide.apply(t)
		for k := range hidden {
			hidden[k] = max(0, hidden[k])
		}
		add(t, l.Narrow.apply(hidden))
		l.Norm2.apply(t)
	}
}

// softmax works in place.
func softmax(x []float64) []float64 {
	largest, sum := math.Inf(-1), 0.0
	for _, v := range x {
		largest = max(largest, v)
	}
	for i := range x {
		x[i] = math.Exp(x[i] - largest)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
	return x
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func add(to, x []float64) {
	for i := range to {
		to[i] += x[i]
	}
}

func divide(x []float64, n int) []float64 {
	for i := range x {
		x[i] /= float64(n)
	}
	return x
}
