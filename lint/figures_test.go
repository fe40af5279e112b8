package lint

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// figures are what several pages say, each with the page that its command writes, or the code that sets it, and the place in it. A page that repeats one marks
// it with a comment behind the number, such as 0.6 %<!--xmem-median-->. Of code, `64 << 20` is 64 MiB: the page says number and unit.
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
	{"xmem-transformers-median", "docs/accuracy/xmem.md", `repeats differ by more than 1 % \| 61 \| [0-9.]+ % \| ([0-9.]+) %`},
	{"xmem-transformers-tail", "docs/accuracy/xmem.md", `repeats differ by more than 1 % \| 61 \|(?: [0-9.]+ % \|){3} ([0-9.]+) %`},
	{"xmem-transformers-known", "docs/accuracy/xmem.md", `whose lengths are known \(below\) \| 49 \|(?: [0-9.]+ % \|){3} \*\*([0-9.]+) %`},
	{"xmem-rounds", "docs/accuracy/xmem-rounds.md", `(?m)^\| all \| ([0-9]+) \|`},
	{"xmem-rounds-agree", "docs/accuracy/xmem-rounds.md", `(?m)^\| all \|(?: [0-9]+ \|){5} ([0-9]+) %`},
	{"timm-low", "docs/accuracy/estimators.md", `\| all \| vgpu \| 102 \| 102 \|(?: [0-9.]+ % \|){5} ([0-9.]+) %`},

	{"submit-deadline", "slurm/plugin/limits.h", `GRESIZE_LOCAL_DEFAULT_DEADLINE_MS ([0-9]+)`},
	{"bundle-limit", "estimator/trace/bundle.go", `MaxBundleBytes = ([0-9]+ << [0-9]+)`},
	{"bundle-unpacked-limit", "estimator/trace/bundle.go", `MaxUnpackedBytes = ([0-9]+ << [0-9]+)`},
	{"bundle-manifest-limit", "estimator/trace/bundle.go", `MaxManifestBytes = ([0-9]+ << [0-9]+)`},
	{"bundle-report-limit", "estimator/trace/bundle.go", `MaxReportBytes   = ([0-9]+ << [0-9]+)`},
	{"bundle-profile-limit", "estimator/trace/bundle.go", `MaxProfileBytes = ([0-9]+ << [0-9]+)`},
	{"bundle-modules-limit", "estimator/trace/recording.go", `PartModules: ([0-9]+ << [0-9]+)`},
	{"bundle-operators-limit", "estimator/trace/recording.go", `PartOperators: ([0-9]+ << [0-9]+)`},
	{"bundle-saved-limit", "estimator/trace/recording.go", `PartSaved: ([0-9]+ << [0-9]+)`},
	{"output-tail", "estimator/probe/probe.go", `keptOutputBytes = ([0-9]+ << [0-9]+)`},
	{"reader-memory", "daemon/reader/child.go", `limitMemoryBytes = ([0-9]+ << [0-9]+)`},
	{"reader-seconds", "daemon/reader/child.go", `limitCPUSeconds  = ([0-9]+)`},
	{"sandbox-changes", "estimator/probe/sandbox/sandbox.go", `DefaultScratchBytes = int64\(([0-9]+\) << [0-9]+)`},
	{"file-whole", "estimator/probe/inputs/inputs.go", `wholeBytes = ([0-9]+ << [0-9]+)`},
	{"output-searched", "daemon/epilog/node.go", `scanBytes = ([0-9]+ << [0-9]+)`},
	{"page-connections", "daemon/web/web.go", `maxConnections = ([0-9]+)`},
	{"page-requests", "daemon/web/web.go", `maxRequests    = ([0-9]+)`},
	{"page-headers", "daemon/web/web.go", `maxHeaderBytes = ([0-9]+ << [0-9]+)`},
	{"page-questions", "daemon/web/web.go", `maxQueryBytes  = ([0-9]+ << [0-9]+)`},
	{"page-seconds", "daemon/web/web.go", `pageTimeout = ([0-9]+) \* time.Second`},
	{"page-report-seconds", "daemon/web/web.go", `sumTimeout  = ([0-9]+) \* time.Second`},
}

var figure = regexp.MustCompile(`([0-9][0-9.,]*)([^0-9<]{0,20})<!--([a-z-]+)-->`)

// inUnits is a size in code as a page says it: "64 << 20" is "64" and "MiB". Other figures have no unit that is known.
func inUnits(source string) (number, unit string) {
	number, shift, shifted := strings.Cut(strings.Replace(source, ")", "", 1), " << ")
	if !shifted {
		return source, ""
	}
	return number, map[string]string{"10": "KiB", "20": "MiB", "30": "GiB"}[shift]
}

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
			from, known := source[m[3]]
			number, unit := inUnits(from)
			switch {
			case !known:
				t.Errorf("%s: there is no figure %s", page, m[3])
			case !rounded(m[1], number) || !strings.HasPrefix(strings.TrimSpace(m[2]), unit):
				t.Errorf("%s: %s is %s%s, and %s at its source", page, m[3], m[1], m[2], from)
			}
			used[m[3]] = true
		}
	}
	for name := range source {
		if !used[name] {
			t.Errorf("no page repeats %s", name)
		}
	}
}

func TestInUnits(t *testing.T) {
	for source, want := range map[string]string{"64 << 20": "64 MiB", "2 << 30": "2 GiB", "256 << 10": "256 KiB", "2) << 30": "2 GiB", "0.62": "0.62 ", "1 << 5": "1 "} {
		if number, unit := inUnits(source); number+" "+unit != want {
			t.Errorf("%s: %s %s, want %s", source, number, unit, want)
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
