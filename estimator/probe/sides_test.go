package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu"
)

// judged is the scripted engine with the answers of the real one.
type judged struct{ scripted }

func (j judged) Environment(o EngineOptions, env []string) ([]string, error) {
	add, err := j.scripted.Environment(o, env)
	return append(add, "GRESIZE_VGPU_VALUES="+o.Values), err
}

func (judged) Estimate(b *trace.Bundle, p *gpu.Profile) estimator.Estimate {
	return vgpu.Estimate(b, p)
}

// TestOtherSide: a command that went by values is run once more, and only both ends together can keep the confidence; a third time where they are near, or one of them
// is none that a working program is at.
func TestOtherSide(t *testing.T) {
	const rank = `{"schema":"gresize.vgpu.rank/1","reason":"stopped","steps":4,"flat":true,"libraries":[],"peak_allocated_bytes":1048576,` +
		`"peak_reserved_bytes":%s,"peak_device_bytes":%s,"coverage":{"torch":"2.6.0","known_release":true,"values":{"policy":"%s","uses":{%s}}}}`
	const script = `case "$GRESIZE_VGPU_VALUES" in high) p=%s; v=high;; half) p=%s; v=half;; *) p=%s; v=low;; esac
stopped=true; test $p != fails || { p=2097152; stopped=false; }
echo '{"TorchSeen":true,"Stopped":'$stopped',"Steps":4,"Ranks":[{"Report":%s}]}' > $GRESIZE_VGPU_REPORT_DIR/python-1.json
$stopped || exit 1`
	const low, segment, much, fails = "104857600", "125829120", "157286400", "fails"
	for _, c := range []struct {
		name              string
		uses              string
		low, half, high   string
		want              estimator.Confidence
		other, third, say bool
	}{
		{"no use of values", ``, low, low, much, estimator.High, false, false, false},
		{"equal to the byte", `"item":8`, low, much, low, estimator.High, true, false, true},
		{"sizes, and much apart", `"nonzero":8`, low, low, much, estimator.Low, true, false, true},
		{"sizes, and a segment apart", `"nonzero":8`, low, low, segment, estimator.High, true, true, true},
		{"sizes, and ends that are equal", `"nonzero":8`, low, low, low, estimator.High, true, true, true},
		{"most between ends that are equal", `"nonzero":8`, low, much, low, estimator.Low, true, true, true},
		{"between ends that are equal it fails", `"nonzero":8`, low, fails, low, estimator.Low, true, true, true},
		{"with nothing found it fails", `"nonzero":8`, fails, low, segment, estimator.High, true, true, true},
		{"with nothing found it fails, and the others are apart", `"nonzero":8`, fails, low, much, estimator.Low, true, true, true},
		{"with everything found it fails", `"nonzero":8`, low, low, fails, estimator.High, true, true, true},
		{"at both ends it fails", `"nonzero":8`, fails, low, fails, estimator.Low, true, true, true},
		{"it fails", `"nonzero":8`, fails, fails, fails, estimator.Unknown, true, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := fmt.Sprintf(rank, `'$p'`, `'$p'`, `'$v'`, c.uses)
			o := options(t, fmt.Sprintf(script, c.high, c.half, c.low, report))
			o.Engine = judged{}
			r := mustRun(t, o)
			has := r.Estimate.HasReason("values_bounded")
			if r.Estimate.Confidence != c.want || has != c.say {
				t.Errorf("%s %v, want %s and values_bounded %v", r.Estimate.Confidence, r.Estimate.Reasons, c.want, c.say)
			}
			if len(r.Bundle.Ranks) != 1 || strings.Contains(string(r.Bundle.Ranks[0].Report), `"other_side":`) != c.other || strings.Contains(string(r.Bundle.Ranks[0].Report), `"third_side":`) != c.third {
				t.Errorf("want a second run %v, a third %v: %s", c.other, c.third, r.Bundle.Ranks[0].Report)
			}
		})
	}
}

// noted is that engine, and keeps which of the runs were to end at their first answer.
type noted struct {
	judged
	quick *[]bool
}

func (n noted) Environment(o EngineOptions, env []string) ([]string, error) {
	*n.quick = append(*n.quick, o.Quick)
	return n.judged.Environment(o, env)
}

// TestOtherSideOfAJAXProgramThatGoesOn: what is low because the program was stopped is low on every side, so the others come to their first answer only; those of
// a program that ended are followed to their end.
func TestOtherSideOfAJAXProgramThatGoesOn(t *testing.T) {
	const script = `echo '{"TorchSeen":true,"Stopped":%v,"Steps":4,"Ranks":[{"Report":{"schema":"gresize.vgpu.rank/1","reason":"%s","steps":4,"flat":true,"libraries":[],` +
		`"peak_allocated_bytes":1048576,"peak_reserved_bytes":1048576,"peak_device_bytes":1048576,"pool":{"release":"0.10.2","needed_bytes":1048576},` +
		`"coverage":{"torch":"","values":{"policy":"low","uses":{"fetched":3}}}}}]}' > $GRESIZE_VGPU_REPORT_DIR/python-1.json`
	for reason, want := range map[string][]bool{"exit": {false, false}, "stopped": {false, true}} {
		t.Run(reason, func(t *testing.T) {
			var quick []bool
			o := options(t, fmt.Sprintf(script, reason == "stopped", reason))
			o.Engine = noted{quick: &quick}
			r := mustRun(t, o)
			if !slices.Equal(quick, want) || (r.Estimate.Confidence == estimator.Low) != (reason == "stopped") {
				t.Errorf("quick: %v, want %v: %v %v", quick, want, r.Estimate.Confidence, r.Estimate.Reasons)
			}
		})
	}
}

// TestAnotherSideCompilesNothing: a program that compiles for most of its time leaves time for its other sides where it has used most of the budget.
func TestAnotherSideCompilesNothing(t *testing.T) {
	const rank = `{"schema":"gresize.vgpu.rank/1","reason":"exit","steps":4,"flat":true,"libraries":[],"pool":{"release":"0.10.2","needed_bytes":1048576,"compile_seconds":%d},"coverage":{"torch":""}}`
	for _, c := range []struct {
		compiled int
		quick    bool
		want     time.Duration
	}{
		{0, false, 200 * time.Second},
		{0, true, 100 * time.Second},
		{120, false, 80 * time.Second},
		{120, true, 40 * time.Second},
		{400, false, 50 * time.Second}, // of the processor, which has several cores
	} {
		first := &trace.Bundle{Ranks: []trace.Rank{{Report: fmt.Appendf(nil, rank, c.compiled)}}}
		if needs := (&run{ranFor: 200 * time.Second}).sideNeeds(first, c.quick); needs != c.want {
			t.Errorf("compiled for %d s, quick %v: another side needs %s, want %s", c.compiled, c.quick, needs, c.want)
		}
	}
}
