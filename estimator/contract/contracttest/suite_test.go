package contracttest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/methods/bundled/plugin"
	"github.com/gresize/gresize/estimator/trace"
)

// roleVariable makes this test's own program a plugin.
const roleVariable = "GRESIZE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if contract.Starter() {
		os.Exit(contract.StartPlugin())
	}
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	default:
		if method, err := bundled.Find(role); err == nil {
			contract.Serve(plugin.Estimator{Method: method})
			return
		}
		contract.Serve(wrong(role))
	}
}

// wrong is an estimator with the fault that it is named after.
type wrong string

func (wrong) Info() contract.Info { return contract.Info{Name: "wrong", Version: "1"} }

func (w wrong) Estimate(ctx context.Context, r contract.Request) (estimator.Estimate, error) {
	e := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: "wrong", GPU: r.GPU.ID, Confidence: estimator.High, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: 1 << 30, ComfortableBytes: 1 << 30, ComfortableHighBytes: 1 << 30}}}
	switch w {
	case "schema":
		e.Schema = "gresize.estimate/2"
	case "negative":
		e.Ranks[0].PeakReservedBytes, e.Ranks[0].ComfortableBytes = -1, -1
	case "hang":
		select {}
	case "crash":
		os.Exit(3)
	case "flood":
		for {
			if _, err := os.Stderr.WriteString(strings.Repeat("all work and no play\n", 1000)); err != nil {
				return e, err
			}
		}
	case "large":
		e.Reasons = append(e.Reasons, estimator.Reason{Code: "large", Detail: strings.Repeat("x", contract.MaxAnswerBytes)})
	case "name":
		e.Estimator = "vgpu"
	case "card":
		e.GPU = "another"
	case "mute":
		e = estimator.NewUnknown("wrong", r.GPU.ID)
	case "panic":
		panic("no idea")
	case "guess": // a number whatever it is asked
	}
	return e, nil
}

func subject(t *testing.T, command contract.Command) Subject {
	t.Helper()
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	s := Subject{Command: command, Bundle: filepath.Join(t.TempDir(), "job.bundle"), Card: card, Deadline: 5 * time.Second, Scratch: t.TempDir()}
	if err := trace.WriteFile(s.Bundle, SoundBundle(card)); err != nil {
		t.Fatal(err)
	}
	return s
}

func self(t *testing.T, role string) contract.Command {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return contract.Command{Path: path, Env: []string{roleVariable + "=" + role}}
}

func TestSuitePasses(t *testing.T) {
	example := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", example, "../../../examples/estimator").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	subjects := map[string]Subject{"example": subject(t, contract.Command{Path: example})}
	for _, m := range bundled.All() {
		s := subject(t, self(t, m.Name))
		s.Bundle = recorded(t, m.Recording)
		subjects[m.Name] = s
	}
	for name, s := range subjects {
		for _, r := range Check(t.Context(), s) {
			if r.Err != nil {
				t.Errorf("%s: %s: %v", name, r.Case, r.Err)
			}
		}
	}
}

// recorded is a bundle of a run that was made as a recording says: a small ConvNet, testdata/workloads/gpumemnet_cnn.py 3 10 8 relu 0 0 32@64,64@64,
// with gresize estimate --gpu a100-80 --estimator NAME --bundle FILE.
func recorded(t *testing.T, r trace.Recording) string {
	t.Helper()
	name := string(r.RunMode())
	if slices.Contains(r.Parts, trace.PartPublished) {
		name += "-published"
	}
	path, err := filepath.Abs(filepath.Join("../../methods/bundled/testdata", name+".bundle"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBundledKnow holds that the suite asks each bundled estimator about a run that it has a number for: one that always says unknown
// would pass it.
func TestBundledKnow(t *testing.T) {
	card, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range bundled.All() {
		b, err := trace.ReadFile(recorded(t, m.Recording))
		if err != nil {
			t.Fatal(err)
		}
		e, err := m.FromBundle(b, card)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		largest, some := e.Largest()
		if m.Name == "history" { // knows what it has seen, and has seen nothing here
			if e.Confidence != estimator.Unknown || len(e.Reasons) == 0 {
				t.Errorf("%s: %+v", m.Name, e)
			}
		} else if !some || e.Confidence == estimator.Unknown || largest.ComfortableBytes <= 0 || largest.ComfortableBytes > 32<<30 {
			t.Errorf("%s: %+v", m.Name, e)
		}
	}
}

// TestSuiteFails asks wrong plugins: each must fail, for its own fault.
func TestSuiteFails(t *testing.T) {
	for _, c := range []struct {
		role, failing string
		fault         error
		says          string
	}{
		{"schema", "answers", contract.ErrAnswer, "schema"},
		{"negative", "answers", contract.ErrAnswer, "peak_reserved_bytes"},
		{"hang", "answers", contract.ErrDeadline, ""},
		{"crash", "answers", contract.ErrDied, "exit status 3"},
		{"flood", "answers", contract.ErrFlood, "no play"},
		{"large", "answers", nil, ""},
		{"name", "answers", contract.ErrAnswer, "estimator"},
		{"card", "answers", contract.ErrAnswer, "gpu"},
		{"mute", "answers", contract.ErrAnswer, "reasons"},
		{"panic", "answers", contract.ErrAnswer, "no idea"},
		{"guess", "gives no number for no bundle", nil, "a number with confidence high"},
	} {
		s := subject(t, self(t, c.role))
		s.Deadline = 2 * time.Second
		if c.role == "hang" {
			s.Deadline = 200 * time.Millisecond
		}
		found := false
		for _, r := range Check(t.Context(), s) {
			if r.Case != c.failing {
				continue
			}
			found = r.Err != nil
			if !found || c.fault != nil && !errors.Is(r.Err, c.fault) || !strings.Contains(r.Err.Error(), c.says) {
				t.Errorf("%s: %s: %v, want a fault %v that says %q", c.role, r.Case, r.Err, c.fault, c.says)
			}
		}
		if !found {
			t.Errorf("%s passes", c.role)
		}
	}
}

func BenchmarkStartAndCall(b *testing.B) {
	s, command := benchmarkSubject(b)
	for b.Loop() {
		c, err := contract.Start(b.Context(), command)
		if err != nil {
			b.Fatal(err)
		}
		if err := answers(b.Context(), s, c); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		c.Close()
		b.StartTimer()
	}
}

func BenchmarkWarmCall(b *testing.B) {
	s, command := benchmarkSubject(b)
	c, err := contract.Start(b.Context(), command)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var times []time.Duration
	for b.Loop() {
		begun := time.Now()
		if err := answers(b.Context(), s, c); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "p99-ms")
}

// benchmarkSubject is an estimator that does no work of its own.
func benchmarkSubject(b *testing.B) (Subject, contract.Command) {
	b.Helper()
	path, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	card, err := gpu.Load("a100-80")
	if err != nil {
		b.Fatal(err)
	}
	return Subject{Bundle: "/nonexistent", Card: card, Deadline: 5 * time.Second}, contract.Command{Path: path, Env: []string{roleVariable + "=guess"}}
}
