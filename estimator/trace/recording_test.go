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
