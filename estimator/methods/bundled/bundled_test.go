package bundled

import (
	"slices"
	"strings"
	"testing"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract/contracttest"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
)

func TestList(t *testing.T) {
	names := Names()
	if names[0] != Default || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("names %v: the default one comes first, and none twice", names)
	}
	for _, m := range All() {
		if !m.Recording.RunMode().Valid() || m.Version == "" || m.Summary == "" || m.Estimate == nil {
			t.Errorf("%s: the row is not whole: %+v", m.Name, m)
		}
	}
	if _, err := Find("nobody"); err == nil || !strings.Contains(err.Error(), Default) {
		t.Errorf("%v: want an error that names what there is", err)
	}
}

// TestFromBundle asks every estimator about bundles that it cannot answer for, and the default one about one that it can.
func TestFromBundle(t *testing.T) {
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range All() {
		for name, change := range map[string]func(*trace.Manifest){
			"recorded_otherwise": func(x *trace.Manifest) { x.Mode = another(m.Recording.RunMode()) },
			"script_failed": func(x *trace.Manifest) {
				x.Mode, x.Outcome, x.Reasons = m.Recording.Mode, trace.Crashed, []estimator.Reason{{Code: "script_failed"}}
			},
		} {
			b := contracttest.SoundBundle(card)
			change(&b.Manifest)
			e, err := m.FromBundle(b, card)
			if err != nil || e.Confidence != estimator.Unknown || len(e.Reasons) != 1 || e.Reasons[0].Code != name || e.Estimator != m.Name {
				t.Errorf("%s: %v, %+v: want unknown because of %s", m.Name, err, e, name)
			}
		}
		b := contracttest.SoundBundle(card)
		b.Manifest.GPU.ID = "h100"
		if _, err := m.FromBundle(b, card); err == nil {
			t.Errorf("%s answers for a card on which nothing was recorded", m.Name)
		}
	}
	method, err := Find(Default)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := method.FromBundle(contracttest.SoundBundle(card), card); err != nil || e.Confidence != estimator.High || e.Ranks[0].PeakReservedBytes != 1<<30 {
		t.Errorf("%v, %+v", err, e)
	}
}

func another(m trace.Mode) trace.Mode {
	if m == trace.ModeVGPU {
		return trace.ModeProfile
	}
	return trace.ModeVGPU
}
