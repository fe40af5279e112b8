package vgpu

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/vgpu/manifest"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// The releases that the workloads of torch_test.go run on, as the Makefile names them. Every change is tried on two; `make nightly` tries
// nightlyReleases, and GRESIZE_RELEASES names others, such as one that tools/torchvenv/matrix just installed.
var (
	everyDayReleases = inMakefile("TEST_TORCH")
	nightlyReleases  = slices.SortedFunc(slices.Values(slices.Concat(everyDayReleases, inMakefile("NIGHTLY_TORCH"))), func(a, b string) int {
		return cmp.Compare(minorOf(a), minorOf(b))
	})
)

// inMakefile are the words of a variable of the Makefile, which installs the releases that it names.
func inMakefile(variable string) []string {
	text, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		panic(err)
	}
	_, after, found := strings.Cut(string(text), "\n"+variable+" := ")
	line, _, _ := strings.Cut(after, "\n")
	if !found || line == "" {
		panic("the Makefile has no " + variable)
	}
	return strings.Fields(line)
}

// minorOf is the number of a release of PyTorch 2 by which the list is ordered.
func minorOf(release string) int {
	n, err := strconv.Atoi(strings.Split(release, ".")[1])
	if err != nil {
		panic(err)
	}
	return n
}

// TestReleasesOnThePage: docs/accuracy/releases.md names the releases of the Makefile.
func TestReleasesOnThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "accuracy", "releases.md"))
	if err != nil {
		t.Fatal(err)
	}
	enumerated := func(list []string) string {
		last := len(list) - 1
		return strings.Join(list[:last], ", ") + " and " + list[last]
	}
	want := fmt.Sprintf("`make nightly` runs %s, `make test` %s.", enumerated(nightlyReleases), enumerated(everyDayReleases))
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/accuracy/releases.md does not say: %s", want)
	}
}

func releases(t *testing.T) []string {
	t.Helper()
	switch {
	case os.Getenv("GRESIZE_RELEASES") != "":
		return strings.Fields(os.Getenv("GRESIZE_RELEASES"))
	case os.Getenv("GRESIZE_NIGHTLY") == "1":
		return nightlyReleases
	}
	return everyDayReleases
}

// matrix collects what the workloads showed on each release, and is printed when more than the two of every day ran.
var matrix releaseTable

type releaseTable struct {
	sync.Mutex
	rows map[string]*releaseRow
}

type releaseRow struct {
	cuda, cudnn                                                     string
	ran, failed                                                     map[string]bool // by name of the test
	unanswered, missing                                             map[string]bool
	mlpAllocated, cnnAllocated, transformerAllocated, lstmAllocated int64
	seconds                                                         float64
}

// note is called after each run of a workload; whether its test passed is known when the test is over.
func (m *releaseTable) note(t *testing.T, release, workload string, o *outcome, took time.Duration) {
	m.Lock()
	defer m.Unlock()
	if m.rows == nil {
		m.rows = map[string]*releaseRow{}
	}
	row := m.rows[release]
	if row == nil {
		row = &releaseRow{ran: map[string]bool{}, failed: map[string]bool{}, unanswered: map[string]bool{}, missing: map[string]bool{}}
		m.rows[release] = row
	}
	row.seconds += took.Seconds()
	if v := o.reports.Versions; v.CUDA != "" {
		row.cuda = v.CUDA
		row.cudnn = max(row.cudnn, v.CuDNN)
	}
	for _, s := range o.reports.UnansweredSymbols {
		row.unanswered[s.Name] = true
	}
	if len(o.ranks) == 1 {
		peak := o.ranks[0].PeakAllocatedBytes
		switch workload {
		case "mlp":
			row.mlpAllocated = peak
		case "cnn":
			row.cnnAllocated = peak
		case "transformer":
			row.transformerAllocated = peak
		case "lstm":
			row.lstmAllocated = peak
		}
	}
	if row.ran[t.Name()] {
		return
	}
	row.ran[t.Name()] = true
	t.Cleanup(func() {
		m.Lock()
		defer m.Unlock()
		row.failed[t.Name()] = t.Failed()
	})
}

// print writes the table of docs/accuracy/releases.md.
func (m *releaseTable) print() {
	m.Lock()
	defer m.Unlock()
	if len(m.rows) == 0 || os.Getenv("GRESIZE_NIGHTLY") != "1" && os.Getenv("GRESIZE_RELEASES") == "" {
		return
	}
	fmt.Println("| PyTorch | CUDA | cuDNN | workloads passed | unanswered | missing | mlp, cnn, transformer, lstm: allocated at the peak, MiB | seconds |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	names := slices.Collect(maps.Keys(m.rows))
	slices.SortFunc(names, compareReleases)
	for _, name := range names {
		r := m.rows[name]
		passed := len(r.ran)
		for _, failed := range r.failed {
			if failed {
				passed--
			}
		}
		fmt.Printf("| %s | %s | %s | %d of %d | %s | %s | %.1f, %.1f, %.1f, %.1f | %.0f |\n", name, r.cuda, r.cudnn, passed, len(r.ran), listed(r.unanswered), listed(r.missing),
			inMiB(r.mlpAllocated), inMiB(r.cnnAllocated), inMiB(r.transformerAllocated), inMiB(r.lstmAllocated), r.seconds)
	}
}

func inMiB(bytes int64) float64 { return float64(bytes) / float64(mib) }

func listed(names map[string]bool) string {
	if len(names) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", len(names), strings.Join(slices.Sorted(maps.Keys(names)), ", "))
}

func compareReleases(a, b string) int {
	number := func(s string) (parts [3]int) {
		fmt.Sscanf(s, "%d.%d.%d", &parts[0], &parts[1], &parts[2]) //nolint:errcheck // what is no number sorts first
		return parts
	}
	x, y := number(a), number(b)
	return slices.Compare(x[:], y[:])
}

// The releases that are run must be those that there are manifests of, or the run would say so by its confidence.
func TestEveryRunReleaseHasAManifest(t *testing.T) {
	all, err := manifest.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range slices.Concat(everyDayReleases, nightlyReleases) {
		if !slices.ContainsFunc(all, func(m manifest.Manifest) bool { return m.Torch == release }) {
			t.Errorf("no manifest of PyTorch %s", release)
		}
	}
}

// holdsWorkspaces says whether the release keeps cuBLAS's workspaces from their first use on. Newer ones take one for each call and
// give it back, as the allocator's own history shows.
func holdsWorkspaces(release string) bool { return compareReleases(release, "2.15.0") < 0 }

// With the stubs of the releases around it alone, a release still runs, to the same peak: what it asks for is theirs. One that needs what no
// stub has leaves a report that names it.
func TestAReleaseWithoutAManifest(t *testing.T) {
	build := func(releases string) string {
		lib := filepath.Join(t.TempDir(), "lib")
		if out, err := exec.Command("make", "-s", "-j2", "OUT="+lib, "RELEASES="+releases).CombinedOutput(); err != nil {
			t.Fatalf("make: %v\n%s", err, out)
		}
		return lib
	}
	run := func(lib, release string) (Reports, string) {
		dir := t.TempDir()
		env, err := Environment(Options{LibDir: lib, ReportDir: dir, Quick: true, Seconds: 240}, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(torchtest.Python(t, release), "testdata/train.py", "mlp")
		cmd.Env = append(os.Environ(), env...)
		out, _ := cmd.CombinedOutput()
		reports, err := ReadReports(dir)
		if err != nil {
			t.Fatal(err)
		}
		return reports, string(out)
	}
	r, out := run(build("2.10.0 2.12.1"), "2.11.0")
	if !r.Stopped || len(r.UnansweredSymbols) != 0 || len(r.Ranks) != 1 {
		t.Errorf("on the stubs of its neighbours: %+v\n%s", r, out)
	} else if rank, err := parseRank(r.Ranks[0].Report); err != nil || rank.PeakReservedBytes != 159383552 {
		t.Errorf("%+v, %v", rank, err)
	}
	r, out = run(build("2.6.0"), "2.11.0") // CUDA 13 on the stubs of CUDA 12
	missing := func(reason estimator.Reason) bool {
		return reason.Code == "stub_missing" && strings.Contains(reason.Detail, "libcudart.so.13")
	}
	if r.Stopped || !slices.ContainsFunc(r.Reasons, missing) {
		t.Errorf("%+v\n%s", r, out)
	}
}
