package horus

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/trace/modules"
	"pgregory.net/rapid"
)

// builder writes down networks layer by layer.
type builder struct{ n modules.Network }

func (b *builder) layer(kind modules.Kind, parameters int64, shape ...int64) {
	elements := b.n.Batch
	for _, n := range shape {
		elements *= n
	}
	out := append([]int64{b.n.Batch}, shape...)
	b.n.Modules = append(b.n.Modules, modules.Module{Kind: kind, Leaf: true, CallsOnce: 1, Calls: 1,
		Holdings: modules.Holdings{Parameters: parameters, ParameterBytes: 4 * parameters, Trainable: parameters},
		Tensors:  modules.Tensors{Outputs: [][]int64{out}, OutputElements: elements, OutputBytes: 4 * elements}})
	b.n.Parameters += parameters
	b.n.Trainable += parameters
	b.n.ParameterBytes += 4 * parameters
}

// convolution is a convolution without a bias, its norm, and an activation where it has one.
func (b *builder) convolution(in, out, kernel, side int64, activation bool) {
	b.layer(modules.Conv, in*out*kernel*kernel, out, side, side)
	b.layer(modules.Norm, 2*out, out, side, side)
	if activation {
		b.layer(modules.Activation, 0, out, side, side)
	}
}

func (b *builder) table() *modules.Table {
	b.n.WithGradient, b.n.Calls = true, 1
	return &modules.Table{Steps: 4, Networks: []modules.Network{b.n}}
}

func resnet50(batch int64) *modules.Table {
	b := builder{n: modules.Network{Class: "ResNet", Batch: batch}}
	b.convolution(3, 64, 7, 112, true)
	b.layer(modules.Pool, 0, 64, 56, 56)
	in := int64(64)
	for stage, blocks := range []int{3, 4, 6, 3} {
		width, side := int64(64)<<stage, int64(56)>>stage
		for block := range blocks {
			before := side
			if block == 0 && stage > 0 {
				before = 2 * side
			}
			b.convolution(in, width, 1, before, true)
			b.convolution(width, width, 3, side, true)
			b.convolution(width, 4*width, 1, side, false)
			if block == 0 {
				b.convolution(in, 4*width, 1, side, false)
			}
			b.layer(modules.Activation, 0, 4*width, side, side)
			in = 4 * width
		}
	}
	b.layer(modules.Pool, 0, 2048, 1, 1)
	b.layer(modules.Linear, 2048*1000+1000, 1000)
	return b.table()
}

func vgg16(batch int64) *modules.Table {
	b := builder{n: modules.Network{Class: "VGG", Batch: batch}}
	in, side := int64(3), int64(224)
	for stage, layers := range []int{2, 2, 3, 3, 3} {
		out := min(int64(64)<<stage, 512)
		for range layers {
			b.layer(modules.Conv, in*out*9+out, out, side, side)
			b.layer(modules.Activation, 0, out, side, side)
			in = out
		}
		side /= 2
		b.layer(modules.Pool, 0, out, side, side)
	}
	b.layer(modules.Pool, 0, 512, 7, 7)
	for i, size := range [][2]int64{{25088, 4096}, {4096, 4096}, {4096, 1000}} {
		b.layer(modules.Linear, size[0]*size[1]+size[1], size[1])
		if i < 2 {
			b.layer(modules.Activation, 0, size[1])
			b.layer(modules.Dropout, 0, size[1])
		}
	}
	return b.table()
}

// TestPublishedFigures recomputes what was printed for models that anyone can write down. An older parser skipped some layers of VGG16, up to 8 MiB.
func TestPublishedFigures(t *testing.T) {
	for _, c := range []struct {
		name         string
		table        func(int64) *modules.Table
		parameters   int64
		batch        int64
		printedMiB   float64
		toleranceMiB float64
	}{
		{"resnet50", resnet50, 25_557_032, 32, 7904, 1},
		{"resnet50", resnet50, 25_557_032, 128, 28923, 1},
		{"vgg16", vgg16, 138_357_544, 32, 21525.8262, 8},
		{"vgg16", vgg16, 138_357_544, 128, 82119.9297, 16},
	} {
		counts, err := CountPublished(c.table(c.batch))
		if err != nil {
			t.Fatal(err)
		}
		if counts.Parameters != c.parameters {
			t.Errorf("%s: %d parameters, want %d", c.name, counts.Parameters, c.parameters)
		}
		got := float64(counts.PublishedBytes()+PublishedOutsideBytes) / (1 << 20)
		if math.Abs(got-c.printedMiB) > c.toleranceMiB {
			t.Errorf("%s, batch %d: %.2f MiB, printed %.2f", c.name, c.batch, got, c.printedMiB)
		}
		t.Logf("%s, batch %d: %.2f MiB, printed %.2f", c.name, c.batch, got, c.printedMiB)
	}
}

func TestMeant(t *testing.T) {
	b := builder{n: modules.Network{Class: "Sequential", Batch: 8}}
	b.layer(modules.Linear, 20, 4)
	b.layer(modules.Activation, 0, 4)
	table := b.table()
	if got, err := MeantBytes(table); err != nil || got != 4*(8*8+20+20) {
		t.Errorf("%d, %v", got, err)
	}
	table.Networks[0].Trainable = 10 // the other half is frozen
	if got, err := MeantBytes(table); err != nil || got != 4*(8*8+20+10) {
		t.Errorf("%d, %v", got, err)
	}
}

// TestTokens: the published count of a network of tokens has no tokens after the embedding.
func TestTokens(t *testing.T) {
	b := builder{n: modules.Network{Class: "Encoder", Batch: 2}}
	b.layer(modules.Embedding, 1000, 16, 10)
	b.layer(modules.Linear, 100, 16, 10)
	counts, err := CountPublished(b.table())
	if err != nil || counts.Activations != 16*10+10 {
		t.Errorf("%+v, %v", counts, err)
	}
}

func TestNotCovered(t *testing.T) {
	for want, change := range map[string]func(*modules.Table){
		"several networks":       func(t *modules.Table) { t.Networks = append(t.Networks, t.Networks[0]) },
		"no network is trained":  func(t *modules.Table) { t.Networks[0].Trainable = 0 },
		"compiled":               func(t *modules.Table) { t.Compiled, t.Networks[0].Calls = true, 0 },
		"is trained":             func(t *modules.Table) { t.Networks[0].WithGradient = false },
		"batch of the VGG":       func(t *modules.Table) { t.Networks[0].Batch = 0 },
		"not whole":              func(t *modules.Table) { t.LeftOut = 1 },
		"more than any card has": func(t *modules.Table) { t.Networks[0].Modules[0].CallsOnce, t.Networks[0].Batch = 1<<20, 1<<20 },
	} {
		table := vgg16(32)
		if want == "more than any card has" {
			table.Networks[0].Modules[0].OutputBytes = 1 << 45
		}
		change(table)
		_, published := CountPublished(table)
		_, meant := MeantBytes(table)
		for _, err := range []error{published, meant} {
			if !errors.Is(err, ErrNotCovered) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

// TestAnyTable: whatever a table that could be read says, the figures stay figures.
func TestAnyTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) int64 { return rapid.Int64Range(0, estimator.MaxBytes>>4).Draw(t, name) }
		n := modules.Network{Batch: number("batch"), Calls: 1, WithGradient: true}
		n.Parameters, n.ParameterBytes = number("parameters"), number("bytes")
		n.Trainable = rapid.Int64Range(0, n.Parameters).Draw(t, "trainable")
		for range rapid.IntRange(0, 5).Draw(t, "modules") {
			m := modules.Module{Leaf: true, CallsOnce: number("calls"), Tensors: modules.Tensors{OutputBytes: number("output")}}
			m.Outputs = [][]int64{rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 6).Draw(t, "shape")}
			n.Modules = append(n.Modules, m)
		}
		table := &modules.Table{Networks: []modules.Network{n}}
		if c, err := CountPublished(table); err == nil && (c.PublishedBytes() < 0 || c.PublishedBytes() > estimator.MaxBytes) {
			t.Errorf("%+v: %d", c, c.PublishedBytes())
		}
		if b, err := MeantBytes(table); err == nil && (b < 0 || b > estimator.MaxBytes) {
			t.Errorf("%d", b)
		}
	})
}
