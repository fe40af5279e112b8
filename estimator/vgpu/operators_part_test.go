package vgpu

import (
	"testing"

	"github.com/gresize/gresize/estimator/analysis/utilization"
	"github.com/gresize/gresize/estimator/trace"
)

// TestOperatorsPart records one step of a program and compares with what is known of it; the peak must be the same as without.
func TestOperatorsPart(t *testing.T) {
	for _, release := range []string{"2.6.0", "2.11.0"} {
		plain := runPython(t, release, 1, []string{"testdata/stepped.py", "4"})
		o := runPython(t, release, 1, []string{"testdata/stepped.py", "4"}, "GRESIZE_PROBE_PARTS=operators", "GRESIZE_PROBE_EVENTS=1")
		if o.failed || len(o.ranks) != 1 || len(plain.ranks) != 1 {
			t.Fatalf("%s:\n%s", release, o.output)
		}
		if a, b := plain.ranks[0].PeakReservedBytes, o.ranks[0].PeakReservedBytes; a != b {
			t.Errorf("%s: %d bytes at the peak, %d where operators are recorded", release, a, b)
		}
		s, err := utilization.Read(o.reports.Ranks[0].Parts[trace.PartOperators])
		if err != nil {
			t.Fatalf("%s: %v", release, err)
		}
		if s.Step != 3 || s.Compiled || s.LeftOut != 0 || s.Syncs != 1 || len(s.ProcessorSeconds) < 2 {
			t.Errorf("%s: %+v", release, s)
		}
		for i, u := range s.Uses {
			if i > 0 && (u.From[0] < s.Uses[i-1].From[0] || u.To[1] < u.From[1]) {
				t.Fatalf("%s: use %d: %+v after %+v", release, i, u, s.Uses[i-1])
			}
			// Input, filters and output.
			if u.Operator >= 0 && s.Operators[u.Operator].Name == "convolution" && (len(u.Addresses) < 3 || u.To[0] == u.From[0]) {
				t.Errorf("%s: a convolution uses %+v", release, u)
			}
		}
		if len(s.Uses) < 20 {
			t.Errorf("%s: %d uses", release, len(s.Uses))
		}
		flops, byKey := 0.0, map[string]utilization.Operator{}
		for _, op := range s.Operators {
			if op.Kind == "product" {
				flops += op.FLOPs * op.Count
			}
			byKey[op.Name+" "+op.Type] = op
		}
		// 4 images of 3 x 16 x 16; a convolution to 8 channels, its filters' gradient but no image's; 2048 -> 10 in bf16, all three passes; a product of fp32.
		if want := 2.0*4*8*16*16*27*2 + 2*4*2048*10*3 + 2*4*10*10*3; flops != want {
			t.Errorf("%s: %g FLOPs in products, want %g\n%+v", release, flops, want, s.Operators)
		}
		for _, key := range []string{"convolution tf32", "convolution_backward tf32", "addmm bf16", "mm bf16", "mm fp32", "relu fp32"} {
			if byKey[key].Count == 0 {
				t.Errorf("%s: no %s in %v", release, key, byKey)
			}
		}
		if relu := byKey["relu fp32"]; relu.Launches != 1 || relu.Bytes != 2*4*4*8*16*16 || relu.Blocks < 1 || relu.Blocks > 64 {
			t.Errorf("%s: %+v", release, relu)
		}
	}
}

func TestOperatorsPartOfACompiledProgram(t *testing.T) {
	o := runPython(t, "2.6.0", 1, []string{"testdata/stepped.py", "4", "compiled"}, "GRESIZE_PROBE_PARTS=operators")
	if o.failed || len(o.reports.Ranks) != 1 {
		t.Fatal(o.output)
	}
	s, err := utilization.Read(o.reports.Ranks[0].Parts[trace.PartOperators])
	if err != nil || !s.Compiled || len(s.Operators) != 0 {
		t.Errorf("%v, %+v", err, s)
	}
}
