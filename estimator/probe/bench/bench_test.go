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

	"github.com/gresize/gresize/estimator/vgpu/torchtest"
)

const (
	// maxTimesImport is promised for torchvision's resnet50 with a batch of 64: the same Python with free kernels, and half as much again.
	maxTimesImport = 2.5
	maxHostBytes   = int64(2) << 30
	// atLeast runs of each kind, in turn, so that both see the same machine.
	atLeast = 5
	// maxLlama is promised for a model of 1.1 thousand million parameters that is built on the CPU.
	maxLlama = 30 * time.Second
	// steps are as many as an estimate follows.
	steps = "4"
)

// The figures of FakeGPU, the closest competitor, for resnet50 with a batch of 64 on two cores of a machine like the one of the tests.
const (
	fakeGPUSeconds   = 58
	fakeGPUHostBytes = 6.8e9
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

// tools are the programs of one round.
type tools struct{ python, gresize, build string }

func find(b *testing.B, torch string) tools {
	build, err := filepath.Abs("../../../build")
	if err != nil {
		b.Fatal(err)
	}
	t := tools{python: torchtest.Python(b, torch), gresize: filepath.Join(build, "bin/gresize"), build: build}
	for _, file := range []string{t.python, t.gresize} {
		if _, err := os.Stat(file); err != nil {
			b.Fatalf("%v: `make bench` prepares it", err)
		}
	}
	return t
}

// cost is what a command took. Processor time says the same on a machine that others use.
type cost struct{ wall, processor time.Duration }

func costOf(run *exec.Cmd, begin time.Time) cost {
	return cost{wall: time.Since(begin), processor: run.ProcessState.UserTime() + run.ProcessState.SystemTime()}
}

func (c *cost) add(d cost) { c.wall, c.processor = c.wall+d.wall, c.processor+d.processor }

// estimate times `gresize estimate` and returns the host memory that the command took.
func (t tools) estimate(b *testing.B, command ...string) (cost, int64) {
	return t.estimateWith(b, "--quick", command...)
}

func (t tools) estimateWith(b *testing.B, flag string, command ...string) (cost, int64) {
	run := exec.CommandContext(b.Context(), t.gresize, append([]string{"estimate", flag, "--json", "--", t.python}, command...)...)
	begin := time.Now()
	out, err := run.Output()
	took := costOf(run, begin)
	var answer struct {
		HostPeakBytes int64  `json:"host_peak_bytes"`
		Status        string `json:"status"`
	}
	if err != nil || json.Unmarshal(out, &answer) != nil || answer.Status != "fits" {
		b.Fatalf("estimate: %v\n%s", err, out)
	}
	return took, answer.HostPeakBytes
}

// plain times a command without a GPU of any kind. The virtual libraries stand in for NVIDIA's here too: without any, the import fails.
func (t tools) plain(b *testing.B, command ...string) cost {
	run := exec.CommandContext(b.Context(), t.python, command...)
	run.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(t.build, "lib/vgpu"))
	begin := time.Now()
	if out, err := run.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", command, err, out)
	}
	return costOf(run, begin)
}

// BenchmarkEstimateResnet50 prints the median of the time to the first answer over the median of the import alone, and the time to the end of the time-lapse.
func BenchmarkEstimateResnet50(b *testing.B) {
	for _, torch := range []string{"2.6.0", "2.11.0"} {
		b.Run("torch-"+torch, func(b *testing.B) { estimateResnet50(b, find(b, torch)) })
	}
}

func estimateResnet50(b *testing.B, t tools) {
	script := filepath.Join(b.TempDir(), "resnet50.py")
	if err := os.WriteFile(script, []byte(program), 0o600); err != nil {
		b.Fatal(err)
	}
	var imports, estimates []time.Duration
	var hostBytes int64
	round := func() {
		imports = append(imports, t.plain(b, "-c", "import torch, torchvision").wall)
		took, host := t.estimate(b, script)
		estimates, hostBytes = append(estimates, took.wall), max(hostBytes, host)
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
	toEnd, _ := t.estimateWith(b, "--quick=false", script)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(toEnd.wall.Seconds(), "to-end-s")
	b.ReportMetric(median(imports).Seconds(), "import-s")
	b.ReportMetric(median(estimates).Seconds(), "estimate-s")
	b.ReportMetric(ratio, "times-import")
	b.ReportMetric(float64(hostBytes)/(1<<30), "host-GiB")
	b.ReportMetric(fakeGPUSeconds/median(estimates).Seconds(), "times-faster-than-FakeGPU")
	b.ReportMetric(fakeGPUHostBytes/float64(hostBytes), "times-less-host-than-FakeGPU")
	if ratio > maxTimesImport || hostBytes > maxHostBytes {
		b.Errorf("%.2f times the import and %d bytes of host memory; at most %.1f times and %d bytes were promised",
			ratio, hostBytes, maxTimesImport, maxHostBytes)
	}
}

// BenchmarkAgainstCPU prints how many times longer the same steps take when a CPU computes them, imports included on both sides.
func BenchmarkAgainstCPU(b *testing.B) {
	t := find(b, "2.6.0")
	for _, model := range []string{"resnet50", "mobilenet_v2", "vit_b_16", "gpt_124m", "lstm"} {
		b.Run(model, func(b *testing.B) {
			var computed, estimated cost
			for b.Loop() {
				took, _ := t.estimate(b, "testdata/models.py", model, "cuda", "1000")
				estimated.add(took)
				computed.add(t.plain(b, "testdata/models.py", model, "cpu", steps))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(estimated.wall.Seconds()/float64(b.N), "estimate-s")
			b.ReportMetric(computed.wall.Seconds()/float64(b.N), "CPU-s")
			b.ReportMetric(computed.wall.Seconds()/estimated.wall.Seconds(), "times-faster-than-CPU")
			b.ReportMetric(computed.processor.Seconds()/estimated.processor.Seconds(), "times-less-processor-time")
		})
	}
}

// BenchmarkLlama1B is a model whose weights are made on the CPU, which is most of the time.
func BenchmarkLlama1B(b *testing.B) {
	t := find(b, "2.6.0")
	var all time.Duration
	var hostBytes int64
	for b.Loop() {
		took, host := t.estimate(b, "testdata/models.py", "llama_1b", "cuda", "1000")
		all, hostBytes = all+took.wall, max(hostBytes, host)
	}
	mean := all / time.Duration(b.N)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mean.Seconds(), "estimate-s")
	b.ReportMetric(float64(hostBytes)/(1<<30), "host-GiB")
	if mean > maxLlama {
		b.Errorf("%v; at most %v was promised", mean, maxLlama)
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
