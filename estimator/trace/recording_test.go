package trace

import (
	"slices"
	"strings"
	"testing"
)

func TestRecording(t *testing.T) {
	plain := Recording{}
	if env := plain.Environment(); len(env) != 0 || plain.RunMode() != ModeVGPU {
		t.Errorf("the zero value asks for %v", env)
	}
	both, ok := Recording{Parts: []Part{PartOperators}}.With(Recording{Mode: ModeVGPU, Parts: []Part{PartModules, PartOperators}})
	if !ok || strings.Join(both.Environment(), " ") != "GRESIZE_PROBE_PARTS=modules,operators" {
		t.Errorf("%t, %v", ok, both.Environment())
	}
	if _, ok := (Recording{Mode: ModeProfile}).With(Recording{Mode: ModeProfile, Parts: []Part{PartPublished}}); ok {
		t.Error("one profile of two kinds")
	}
	if _, ok := both.With(Recording{Mode: ModeFake}); ok {
		t.Error("one run in two modes")
	}
	if env := (Recording{Mode: ModeProfile}).Environment(); !slices.Equal(env, []string{"GRESIZE_PROBE_MODE=profile"}) {
		t.Errorf("%v", env)
	}
}

func TestModeIsChecked(t *testing.T) {
	m := Manifest{Mode: "real"}
	if err := m.validateMode(); err == nil || !strings.Contains(err.Error(), "mode") {
		t.Errorf("%v", err)
	}
}

func TestPartsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		parts map[Part][]byte
		want  string
	}{
		"unknown":   {map[Part][]byte{"weights": []byte("{}")}, "ranks/0/weights.jsonl: 2 bytes, want 1 to 0"},
		"empty":     {map[Part][]byte{PartModules: {}}, "ranks/0/modules.jsonl: 0 bytes"},
		"too large": {map[Part][]byte{PartModules: make([]byte, PartModules.MaxBytes()+1)}, "ranks/0/modules.jsonl"},
	} {
		b := sample()
		b.Ranks[0].Parts = c.parts
		if err := b.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, p := range Parts() {
		if p.MaxBytes() <= 0 {
			t.Errorf("%s has no size", p)
		}
	}
}
