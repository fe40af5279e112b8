package vgpu

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

// profiled runs a script in the mode "profile" and returns its report and the text of its trace.
func profiled(t *testing.T, release string, args []string, more ...string) (report map[string]any, text string) {
	t.Helper()
	dir := t.TempDir()
	env, err := Environment(Options{LibDir: libDir(t), ReportDir: dir, Seconds: 240, Recording: trace.Recording{Mode: trace.ModeProfile}}, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, torchtest.Python(t, release), args...)
	cmd.Env = append(append(os.Environ(), env...), append(more, "OMP_NUM_THREADS=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "step 0 True") {
		t.Errorf("the loss is not computed: %s", out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "profile-*.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("reports: %v, %v\n%s", found, err, out)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(found[0] + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return report, string(plain)
}

func TestProfileMode(t *testing.T) {
	for _, release := range []string{"2.6.0", "2.11.0"} {
		t.Run(release, func(t *testing.T) {
			r, text := profiled(t, release, []string{"testdata/redirected.py", "half"})
			if r["steps"] != 3.0 || r["iterations"] != 3.0 || r["trace"] != "written" || r["reason"] != "stopped" || r["left_on_gpu_bytes"] != 0.0 {
				t.Errorf("report %v", r)
			}
			var replaced []string
			for _, v := range r["replaced"].([]any) {
				replaced = append(replaced, v.(string))
			}
			if !slices.Equal(replaced, []string{"autocast", "compile", "record_stream"}) {
				t.Errorf("replaced %v", replaced)
			}
			for _, want := range []string{"ProfilerStep#2", "gresize.backward", "gresize.to_device", "Optimizer.step#AdamW.step", "[memory]", "nn.Module: Block_0", "aten::_foreach_sqrt"} {
				if !strings.Contains(text, want) {
					t.Errorf("the trace has no %s", want)
				}
			}
		})
	}
}

// TestProfileModeTellsWhatIsOnTheCard: what a program makes on the card beside its model is in the report, or in the trace by its address.
func TestProfileModeTellsWhatIsOnTheCard(t *testing.T) {
	for _, release := range often("2.6.0", "2.11.0") {
		r, text := profiled(t, release, []string{"testdata/kept_on_card.py"})
		var kept []float64
		for _, w := range r["weights"].([]any) {
			if pair := w.([]any); pair[1] == 2.0 {
				kept = append(kept, pair[0].(float64)/float64(mib))
			}
		}
		slices.Sort(kept)
		if !slices.Equal(kept, []float64{3, 5}) {
			t.Errorf("%s: MiB on the card before the optimizer: %v", release, kept)
		}
		noted := map[string]bool{}
		for _, line := range strings.Split(text, "\n") {
			if _, address, ok := strings.Cut(line, "gresize.on_device "); ok {
				noted[address] = true
			}
		}
		// What is made behind the optimizer, Adagrad's state for the weight, the average of the weight.
		if len(noted) < 3 {
			t.Errorf("%s: %d addresses", release, len(noted))
		}
	}
}

func TestProfileModeTellsWhatItLeftOnTheCard(t *testing.T) {
	r, _ := profiled(t, "2.6.0", []string{"testdata/redirected.py", "left"})
	if r["left_on_gpu_bytes"] == 0.0 {
		t.Errorf("report %v", r)
	}
}

func TestProfileModeAsPublished(t *testing.T) {
	r, text := profiled(t, "2.6.0", []string{"testdata/redirected.py"}, "GRESIZE_PROBE_PARTS=published")
	if r["recording"] != "published" || r["steps"] != 3.0 || r["iterations"] != 2.0 || strings.Contains(text, "aten::_foreach_sqrt") {
		t.Errorf("report %v, lists: %v", r, strings.Contains(text, "aten::_foreach_sqrt"))
	}
}
