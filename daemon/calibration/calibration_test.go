package calibration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var small = Key{GPU: "rtx3060", Estimator: "vgpu", Confidence: "exact"}

func filled(target float64, n int, ratio func(i int) float64) *Table {
	t := New(Options{TargetFailureRate: target})
	for i := range n {
		t.Add(Observation{Key: small, Ratio: ratio(i)})
	}
	return t
}

func TestNothingIsCalibratedWithoutEnoughActuals(t *testing.T) {
	if n := Needed(0.01); n != 99 {
		t.Errorf("%d actuals needed for 1 %%", n)
	}
	for n, want := range map[int]bool{0: false, 98: false, 99: true} {
		m := filled(0.01, n, func(i int) float64 { return 1 + float64(i)/1000 }).Margin(small)
		if m.Calibrated != want || want && (m.Ratio != 1.098 || m.Actuals != 99 || m.Group != "gpu=rtx3060 estimator=vgpu confidence=exact") {
			t.Errorf("%d actuals: %+v", n, m)
		}
	}
	if m := filled(0, 500, func(int) float64 { return 1 }).Margin(small); m.Calibrated {
		t.Errorf("calibrated though the site wants none: %+v", m)
	}
	if m := filled(0.01, 500, func(int) float64 { return 0.7 }).Margin(small); m.Ratio != 1 {
		t.Errorf("an estimate was made smaller: %+v", m)
	}
}

func TestAWiderGroupSpeaksForOneThatKnowsTooLittle(t *testing.T) {
	table := filled(0.05, 200, func(i int) float64 { return 0.9 + float64(i%20)/100 })
	other := Key{GPU: "h100", Estimator: "vgpu", Confidence: "exact"}
	if m := table.Margin(other); !m.Calibrated || m.Group != "estimator=vgpu confidence=exact" || m.Ratio < 1.07 || m.Ratio > 1.09 {
		t.Errorf("%+v", m)
	}
	if m := table.Margin(Key{GPU: "h100", Estimator: "vgpu", Confidence: "high"}); m.Group != "estimator=vgpu" {
		t.Errorf("%+v", m)
	}
	if m := table.Margin(Key{GPU: "h100", Estimator: "xmem", Confidence: "exact"}); m.Calibrated {
		t.Errorf("another estimator's errors were taken: %+v", m)
	}
	// What the card's own few have shown counts beside it.
	table.Add(Observation{Key: other, Ratio: 1.4})
	if m := table.Margin(other); m.Ratio != 1.4 {
		t.Errorf("%+v", m)
	}
	table.Add(Observation{Key: other, Ratio: 1.5, Died: true})
	if m := table.Margin(other); m.Ratio < 1.5 {
		t.Errorf("a job died on the card: %+v", m)
	}
}

// TestADeathThatIsToldLater: what was measured of a run comes before the line that says it died, and it counts as one death all the same.
func TestADeathThatIsToldLater(t *testing.T) {
	table := filled(0.01, 200, func(int) float64 { return 1 })
	measured := Observation{Key: small, Ratio: 1.7}
	table.Add(measured)
	table.Died(measured)
	table.Died(measured) // told twice: there is no second such run
	if m := table.Margin(small); m.Died != 1 || m.Actuals != 201 || math.Abs(table.Worst(small)-1.7*beyondDeath) > 1e-9 {
		t.Errorf("%+v, worst %g", m, table.Worst(small))
	}
	// One that was taken for a run that kept to its margin lowers the level as a death does.
	kept, died := filled(0.01, 200, func(int) float64 { return 1 }), filled(0.01, 200, func(int) float64 { return 1 })
	kept.Add(Observation{Key: small, Ratio: 0.5})
	kept.Died(Observation{Key: small, Ratio: 0.5})
	died.Add(Observation{Key: small, Ratio: 0.5, Died: true})
	if a, b := kept.groups[small], died.groups[small]; math.Abs(a.level-b.level) > 1e-12 || a.died != b.died || a.sorted[200] != b.sorted[200] {
		t.Errorf("level %g and %g, died %d and %d, worst %g and %g", a.level, b.level, a.died, b.died, a.sorted[200], b.sorted[200])
	}
}

func TestDeathsRaiseTheMarginUntilTheyAreOld(t *testing.T) {
	table := filled(0.01, 200, func(int) float64 { return 1 })
	if m := table.Margin(small); m.Ratio != 1 {
		t.Fatalf("%+v", m)
	}
	last := 1.0
	for i := range 4 {
		table.Add(Observation{Key: small, Died: true})
		m := table.Margin(small)
		if m.Died != i+1 || i > 1 && m.Ratio <= last {
			t.Errorf("after %d deaths: %+v", i+1, m)
		}
		last = m.Ratio
	}
	for range window {
		table.Add(Observation{Key: small, Ratio: 1})
	}
	if m := table.Margin(small); m.Ratio != 1 || m.Died != 0 || m.Actuals != window {
		t.Errorf("after %d good ones: %+v", window, m)
	}
}

// TestProperties: a margin is never below 1, the two forms of a window agree, and order alone decides.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.SampledFrom([]float64{0.01, 0.05, 0.2}).Draw(t, "target")
		a, b := New(Options{target}), New(Options{target})
		for _, score := range rapid.SliceOfN(rapid.Float64Range(0, 3), 0, 300).Draw(t, "scores") {
			o := Observation{Key: small, Ratio: score, Died: score > 2.9}
			a.Add(o)
			b.Add(o)
		}
		for _, bad := range []float64{math.NaN(), -1} {
			a.Add(Observation{Key: small, Ratio: bad})
		}
		m := a.Margin(small)
		if m != b.Margin(small) || m.Calibrated && m.Ratio < 1 || m.Actuals > window {
			t.Fatalf("%+v", m)
		}
		if g := a.groups[small]; g != nil {
			for i := 1; i < len(g.sorted); i++ {
				if g.sorted[i] < g.sorted[i-1] || len(g.sorted) != len(g.recent) {
					t.Fatal("not sorted")
				}
			}
		}
	})
}

// world draws the ratio of the n-th job.
type world struct {
	name string
	draw func(r *rand.Rand, n int) float64
}

const simulated = 40000

// worlds are a site whose errors do not change, one whose estimates become worse for good at the half, one that drifts all the time, and one with seasons.
var worlds = []world{
	{"steady", func(r *rand.Rand, _ int) float64 { return math.Exp(-0.02 + 0.03*r.NormFloat64()) }},
	{"worse from the half on", func(r *rand.Rand, n int) float64 {
		shift := -0.02
		if n > simulated/2 {
			shift = 0.06
		}
		return math.Exp(shift + 0.03*r.NormFloat64())
	}},
	{"drifts by 0.1 in all", func(r *rand.Rand, n int) float64 {
		return math.Exp(-0.02 + 0.1*float64(n)/simulated + 0.03*r.NormFloat64())
	}},
	{"seasons of 4000 jobs", func(r *rand.Rand, n int) float64 {
		return math.Exp(0.04*math.Sin(2*math.Pi*float64(n)/4000) + 0.03*r.NormFloat64())
	}},
}

// failures simulates a site: a job fails that needs more than estimate and margin, and one that failed is known only as dead.
func failures(w world, target float64, seed uint64, margin func(*Table, int) float64) (rate, worst, mean float64) {
	r := rand.New(rand.NewPCG(seed, 7))
	table := New(Options{TargetFailureRate: target})
	const span = 2000
	var sum, failed, inSpan float64
	for n := range simulated {
		ratio := w.draw(r, n)
		given := margin(table, n)
		o := Observation{Key: small, Ratio: ratio}
		if ratio > given {
			failed++
			inSpan++
			// Every second one had a larger card than it needed and was measured; of the others it is known that they died, and on what.
			if n%2 == 0 {
				o.Ratio, o.Died = given, true
			}
		}
		sum += given
		table.Add(o)
		if n%span == span-1 {
			worst = max(worst, inSpan/span)
			inSpan = 0
		}
	}
	return failed / simulated, worst, sum / simulated
}

const fixedRatio = 1.05

// calibrated is the margin of the product: the fixed one until enough is known.
func calibrated(table *Table, _ int) float64 {
	m := table.Margin(small)
	if !m.Calibrated {
		return max(fixedRatio, table.Worst(small))
	}
	return m.Ratio
}

// TestSimulation holds the rate under drift, and is the figure of docs/actuals.md.
func TestSimulation(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s  %6s  %-28s  %s\n", "", "", "fixed margin of 5 %", "calibrated")
	fmt.Fprintf(&b, "%-24s  %6s  %8s %8s %9s  %8s %8s %9s\n", "40 000 jobs", "target", "failed", "worst", "margin", "failed", "worst", "margin")
	for _, w := range worlds {
		for _, target := range []float64{0.01, 0.05} {
			fixed, fixedWorst, _ := failures(w, target, 1, func(*Table, int) float64 { return fixedRatio })
			rate, worst, mean := failures(w, target, 1, calibrated)
			fmt.Fprintf(&b, "%-24s  %4.0f %%  %6.2f %% %6.2f %% %7.1f %%  %6.2f %% %6.2f %% %7.1f %%\n", w.name, 100*target, 100*fixed, 100*fixedWorst, 100*(fixedRatio-1), 100*rate, 100*worst, 100*(mean-1))
			others, _, _ := failures(w, target, 2, calibrated)
			for _, rate := range []float64{rate, others} {
				if rate > 1.1*target {
					t.Errorf("%s: %.2f %% of the jobs failed, the target is %.0f %%", w.name, 100*rate, 100*target)
				}
			}
		}
	}
	t.Log("\n" + b.String())
	manual, err := os.ReadFile(filepath.Join("..", "..", "docs", "actuals.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), b.String()) {
		t.Errorf("docs/actuals.md shows another figure than this:\n%s", b.String())
	}
}
