package gpumemnet

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// goldenCase is a program of the training data, its features in Python and what PyTorch makes of them.
type goldenCase struct {
	Batch   int64                `json:"batch"`
	States  int64                `json:"optimizer_states"`
	Layers  [][3]any             `json:"layers"`
	Scalars []float64            `json:"scalars"`
	Logits  map[string][]float64 `json:"logits"`
}

func (c *goldenCase) program() Program {
	p := Program{Batch: c.Batch, OptimizerStates: c.States}
	for _, l := range c.Layers {
		p.Layers = append(p.Layers, Layer{l[0].(string), int64(l[1].(float64)), int64(l[2].(float64))})
	}
	return p
}

func readGolden(t testing.TB, kind Kind) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "golden-"+string(kind)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 10 {
		t.Fatalf("%d cases", len(cases))
	}
	return cases
}

func TestLogitsAreThoseOfPyTorch(t *testing.T) {
	for _, kind := range []Kind{MLP, CNN, Transformer} {
		w, err := bundledWeights(kind)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range readGolden(t, kind) {
			p := c.program()
			if got, err := p.kind(); err != nil || got != kind {
				t.Errorf("%s %d: kind %q, %v", kind, i, got, err)
			}
			x, tokens, err := w.features(p)
			if err != nil {
				t.Fatalf("%s %d: %v", kind, i, err)
			}
			near(t, string(kind)+" features", x, c.Scalars)
			if len(c.Logits) != 3 {
				t.Fatalf("%s %d: logits of %d nets", kind, i, len(c.Logits))
			}
			for net, want := range c.Logits {
				near(t, string(kind)+" "+net, w.logits(net, x, tokens), want)
			}
			if _, err := Classify(p); err != nil {
				var u *Unknown
				if !errors.As(err, &u) || u.Code != "beyond_bins" {
					t.Errorf("%s %d: a program of the training data: %v", kind, i, err)
				}
			}
		}
	}
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 1e-5*max(1, math.Abs(want[i])) {
			t.Errorf("%s: [%d] = %v, PyTorch says %v", what, i, got[i], want[i])
		}
	}
}

func TestNoAnswer(t *testing.T) {
	linear := Layer{"Linear", 1000, 1001000}
	for _, c := range []struct {
		name, code, detail string
		program            Program
	}{
		{"nothing", "no_layers", "", Program{}},
		{"no batch", "no_layers", "", Program{Layers: []Layer{linear}}},
		{"recurrent", "unknown_layer", "LSTM", Program{Batch: 8, Layers: []Layer{linear, {"LSTM", 10, 10}}}},
		{"only pools", "unknown_layer", "", Program{Batch: 8, Layers: []Layer{{"MaxPool2d", 10, 0}}}},
		{"layer norm in a perceptron", "unknown_layer", "LayerNorm", Program{Batch: 8, Layers: []Layer{linear, {"LayerNorm", 10, 20}}}},
		{"huge batch", "outside_training", "activations_batch", Program{Batch: 1 << 40, Layers: []Layer{linear, {"ReLU", 1000, 0}}}},
		{"an optimizer that keeps much", "outside_training", "optimizer_states 9", Program{Batch: 8, OptimizerStates: 9, Layers: []Layer{linear, {"ReLU", 1000, 0}}}},
		{"beyond the classes", "beyond_bins", "40000 MiB", Program{Batch: 64, OptimizerStates: 2, Layers: slices.Repeat([]Layer{{"Conv2d", 4000000, 1000}, {"BatchNorm2d", 4000000, 16}}, 40)}},
		{"too many layers", "outside_training", "parameters", Program{Batch: 8, Layers: make([]Layer, 20000)}},
		{"negative", "outside_training", "-1", Program{Batch: 8, Layers: []Layer{{"Linear", -1, 5}}}},
		{"overflow", "outside_training", "", Program{Batch: 8, Layers: []Layer{{"Linear", math.MaxInt64, 5}}}},
	} {
		for i := range c.program.Layers {
			if c.program.Layers[i].Class == "" {
				c.program.Layers[i] = linear
			}
		}
		_, err := Classify(c.program)
		var u *Unknown
		if !errors.As(err, &u) || u.Code != c.code || !strings.Contains(u.Detail, c.detail) {
			t.Errorf("%s: %v, want %s with %q", c.name, err, c.code, c.detail)
		}
	}
}

// TestDeepNetworks: what the sum answers for need not be as deep as what was fitted, and a small network is in a small class. The layers are those of
// torchvision's SqueezeNet 1.1, 32 pictures: 1.2 GiB on the virtual GPU.
func TestDeepNetworks(t *testing.T) {
	layers := []Layer{{"Conv2d", 64 * 111 * 111, 1792}, {"ReLU", 64 * 111 * 111, 0}, {"MaxPool2d", 64 * 55 * 55, 0}}
	for _, fire := range [][3]int64{{16, 128, 55}, {16, 128, 55}, {32, 256, 27}, {32, 256, 27}, {48, 384, 13}, {48, 384, 13}, {64, 512, 13}, {64, 512, 13}} {
		squeeze, expand, edge := fire[0], fire[1], fire[2]
		pixels := edge * edge
		layers = append(layers, Layer{"Conv2d", squeeze * pixels, squeeze * expand}, Layer{"ReLU", squeeze * pixels, 0},
			Layer{"Conv2d", expand / 2 * pixels, squeeze * expand}, Layer{"ReLU", expand / 2 * pixels, 0},
			Layer{"Conv2d", expand / 2 * pixels, 9 * squeeze * expand / 2}, Layer{"ReLU", expand / 2 * pixels, 0})
	}
	layers = append(layers, Layer{"Dropout", 512 * 169, 0}, Layer{"Conv2d", 1000 * 169, 513000}, Layer{"ReLU", 1000 * 169, 0}, Layer{"AdaptiveAvgPool2d", 1000, 0})
	a, err := Classify(Program{Batch: 32, OptimizerStates: 1, Layers: layers})
	if err != nil || a.Class != 0 {
		t.Errorf("%+v, %v", a, err)
	}
	deep := append(slices.Clone(layers), slices.Repeat([]Layer{{"Conv2d", 1000, 1000}, {"BatchNorm2d", 1000, 16}}, 2000)...)
	if a, err := Classify(Program{Batch: 32, OptimizerStates: 1, Layers: deep}); err != nil || a.Class != 0 {
		t.Errorf("deep: %+v, %v", a, err)
	}
}

// Whatever a bundle says, there is an answer with edges or a reason without one.
func TestAnyProgram(t *testing.T) {
	classes := []string{"", "Other", "Flatten"}
	for c := range tokenOf {
		classes = append(classes, c)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Program{Batch: rapid.Int64().Draw(t, "batch"), OptimizerStates: rapid.Int64().Draw(t, "states")}
		for range rapid.IntRange(0, 20).Draw(t, "layers") {
			p.Layers = append(p.Layers, Layer{rapid.SampledFrom(classes).Draw(t, "class"),
				rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1e6)).Draw(t, "activations"), rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 1e6)).Draw(t, "parameters")})
		}
		a, err := Classify(p)
		var u *Unknown
		if err != nil && !errors.As(err, &u) {
			t.Fatal(err)
		}
		if err == nil && !(a.LowerBytes < a.UpperBytes && a.Probability > 0 && a.Probability <= 1) {
			t.Fatalf("%+v", a)
		}
	})
}

func TestWeightsFaults(t *testing.T) {
	good, err := weightsFiles.ReadFile("weights/mlp.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"schema", schemaWeights, "gresize.gpumemnet.weights/2", "schema"},
		{"kind", `"kind":"mlp"`, `"kind":"rnn"`, "kind"},
		{"unknown key", `"kind":`, `"extra":1,"kind":`, "extra"},
		{"net", `"answers":"`, `"answers":"x`, "answers"},
		{"edges", `"edges_mib":[1000,`, `"edges_mib":[-1000,`, "edges_mib"},
		{"features", `"depth",`, `"width",`, "features"},
		{"terms", `"constant",`, `"a constant",`, "nets.sums: terms"},
		{"factors", `"factors":[`, `"factors":[-1,`, "nets.sums: factors"},
		{"ratios", `"ratios":[`, `"ratios":[0,`, "nets.sums: ratios"},
		{"shape", `"bias":[`, `"bias":[0.5,`, "bias"},
		{"deviation", `"deviation":[`, `"deviation":[0,`, "deviation"},
	} {
		bad := strings.Replace(string(good), c.from, c.to, 1)
		if bad == string(good) {
			t.Fatalf("%s: nothing replaced", c.name)
		}
		if _, err := parseWeights([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := parseWeights(append(good, "{}"...)); err == nil {
		t.Error("text after the end was taken")
	}
}

func FuzzWeights(f *testing.F) {
	f.Add([]byte(`{"schema":"gresize.gpumemnet.weights/1","kind":"mlp","answers":"mlp","edges_mib":[1000]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := parseWeights(data)
		if err != nil {
			return
		}
		tokens := []token{{0, 10, 10}}
		w.logits(w.Answers, make([]float64, len(w.Features)), tokens)
	})
}
