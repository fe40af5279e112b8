package offload

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning/layout"
	"github.com/gresize/gresize/estimator/analysis/planning/swap"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/probe"
	"github.com/gresize/gresize/estimator/trace"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
	"github.com/gresize/gresize/internal/quantity"
)

// published are networks of the kinds with which SmartPool and AutoSwap were shown, as tools/planning/program.py has them.
var published = []string{"alexnet", "squeezenet1_0", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34", "resnet50", "resnet101", "inception", "densenet121"}

// BenchmarkPublishedNetworks prints the rows of docs/accuracy/planning.md: how much less than NVIDIA's pool and PyTorch's allocator the published layout and the plan
// take, and how much less than all live blocks has to be on the card where swapping may make a step so many times longer, times by roofline.
func BenchmarkPublishedNetworks(b *testing.B) {
	if os.Getenv("GRESIZE_NIGHTLY") != "1" {
		b.Skip("records twelve programs: make nightly runs it")
	}
	card, err := gpu.Load("rtx3060")
	if err != nil {
		b.Fatal(err)
	}
	lib := libDir(b)
	for b.Loop() {
		for _, name := range published {
			options := probe.Options{Command: []string{torchtest.Python(b, "2.6.0"), "../tools/planning/program.py", name}, Dir: ".", GPU: card, Budget: 10 * time.Minute, LibDir: lib, NoSandbox: true,
				Devices: 1, Quick: true, CapacityBytes: recordedOn}
			options.Recording.Parts = []trace.Part{trace.PartOperators, trace.PartSaved}
			result, err := probe.Run(b.Context(), options)
			if err != nil {
				b.Fatal(err)
			}
			r, err := read(result.Bundle, card)
			if err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			printRow(b, name, r)
		}
	}
}

func printRow(b *testing.B, name string, r *record) {
	b.Helper()
	peak := float64(r.peak())
	pytorch, err := r.program.Run(replay.RunOptions{Config: &allocator.Config{}, CapacityBytes: replay.Unlimited})
	if err != nil {
		b.Fatal(err)
	}
	plan, err := layout.Plan(b.Context(), r.lives.Blocks, layout.Options{})
	if err != nil {
		b.Fatal(err)
	}
	pool := float64(layout.CnMem(b.Context(), r.lives.Blocks).HeightBytes)
	less := func(than, is float64) string { return fmt.Sprintf("%.1f %%", 100*(1-is/than)) }
	row := fmt.Sprintf("| %s | %s | %s | %s | %s |", name, quantity.Size(uint64(peak)), less(pool, float64(plan.SmartPoolBytes)), less(pool, float64(plan.HeightBytes)),
		less(float64(pytorch.Stats.ReservedBytes.All.Peak), float64(plan.HeightBytes)))
	for _, slowdown := range []float64{1, 1.05, 1.1, 1.15} {
		found, err := r.least(b.Context(), Request{Slowdown: slowdown, Link: swap.PublishedLink, Expandable: true}, 0)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		row += " " + less(peak, float64(found[0].AllocatorBytes)) + " |"
	}
	fmt.Println(row)
}
