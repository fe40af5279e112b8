package vgpu

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// operators runs cases of testdata/operators.py on a card and returns what each took at its peak, and what the process reported.
func operators(t *testing.T, release, card string, env []string, cases ...string) (peaks map[string]int64, report rankReport) {
	t.Helper()
	dir := t.TempDir()
	profile, err := gpu.Load(card)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := profile.WriteNative(&text); err != nil {
		t.Fatal(err)
	}
	profilePath := filepath.Join(dir, "profile")
	if err := os.WriteFile(profilePath, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	base, err := Environment(Options{LibDir: libDir(t), ProfilePath: profilePath, ReportDir: dir, Seconds: 100, Steps: 1000}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, torchtest.Python(t, release), append([]string{"testdata/operators.py"}, cases...)...)
	cmd.Env = append(append(os.Environ(), base...), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	peaks = map[string]int64{}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		var name, outcome string
		var bytes int64
		if n, _ := fmt.Sscanf(lines.Text(), "case %s %d %s", &name, &bytes, &outcome); n == 3 && outcome == "ok" {
			peaks[name] = bytes
		}
	}
	reports, err := ReadReports(dir)
	if err != nil || len(reports.Ranks) != 1 {
		t.Fatalf("%d ranks, %v", len(reports.Ranks), err)
	}
	if report, err = parseRank(reports.Ranks[0].Report); err != nil {
		t.Fatal(err)
	}
	if len(reports.UnansweredSymbols) != 0 || len(report.Coverage.Unanswered) != 0 {
		t.Errorf("answered by default: %v", reports.UnansweredSymbols)
	}
	return peaks, report
}

// Every kind of operator runs on both releases without a symbol that is answered by default; nothing it asks for is nonsense.
func TestOperators(t *testing.T) {
	const largest = 256 * mib // no case has more than a few MiB of its own; the rest is cuBLAS's
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			peaks, report := operators(t, release, "h100", nil)
			if len(peaks) != 48 {
				t.Errorf("%d cases", len(peaks))
			}
			for name, bytes := range peaks {
				if bytes > largest {
					t.Errorf("%s: %d bytes", name, bytes)
				}
			}
			// In and out, and the work area: as large again, or Bluestein's for a large prime.
			for name, want := range map[string]int64{"fft_power_of_two": 3 * 64 * 1024 * 8, "fft_large_prime": 2*8*10007*8 + 8*32768*8} {
				if got := peaks[name]; got < want || got > want+4096 {
					t.Errorf("%s: %d bytes, want %d", name, got, want)
				}
			}
			for _, kind := range []string{"conv", "rnn", "ctc", "fft", "solver", "sparse"} {
				if _, ok := report.Coverage.Bounded[kind]; !ok {
					t.Errorf("%s: nothing was counted as a bound", kind)
				}
			}
		})
	}
}

// What PyTorch sizes itself is exact: no bound is reported, and the figures are what its own code says for the card and the release.
func TestOperatorsThatAreExact(t *testing.T) {
	const matrix = 256 * 256 * 4
	for _, c := range []struct {
		name, release, card string
		env                 []string
		run                 string
		want                int64
	}{
		{"Hopper, 2.6", "2.6.0", "h100", nil, "matmul", 3*matrix + 32*mib},
		{"Ampere, 2.6", "2.6.0", "a100-40", nil, "matmul", 3*matrix + (8192+128)<<10},
		{"Hopper, 2.11", "2.11.0", "h100", nil, "matmul", 3*matrix + 32*mib},
		{"as the variable says", "2.6.0", "h100", []string{"CUBLAS_WORKSPACE_CONFIG=:1024:4:64:2"}, "matmul", 3*matrix + (4*1024+2*64)<<10},
		{"for each stream", "2.6.0", "h100", nil, "matmul_on_two_streams", 2*32*mib + 2*matrix},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			peaks, report := operators(t, c.release, c.card, c.env, c.run)
			if got := peaks[c.run]; got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
			if len(report.Coverage.Bounded) != 0 {
				t.Errorf("bounded: %v", report.Coverage.Bounded)
			}
		})
	}
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run("attention and products of small types, "+release, func(t *testing.T) {
			t.Parallel()
			_, report := operators(t, release, "h100", nil, "attention_flash", "attention_efficient", "attention_efficient_mask", "attention_math", "int_mm", "scaled_mm", "linear_half", "baddbmm", "graph")
			if len(report.Coverage.Bounded) != 0 {
				t.Errorf("bounded: %v", report.Coverage.Bounded)
			}
		})
	}
}

// Near the card's limit PyTorch takes a plan with a smaller workspace: benchmark mode, deterministic mode and fp32 without tensor cores included.
func TestConvolutionsNearTheLimit(t *testing.T) {
	profile, err := gpu.Load("h100")
	if err != nil {
		t.Fatal(err)
	}
	outside, _ := profile.OutsideBytes([]string{"cudnn"})
	narrow := fmt.Sprintf("GRESIZE_VGPU_CAPACITY_BYTES=%d", outside+56*mib)
	cases := []string{"conv_benchmark", "conv_deterministic", "conv_no_tf32"}
	wide, _ := operators(t, "2.6.0", "h100", nil, cases...)
	near, report := operators(t, "2.6.0", "h100", []string{narrow}, cases...)
	if report.OOMs == 0 || report.PassedOver != report.OOMs {
		t.Errorf("of %d requests that failed, %d were workspaces that were passed over", report.OOMs, report.PassedOver)
	}
	for _, c := range cases {
		if near[c] <= 0 || near[c] >= wide[c] {
			t.Errorf("%s: %d bytes near the limit, %d with room", c, near[c], wide[c])
		}
	}
	// Benchmark mode tries every plan, so it needs room for the largest of them; a deterministic plan is one of the same.
	if wide["conv_benchmark"] < wide["conv_deterministic"] {
		t.Errorf("benchmark %d, deterministic %d", wide["conv_benchmark"], wide["conv_deterministic"])
	}
}
