package utilization

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"pgregory.net/rapid"
)

func load(t testing.TB, id string) *gpu.Profile {
	t.Helper()
	card, err := gpu.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	return card
}

// of makes a stream of some operators with a host that takes so long.
func of(hostSeconds float64, operators ...Operator) *Stream {
	return &Stream{Step: 3, ProcessorSeconds: []float64{2 * hostSeconds, hostSeconds}, Operators: operators}
}

// product is a square matrix product.
func product(n float64, dtype string, count float64) Operator {
	size := 4.0
	if dtype == "bf16" {
		size = 2
	}
	return Operator{"mm", "product", dtype, 2 * n * n * n, 3 * n * n * size, 1, math.Ceil(n/128) * math.Ceil(n/128), count}
}

// elementwise reads one list of fp32 numbers and writes another.
func elementwise(n, count float64) Operator {
	return Operator{"relu", "other", "fp32", n, 8 * n, 1, math.Ceil(n / 512), count}
}

func TestByHand(t *testing.T) {
	card := load(t, "a100-40") // 19.5 TFLOP/s fp32, 312 bf16, 1555 GB/s, 108 multiprocessors
	for _, c := range []struct {
		name          string
		stream        *Stream
		bound         string
		seconds       float64 // of a step, by hand
		sm, memory    [2]float64
		withinPercent float64
	}{
		// 2 * 8192^3 / (19.5e12 * 0.65) = 86.7 ms; memory 3 * 4 * 8192^2 / 1555e9 = 0.52 ms of it.
		{"a large fp32 product", of(1e-3, product(8192, "fp32", 1)), BoundCompute, 86.7e-3, [2]float64{0.99, 1}, [2]float64{0.004, 0.008}, 1},
		// The same on tensor cores: 5.42 ms.
		{"a large bf16 product", of(1e-3, product(8192, "bf16", 1)), BoundCompute, 5.42e-3, [2]float64{0.99, 1}, [2]float64{0.03, 0.08}, 1},
		// 8 * 2^28 / (1555e9 * 0.8) = 1.726 ms each.
		{"large activations", of(1e-3, elementwise(1<<28, 10)), BoundMemory, 17.28e-3, [2]float64{0.99, 1}, [2]float64{0.78, 0.82}, 1},
		// 1000 launches of next to nothing: 2.5 us each on the card, and 20 ms of the host.
		{"small launches", of(20e-3, elementwise(512, 1000)), BoundHost, 20e-3, [2]float64{0, 0.01}, [2]float64{0, 0.01}, 1},
		{"small launches and a quick host", of(0.1e-3, elementwise(512, 1000)), BoundLaunch, 2.5e-3, [2]float64{0.005, 0.02}, [2]float64{0, 0.01}, 4},
		// One block on one of 108 multiprocessors: 2 * 128^2 * 1e6 / (19.5e12 * 0.65 / 108) = 279 ms.
		{"one tile", of(1e-3, Operator{"mm", "product", "fp32", 2 * 128 * 128 * 1e6, 1e9, 1, 1, 1}), BoundCompute, 0.279, [2]float64{0.005, 0.015}, [2]float64{0, 0.01}, 1},
	} {
		a := Estimate(c.stream, card)
		if a.Confidence != estimator.Low || a.Bound != c.bound {
			t.Errorf("%s: %s confidence, bound by %s, want %s", c.name, a.Confidence, a.Bound, c.bound)
		}
		if math.Abs(a.StepSeconds.Value-c.seconds) > c.seconds*c.withinPercent/100 {
			t.Errorf("%s: %g s a step, by hand %g", c.name, a.StepSeconds.Value, c.seconds)
		}
		if v := a.SMActivity.Value; v < c.sm[0] || v > c.sm[1] {
			t.Errorf("%s: SM activity %g, want %v", c.name, v, c.sm)
		}
		if v := a.MemoryActivity.Value; v < c.memory[0] || v > c.memory[1] {
			t.Errorf("%s: memory activity %g, want %v", c.name, v, c.memory)
		}
		if len(a.Operators) != 1 || math.Abs(a.Operators[0].Share-1) > 0.01 {
			t.Errorf("%s: %+v", c.name, a.Operators)
		}
	}
}

func TestUnknown(t *testing.T) {
	card := load(t, "a100-40")
	bare := *card
	bare.PeakFLOPS = nil
	whole := of(1e-3, product(64, "fp32", 1))
	compiled, timeless := *whole, *whole
	compiled.Compiled, timeless.ProcessorSeconds = true, nil
	for _, c := range []struct {
		code   string
		stream *Stream
		card   *gpu.Profile
	}{{"no_step_seen", new(Stream), card}, {"compiled", &compiled, card}, {"no_step_seen", &timeless, card}, {"profile_incomplete", whole, &bare}} {
		a := Estimate(c.stream, c.card)
		if a.Confidence != estimator.Unknown || len(a.Reasons) != 1 || a.Reasons[0].Code != c.code || a.StepSeconds.Value != 0 {
			t.Errorf("want unknown because of %s: %+v", c.code, a)
		}
	}
	left := *whole
	left.LeftOut = 7
	if a := Estimate(&left, card); len(a.Reasons) != 2 || a.Reasons[1].Code != "operators_left_out" {
		t.Errorf("%+v", a.Reasons)
	}
}

// TestRecorded reads what a run on the virtual GPU left: six linear layers of 2048 with batch norm, batch 512, Adam.
func TestRecorded(t *testing.T) {
	data, err := os.ReadFile("testdata/mlp.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Read(data)
	if err != nil {
		t.Fatal(err)
	}
	flops := 0.0
	for _, o := range s.Operators {
		if o.Kind == "product" {
			flops += o.FLOPs * o.Count
		}
	}
	// Forward, gradient of the weights, and gradient of the inputs but for the first layer; and the same for the 100 classes.
	if want := 2 * 512 * 2048.0 * (2048*(6+6+5) + 100*3); flops != want {
		t.Errorf("%g FLOPs in products, want %g", flops, want)
	}
	a := Estimate(s, load(t, "a100-40"))
	if a.Bound != BoundCompute || a.Operators[0].Operator != "mm" || a.StepSeconds.Value < flops/19.5e12 {
		t.Errorf("%+v", a)
	}
}

// network is a training step of a perceptron with so many layers of a width, in fp32 with Adam, at a batch size.
func network(batch, width, layers float64) []Operator {
	matrices := func(rows, inner, columns float64) Operator {
		return Operator{"mm", "product", "fp32", 2 * rows * inner * columns, 4 * (rows*inner + inner*columns + rows*columns), 1,
			math.Ceil(rows/128) * math.Ceil(columns/128), layers}
	}
	parameters := width * width * layers
	return []Operator{
		matrices(batch, width, width), matrices(batch, width, width), matrices(width, batch, width), elementwise(batch*width, 2*layers),
		{"_foreach", "other", "fp32", parameters, 12 * parameters, math.Ceil(layers / 4), math.Ceil(parameters / 65536), 8},
	}
}

// A larger batch keeps the card at least as busy, with the same host: to 2 % of the time, for with more work on large products the optimizer,
// which fills a card, has a smaller part.
func TestLargerBatchIsNotLessBusy(t *testing.T) {
	cards := gpu.List()
	rapid.Check(t, func(t *rapid.T) {
		card := &cards[rapid.IntRange(0, len(cards)-1).Draw(t, "card")]
		width, layers := float64(rapid.IntRange(2, 64).Draw(t, "width")*64), float64(rapid.IntRange(1, 50).Draw(t, "layers"))
		batch := float64(rapid.IntRange(1, 16).Draw(t, "batch") * 128)
		host := layers * rapid.Float64Range(1e-4, 1e-3).Draw(t, "host")
		small, large := Estimate(of(host, network(batch, width, layers)...), card), Estimate(of(host, network(2*batch, width, layers)...), card)
		if large.SMActivity.Value < small.SMActivity.Value-0.02 || large.StepSeconds.Value < small.StepSeconds.Value {
			t.Fatalf("%s: batch %g: %+v %+v\nbatch %g: %+v %+v", card.ID, batch, small.SMActivity, small.StepSeconds, 2*batch, large.SMActivity, large.StepSeconds)
		}
	})
}

// Whatever was recorded: shares are shares, and a figure lies in its interval.
func TestIntervals(t *testing.T) {
	cards := gpu.List()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Float64Range(0, 1e15)
		s := &Stream{Step: 1, ProcessorSeconds: []float64{rapid.Float64Range(1e-9, 100).Draw(t, "host")}, Syncs: rapid.Int64Range(0, 3).Draw(t, "syncs"),
			CopiedBytes: rapid.Float64Range(0, 1e12).Draw(t, "copied")}
		for range rapid.IntRange(1, 10).Draw(t, "operators") {
			s.Operators = append(s.Operators, Operator{"x", rapid.SampledFrom([]string{"product", "other"}).Draw(t, "kind"),
				rapid.SampledFrom([]string{"fp32", "tf32", "bf16", "fp16", "fp64", "fp8", "int8", "int", ""}).Draw(t, "type"),
				number.Draw(t, "flops"), number.Draw(t, "bytes"), float64(rapid.IntRange(0, 9).Draw(t, "launches")), number.Draw(t, "blocks"), float64(rapid.IntRange(0, 9).Draw(t, "count"))})
		}
		a := Estimate(s, &cards[rapid.IntRange(0, len(cards)-1).Draw(t, "card")])
		for name, i := range map[string]Interval{"step": a.StepSeconds, "host": a.HostSeconds, "device": a.DeviceSeconds, "sm": a.SMActivity, "memory": a.MemoryActivity} {
			if !(i.Low >= 0 && i.Low <= i.Value && i.Value <= i.High) || math.IsInf(i.High, 0) || (name == "sm" || name == "memory") && i.High > 1 {
				t.Fatalf("%s: %+v", name, i)
			}
		}
	})
}

func TestReadFaults(t *testing.T) {
	const head = `{"operators":1,"step":3,"processor_seconds":[0.1]}` + "\n"
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{`{"operators":2}`, "line 1: operators: version 2"},
		{`{"operators":1,"step":-1}`, "line 1: step"},
		{`{"operators":1,"wall_seconds":[-1]}`, "line 1: copied_bytes, wall_seconds"},
		{head + `{"op":"mm","flops":-1}`, "line 2: flops"},
		{head + `{"op":"mm","count":1e300}`, "line 2: count"},
		{head + `{"op":"` + strings.Repeat("x", 81) + `"}`, "line 2: op"},
		{head + "[]", "line 2"},
		{head + `{"uses":[[0,1,0,1,0,9]]}`, "uses: [0 1 0 1 0] is impossible"}, // no operator 0
		{head + `{"uses":[[-1,5,0,1,0,9]]}`, "uses: [-1 5 0 1 0] is impossible"},
		{head + `{"uses":[[-1,1,0,1,0]]}`, "or one of 5 numbers"},
		{head + `{"uses":[[-1,1,0,1,0,-9]]}`, "is impossible"},
		{head + strings.Repeat(`{"op":"mm"}`+"\n", maxKinds+1), "more than 4096"},
	} {
		if _, err := Read([]byte(c.text)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %q", c.text, err, c.want)
		}
	}
	if s, err := Read([]byte(head + `{"later":1}` + "\n\n" + `{"op":"mm","count":2}`)); err != nil || len(s.Operators) != 1 || s.Step != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/mlp.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"operators":1,"step":3,"processor_seconds":[0]}` + "\n" + `{"op":"mm","flops":1e18,"blocks":0,"launches":0,"count":1}`))
	f.Add([]byte(`{"operators":1,"step":3,"processor_seconds":[0.1]}` + "\n" + `{"op":"mm","flops":1e9,"bytes":1e6,"launches":1,"count":1}` + "\n" + `{"uses":[[0,1,0,2,0,4096,8192],[-1,2,0,2,1,4096]]}`))
	card := load(f, "h100")
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Read(data)
		if err != nil {
			return
		}
		if a := Estimate(s, card); math.IsNaN(a.StepSeconds.Value) || math.IsNaN(a.SMActivity.Value) || a.SMActivity.High > 1 {
			t.Fatalf("%+v", a)
		}
		for i, seconds := range UseSeconds(s, card) {
			if !(seconds >= 0) {
				t.Fatalf("use %d takes %g seconds", i, seconds)
			}
		}
	})
}
