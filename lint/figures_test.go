package lint

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// figures are what several pages say, each with the page that its command writes and the place in it. A page that repeats one marks it with a comment behind
// the number, such as 0.6 %<!--xmem-median-->.
var figures = []struct{ name, page, at string }{
	{"xmem-median", "docs/accuracy/estimators.md", `\| all \| vgpu \| 195 \| 195 \| ([0-9.]+) % \|`},
	{"xmem-unseen-median", "docs/accuracy/estimators.md", `\| CNN, unseen \| vgpu \| 22 \| 22 \| ([0-9.]+) % \|`},
	{"timm-median", "docs/accuracy/estimators.md", `\| all \| vgpu \| 102 \| 102 \| ([0-9.]+) % \|`},
	{"gpumemnet-cnn-median", "docs/accuracy/estimators.md", `\| all \| vgpu \| 71 \| 71 \| ([0-9.]+) % \|`},
	{"xmem-rounds-failures", "docs/accuracy/xmem-rounds.md", `by arithmetic \(13 rows\), \*\*([0-9.]+) %\*\* with these rounds`},
	{"host-memory-median", "docs/accuracy/host-memory.md", `32 rows: median error ([0-9.]+) %`},
	{"host-memory-worst", "docs/accuracy/host-memory.md", `32 rows: median error [0-9.]+ %, largest ([0-9.]+) %`},
	{"resnet-seconds", "docs/accuracy/README.md", "PyTorch 2.6.0 \\| ([0-9.]+) s and"},
	{"resnet-import-seconds", "docs/accuracy/README.md", `importing the same libraries takes ([0-9.]+) s`},
}

var figure = regexp.MustCompile(`([0-9][0-9.,]*)[^0-9<]{0,12}<!--([a-z-]+)-->`)

// rounded is whether a figure says the same as its source, with as many digits as it has or fewer.
func rounded(said, source string) bool {
	a, err := strconv.ParseFloat(said, 64)
	b, fault := strconv.ParseFloat(source, 64)
	_, digits, _ := strings.Cut(said, ".")
	return err == nil && fault == nil && math.Abs(a-b) <= 0.5/math.Pow10(len(digits))+1e-9
}

// TestPagesAgreeOnFigures: a figure that a page repeats is that of the page which its command writes.
func TestPagesAgreeOnFigures(t *testing.T) {
	source := map[string]string{}
	for _, f := range figures {
		m := regexp.MustCompile(f.at).FindSubmatch(read(t, f.page))
		if m == nil {
			t.Errorf("%s: no figure %s: nothing is like %s", f.page, f.name, f.at)
			continue
		}
		source[f.name] = string(m[1])
	}
	used := map[string]bool{}
	for _, page := range sourceFiles(t, ".md") {
		for _, m := range figure.FindAllStringSubmatch(string(read(t, page)), -1) {
			switch from, known := source[m[2]]; {
			case !known:
				t.Errorf("%s: there is no figure %s", page, m[2])
			case !rounded(m[1], from):
				t.Errorf("%s: %s is %s, and %s at its source", page, m[2], m[1], from)
			}
			used[m[2]] = true
		}
	}
	for name := range source {
		if !used[name] {
			t.Errorf("no page repeats %s", name)
		}
	}
}

func TestRounded(t *testing.T) {
	for _, row := range []struct {
		said, source string
		want         bool
	}{{"0.6", "0.62", true}, {"0.7", "0.62", false}, {"0.7", "0.65", true}, {"3", "2.97", true}, {"3.0", "2.97", true}, {"2.9", "2.97", false}, {"70", "70", true}, {"70", "71", false}, {"", "3", false}} {
		if got := rounded(row.said, row.source); got != row.want {
			t.Errorf("%s for %s: %v", row.said, row.source, got)
		}
	}
}
