// Package bench measures the promise that an estimate costs little more than
// the import of the job's own libraries.
package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The promises, for torchvision's resnet50 with a batch of 64.
const (
	maxTimesImport = 2.5
	maxHostBytes   = int64(2) << 30
	// atLeast runs of each kind, in turn, so that both see the same machine.
	atLeast = 5
)

const program = `
import torch, torchvision
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_function = torch.nn.CrossEntropyLoss()
for step in range(1000):
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (64,), device="cuda")
    optimizer.zero_grad()
    loss_function(model(images), labels).backward()
    optimizer.step()
`

// BenchmarkEstimateResnet50 prints the median of `gresize estimate` over the median of the import alone.
func BenchmarkEstimateResnet50(b *testing.B) {
	for _, torch := range []string{"2.6.0", "2.11.0"} {
		b.Run("torch-"+torch, func(b *testing.B) { estimateResnet50(b, torch) })
	}
}

func estimateResnet50(b *testing.B, torch string) {
	cache := os.Getenv("GRESIZE_CACHE")
	if cache == "" {
		cache = "/var/cache/gresize"
	}
	python := filepath.Join(cache, "venv-torch-"+torch, "bin/python")
	build, err := filepath.Abs("../../../build")
	if err != nil {
		b.Fatal(err)
	}
	gresize := filepath.Join(build, "bin/gresize")
	for _, file := range []string{python, gresize} {
		if _, err := os.Stat(file); err != nil {
			b.Fatalf("%v: `make bench` prepares it", err)
		}
	}
	script := filepath.Join(b.TempDir(), "resnet50.py")
	if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
		b.Fatal(err)
	}
	var imports, estimates []time.Duration
	var hostBytes int64
	round := func() {
		// The virtual libraries stand in for NVIDIA's here too: without any, the import fails.
		alone := exec.CommandContext(b.Context(), python, "-c", "import torch, torchvision")
		alone.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(build, "lib/vgpu"))
		begin := time.Now()
		if out, err := alone.CombinedOutput(); err != nil {
			b.Fatalf("import: %v\n%s", err, out)
		}
		imports = append(imports, time.Since(begin))

		run := exec.CommandContext(b.Context(), gresize, "estimate", "--json", "--", python, script)
		begin = time.Now()
		out, err := run.Output()
		estimates = append(estimates, time.Since(begin))
		var answer struct {
			HostPeakBytes int64  `json:"host_peak_bytes"`
			Status        string `json:"status"`
		}
		if err != nil || json.Unmarshal(out, &answer) != nil || answer.Status != "fits" {
			b.Fatalf("estimate: %v\n%s", err, out)
		}
		hostBytes = max(hostBytes, answer.HostPeakBytes)
	}
	round() // warms the page cache
	imports, estimates = nil, nil
	for b.Loop() {
		round()
	}
	for len(imports) < atLeast {
		round()
	}
	ratio := float64(median(estimates)) / float64(median(imports))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(imports).Seconds(), "import-s")
	b.ReportMetric(median(estimates).Seconds(), "estimate-s")
	b.ReportMetric(ratio, "times-import")
	b.ReportMetric(float64(hostBytes)/(1<<30), "host-GiB")
	if ratio > maxTimesImport || hostBytes > maxHostBytes {
		b.Errorf("%.2f times the import and %d bytes of host memory; at most %.1f times and %d bytes were promised",
			ratio, hostBytes, maxTimesImport, maxHostBytes)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
