package xmem

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/cpuprofile"
	"github.com/gresize/gresize/estimator/methods/cpuprofile/profiletest"
	"github.com/gresize/gresize/estimator/trace"
)

const (
	whole       = cpuprofile.RecordingWhole
	asPublished = cpuprofile.RecordingPublished
)

func card(t *testing.T) *gpu.Profile {
	t.Helper()
	p, err := gpu.Load("rtx3060")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func estimated(t *testing.T, b *trace.Bundle, method func(*trace.Bundle, *gpu.Profile) (estimator.Estimate, error)) estimator.Estimate {
	t.Helper()
	e, err := method(b, card(t))
	if err != nil {
		t.Fatal(err)
	}
	e.Schema = estimator.SchemaEstimate
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestPaper adds up by hand what is alive at the peak: in the backward pass of the second iteration and later, the weights, their gradient, the state,
// the batch, and the activation; the function's and the loss's blocks are freed by then. In the forward pass before it, the function and the loss are
// alive and the gradient is not yet.
func TestPaper(t *testing.T) {
	const m = profiletest.MiB
	weights := profiletest.WeightBytes + profiletest.WeightBytes // and the state
	forward := weights + profiletest.BatchBytes + profiletest.ActivationBytes + profiletest.FunctionBytes + profiletest.LossBytes
	e := estimated(t, profiletest.Bundle(profiletest.Report(3, whole, nil), profiletest.Training(3, false).Text()), Estimate)
	if got := e.Ranks[0].PeakAllocatedBytes; got != forward {
		t.Errorf("%d MiB are allocated at the peak, want %d MiB", got/m, forward/m)
	}
	cut := e.HasReason("run_cut_short")
	if e.Confidence != estimator.Low || !cut || !e.Fits || e.Ranks[0].PeakReservedBytes < forward || e.Ranks[0].MinimumBytes == 0 {
		t.Errorf("%+v", e)
	}
}

// TestWhatTheProgramKeepsOnTheCard: a buffer that was seen there counts in either method's own meaning; the same bytes of the host do not.
func TestWhatTheProgramKeepsOnTheCard(t *testing.T) {
	const m, address = profiletest.MiB, 9 << 40
	peak := func(mark string) int64 {
		text := profiletest.Training(3, false).Op("aten::zeros", 14, 16, -1).Memory(15, address, 64*m).Mark(mark, 17, 17)
		return estimated(t, profiletest.Bundle(profiletest.Report(3, whole, nil), text.Text()), Estimate).Ranks[0].PeakAllocatedBytes
	}
	without, with := peak("of the program's own"), peak(fmt.Sprintf("%s%x", cpuprofile.OnDevicePrefix, uint64(address)))
	if with-without != 64*m {
		t.Errorf("%d MiB without the buffer, %d MiB with it", without/m, with/m)
	}
	if elsewhere := peak(fmt.Sprintf("%s%x", cpuprofile.OnDevicePrefix, uint64(address)+1)); elsewhere != without {
		t.Errorf("%d MiB without the buffer, %d MiB where another address was seen", without/m, elsewhere/m)
	}
}

// TestARunThatEndedByItselfSawAll: only a run that was ended before its time hides what follows.
func TestARunThatEndedByItselfSawAll(t *testing.T) {
	b := profiletest.Bundle(profiletest.Report(3, whole, nil), profiletest.Training(3, false).Text())
	b.Manifest.Outcome = trace.Completed
	if e := estimated(t, b, Estimate); e.Confidence != estimator.High {
		t.Errorf("%s: %+v", e.Confidence, e.Reasons)
	}
}

// TestPublished shows the published program's faults: the function in the parent and the loss outside of all modules are missing. The state is whatever
// has a parameter's size in a step: here what the first step makes and its two temporaries. With the parameter and its gradient that is five times its size.
func TestPublished(t *testing.T) {
	const m = profiletest.MiB
	want := 5*profiletest.WeightBytes + profiletest.BatchBytes + profiletest.ActivationBytes
	b := profiletest.Bundle(profiletest.Report(3, asPublished, nil), profiletest.Training(3, false).Text())
	e := estimated(t, b, Published)
	if got := e.Ranks[0].PeakAllocatedBytes; got != want {
		t.Errorf("%d MiB are allocated at the peak, want %d MiB", got/m, want/m)
	}
	paper := estimated(t, profiletest.Bundle(profiletest.Report(3, whole, nil), profiletest.Training(3, false).Text()), Estimate)
	if paper.Ranks[0].PeakAllocatedBytes == e.Ranks[0].PeakAllocatedBytes {
		t.Error("both say the same: the faults are not there")
	}
}

func TestUnknown(t *testing.T) {
	training := profiletest.Training(3, false)
	sound := training.Text()
	missing := profiletest.Training(3, false).Memory(5000, 9<<40, 64).Memory(5001, 9<<40, 64).Text()
	for _, c := range []struct {
		name       string
		iterations int
		changes    map[string]any
		text, code string
		says       string
	}{
		{"several ranks", 3, map[string]any{"world_size": 4}, sound, "not_covered", "4 ranks"},
		{"on the card", 3, map[string]any{"left_on_gpu_bytes": 512}, sound, "not_covered", "512 bytes"},
		{"recorded for the other", 3, map[string]any{"recording": asPublished}, sound, "recorded_otherwise", "published"},
		{"no optimizer", 3, map[string]any{"optimizers": []string{}}, sound, "not_covered", "no optimizer"},
		{"compiled", 3, map[string]any{"replaced": []string{"compile"}}, sound, "not_covered", "torch.compile"},
		{"cut off", 3, nil, sound[:len(sound)/2], "profile_unusable", "cut off"},
		{"a free is missing", 3, nil, missing, "profile_unusable", "a free is missing"},
		{"sizes that do not fit", 3, nil, strings.Replace(sound, `"Bytes": -`, `"Bytes": -1`, 1), "profile_unusable", "are freed at"},
		{"one iteration", 1, nil, profiletest.Training(1, false).Text(), "no_step_seen", "1 whole iterations"},
		{"no iteration", 0, nil, new(profiletest.Trace).Memory(1, 1, 8).Text(), "no_step_seen", "0 whole iterations"},
		{"no backward pass", 3, nil, strings.NewReplacer("gresize.backward", "other", "autograd::engine::evaluate_function: ", "other").Replace(sound), "not_covered", "no backward"},
		{"another device", 3, nil, profiletest.Training(3, false).Raw(`{"ph":"i","cat":"cpu_instant_event","name":"[memory]","ts":60,"args":{"Bytes":9,"Addr":1,"Device Type":1}}`).Text(), "not_covered", "another device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := estimated(t, profiletest.Bundle(profiletest.Report(c.iterations, whole, c.changes), c.text), Estimate)
			if e.Confidence != estimator.Unknown || len(e.Ranks) != 0 || len(e.Reasons) != 1 || e.Reasons[0].Code != c.code || !strings.Contains(e.Reasons[0].Detail, c.says) {
				t.Errorf("%+v: want %s, %q", e, c.code, c.says)
			}
		})
	}
	b := profiletest.Bundle(profiletest.Report(3, whole, nil), sound)
	b.Ranks[0].Profile = nil
	if e := estimated(t, b, Estimate); e.Reasons[0].Code != "profile_missing" {
		t.Errorf("%+v", e)
	}
	b.Ranks = append(b.Ranks, b.Ranks[0])
	if e := estimated(t, b, Estimate); e.Reasons[0].Code != "not_covered" {
		t.Errorf("%+v", e)
	}
	b.Ranks = b.Ranks[:1]
	b.Ranks[0].Report = []byte(`{}`)
	if _, err := Estimate(b, card(t)); err == nil || !strings.Contains(err.Error(), "ranks/0/report.json") {
		t.Errorf("%v: want the name of the entry", err)
	}
}

func TestHalfPrecisionIsAHint(t *testing.T) {
	e := estimated(t, profiletest.Bundle(profiletest.Report(3, whole, map[string]any{"replaced": []string{"autocast"}}), profiletest.Training(3, false).Text()), Estimate)
	if e.Confidence != estimator.Low {
		t.Errorf("%+v", e)
	}
}

func TestDoesNotFit(t *testing.T) {
	weights := make([][2]int64, 0, 1000)
	for range 1000 {
		weights = append(weights, [2]int64{profiletest.WeightBytes, 0})
	}
	e := estimated(t, profiletest.Bundle(profiletest.Report(3, whole, map[string]any{"weights": weights}), profiletest.Training(3, false).Text()), Estimate)
	if e.Fits || e.Confidence != estimator.Low || !strings.Contains(e.Reasons[len(e.Reasons)-1].Code, "out_of_memory") {
		t.Errorf("%+v", e)
	}
}

// FuzzEstimate gives any text for a trace: the answer is one that may be shown, or unknown with its reason.
func FuzzEstimate(f *testing.F) {
	f.Add(profiletest.Training(2, true).Text(), whole)
	f.Add(profiletest.Training(2, false).Text(), asPublished)
	p, err := gpu.Load("rtx3060")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, recording string) {
		if recording != asPublished {
			recording = whole
		}
		b := profiletest.Bundle(profiletest.Report(2, recording, nil), text)
		method := Estimate
		if recording == asPublished {
			method = Published
		}
		e, err := method(b, p)
		if err != nil {
			t.Fatalf("%v", err)
		}
		e.Schema = estimator.SchemaEstimate
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		if e.Confidence == estimator.Unknown && (len(e.Reasons) == 0 || len(e.Ranks) != 0) {
			t.Errorf("%+v", e)
		}
	})
}

// TestHostileNesting: spans that lie in each other ten thousand deep, with as many blocks and conversions in them, take no longer than others.
func TestHostileNesting(t *testing.T) {
	const deep = 10_000
	training := profiletest.Training(3, false)
	for i := range deep {
		at := 2000.5 + float64(i)*1e-3
		training.Op("aten::mm", at, 2999, 11).Module("Linear_9", at, 2999).Memory(at, uint64(1<<50+i), 8)
		training.Raw(fmt.Sprintf(`{"ph":"X","cat":"cpu_op","name":"aten::to","tid":1122,"ts":%.3f,"dur":1,"args":{"Concrete Inputs":["","6"],"Input Dims":[[1]]}}`, at))
	}
	text, begin := training.Text(), time.Now()
	estimated(t, profiletest.Bundle(profiletest.Report(3, whole, nil), text), Estimate)
	estimated(t, profiletest.Bundle(profiletest.Report(3, asPublished, nil), text), Published)
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}
