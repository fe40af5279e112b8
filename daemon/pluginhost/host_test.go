package pluginhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/contract"
)

const roleVariable = "GRESIZE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if contract.Starter() {
		os.Exit(contract.StartPlugin())
	}
	if role := os.Getenv(roleVariable); role != "" {
		if a, hostile := attacks[role]; hostile && a.instead != nil {
			a.instead()
			return
		}
		contract.Serve(fake(role))
		return
	}
	os.Exit(m.Run())
}

// fake is an estimator that does what it is named after.
type fake string

func (f fake) Info() contract.Info { return contract.Info{Name: f.name(), Version: "1"} }

// name is a plain one.
func (f fake) name() string { return strings.ReplaceAll(string(f), " ", "-") }

func (f fake) Estimate(_ context.Context, r contract.Request) (estimator.Estimate, error) {
	e := estimator.Estimate{Schema: estimator.SchemaEstimate, Estimator: f.name(), GPU: r.GPU.ID, Confidence: estimator.High, Reasons: []estimator.Reason{},
		Ranks: []estimator.Rank{{PeakReservedBytes: 1 << 30, ComfortableBytes: 1 << 30, ComfortableHighBytes: 1 << 30}}}
	if a, hostile := attacks[string(f)]; hostile {
		return a.asked(e)
	}
	switch f {
	case "hang":
		select {}
	case "crash":
		os.Exit(3)
	case "lie":
		e.Ranks[0].PeakReservedBytes = -1
	case "unsure":
		return estimator.NewUnknown("unsure", r.GPU.ID, estimator.Reason{Code: "not_mine"}), nil
	}
	return e, nil
}

func entry(t *testing.T, role string) Entry {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Name: role, Timeout: 300 * time.Millisecond, Command: contract.Command{Path: path, Dir: t.TempDir(), Env: []string{roleVariable + "=" + role}}}
}

func bundleOf(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFallsThrough(t *testing.T) {
	h := New([]Entry{entry(t, "hang"), entry(t, "crash"), entry(t, "lie"), entry(t, "unsure"), entry(t, "good")}, slog.New(slog.DiscardHandler))
	defer h.Close()
	e, err := h.Estimate(t.Context(), estimator.Job{}, bundleOf(t), "a100-80")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Validate(); err != nil || e.Estimator != "good" || len(e.Reasons) != 4 {
		t.Fatalf("%v: %+v", err, e)
	}
	for i, says := range []string{"hang: plugin does not answer in time", "crash: plugin died: exit status 3", "lie: plugin gives an invalid answer", "unsure: unknown, not_mine"} {
		if r := e.Reasons[i]; r.Code != estimator.CodeEstimatorFellBack || !strings.HasPrefix(r.Detail, says) {
			t.Errorf("reason %d: %+v, want %q", i, r, says)
		}
	}
	for _, x := range h.entries {
		left, err := os.ReadDir(x.Command.Dir)
		for _, f := range left {
			if strings.HasSuffix(f.Name(), ".bundle") {
				t.Errorf("%s: %s is left, %v", x.Name, f.Name(), err)
			}
		}
	}
}

// TestBreaker lets a plugin die until it is put aside, and come back.
func TestBreaker(t *testing.T) {
	h := New([]Entry{entry(t, "crash")}, slog.New(slog.DiscardHandler))
	defer h.Close()
	now := time.Now()
	p := h.plugins[0]
	p.now = func() time.Time { return now }
	ask := func() error { _, err := h.Estimate(t.Context(), estimator.Job{}, bundleOf(t), "a100-80"); return err }
	for death, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, breakerWindow} {
		if err := ask(); !errors.Is(err, contract.ErrDied) {
			t.Fatalf("death %d: %v", death, err)
		}
		if got := p.resume.Sub(now); got != pause {
			t.Errorf("after death %d the next start is in %s, want %s", death, got, pause)
		}
		now = now.Add(pause - time.Millisecond)
		if err := ask(); err == nil || errors.Is(err, contract.ErrDied) {
			t.Errorf("death %d: started too soon: %v", death, err)
		}
		now = now.Add(time.Millisecond)
	}
	p.entry = entry(t, "good")
	if err := ask(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// TestUntrusted holds that a program which others could have changed, or which is not the pinned one, is not started, and is as soon as that was mended.
func TestUntrusted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	x := entry(t, "good")
	x.Command.Path = filepath.Join(t.TempDir(), "plugin")
	if err := errors.Join(os.WriteFile(x.Command.Path, program, 0o700), os.Chmod(x.Command.Path, 0o777)); err != nil {
		t.Fatal(err)
	}
	h := New([]Entry{x, entry(t, "good")}, slog.New(slog.DiscardHandler))
	defer h.Close()
	fellBack := func() string {
		t.Helper()
		e, err := h.Estimate(t.Context(), estimator.Job{}, bundleOf(t), "a100-80")
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Reasons) == 0 {
			return ""
		}
		return e.Reasons[0].Detail
	}
	if got := fellBack(); !strings.Contains(got, "can be changed by others") {
		t.Errorf("a program that all may write: %q", got)
	}
	if err := os.Chmod(x.Command.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	h.plugins[0].entry.SHA256 = strings.Repeat("0", 64)
	if got := fellBack(); !strings.Contains(got, "change sha256") {
		t.Errorf("another program: %q", got)
	}
	sum := sha256.Sum256(program)
	h.plugins[0].entry.SHA256 = hex.EncodeToString(sum[:])
	if got := fellBack(); got != "" || len(h.plugins[0].deaths) > 0 {
		t.Errorf("mended and pinned: %q, %d deaths", got, len(h.plugins[0].deaths))
	}
}
