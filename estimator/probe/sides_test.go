package probe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

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

// TestOtherSide: a command that went by values is run once more, and only both ends together can keep the confidence.
func TestOtherSide(t *testing.T) {
	const rank = `{"schema":"gresize.vgpu.rank/1","reason":"stopped","steps":4,"flat":true,"libraries":[],"peak_allocated_bytes":1048576,` +
		`"peak_reserved_bytes":%s,"peak_device_bytes":%s,"coverage":{"torch":"2.6.0","known_release":true,"values":{"policy":"%s","uses":{%s}}}}`
	const script = `case "$GRESIZE_VGPU_VALUES" in high) p=%d; v=high;; *) p=4194304; v=low;; esac
echo '{"TorchSeen":true,"Stopped":true,"Steps":4,"Ranks":[{"Report":%s}]}' > $GRESIZE_VGPU_REPORT_DIR/python-1.json`
	for _, c := range []struct {
		name       string
		uses       string
		high       int64
		want       estimator.Confidence
		other, say bool
	}{
		{"no use of values", ``, 8 << 20, estimator.High, false, false},
		{"equal to the byte", `"item":8`, 4 << 20, estimator.High, true, true},
		{"a segment apart", `"item":8`, 6 << 20, estimator.Low, true, true},
		{"a byte apart", `"item":8`, 4<<20 + 1, estimator.Low, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := fmt.Sprintf(rank, `'$p'`, `'$p'`, `'$v'`, c.uses)
			o := options(t, fmt.Sprintf(script, c.high, report))
			o.Engine = judged{}
			r := mustRun(t, o)
			has := slices.ContainsFunc(r.Estimate.Reasons, func(r estimator.Reason) bool { return r.Code == "values_bounded" })
			if r.Estimate.Confidence != c.want || has != c.say {
				t.Errorf("%s %v, want %s and values_bounded %v", r.Estimate.Confidence, r.Estimate.Reasons, c.want, c.say)
			}
			if len(r.Bundle.Ranks) != 1 || strings.Contains(string(r.Bundle.Ranks[0].Report), `"policy":"high"`) != c.other {
				t.Errorf("a second run %v, want %v: %s", !c.other, c.other, r.Bundle.Ranks[0].Report)
			}
		})
	}
}
