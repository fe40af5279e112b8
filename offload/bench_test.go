package offload

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
	"github.com/gresize/gresize/estimator/analysis/planning"
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
			printRow(b, name, recorded(b, lib, card, name))
		}
	}
}

// recorded is a program of tools/planning as it is seen for a plan.
func recorded(b *testing.B, lib string, card *gpu.Profile, name string) *record {
	b.Helper()
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
	return r
}

// BenchmarkParameters prints the rows of docs/run.md: what has to be on the card at once where saved tensors and the optimizer's state may move, and where parameters might, too,
// between the moments at which autograd saves them and takes them back, and the optimizer's step.
func BenchmarkParameters(b *testing.B) {
	if os.Getenv("GRESIZE_NIGHTLY") != "1" {
		b.Skip("records three programs: make nightly runs it")
	}
	lib := libDir(b)
	for b.Loop() {
		for _, program := range [][2]string{{"vgg16", "rtx3060"}, {"bert", "a100-40"}, {"gpt2-774m", "a100-40"}} {
			card, err := gpu.Load(program[1])
			if err != nil {
				b.Fatal(err)
			}
			r := recorded(b, lib, card, program[0])
			var now, then uint64
			for _, it := range r.sequences() {
				w, err := r.window(it)
				if err != nil {
					b.Fatal(err)
				}
				j, err := w.job(planning.DefaultClock, nil)
				if err != nil {
					b.Fatal(err)
				}
				now = max(now, j.Floor())
				r.moveParameters(w, j)
				if err := j.Check(); err != nil {
					b.Fatal(err)
				}
				then = max(then, j.Floor())
			}
			fmt.Printf("| %s | %s | %s | %s |\n", program[0], quantity.Size(uint64(r.peak())), quantity.Size(now), quantity.Size(then))
		}
	}
}

// moveParameters lets the blocks that live all the time, and of which autograd saves tensors, leave between two of their events.
func (r *record) moveParameters(w *window, j *swap.Job) {
	lasting := map[uint64]int{}
	for k, b := range w.blocks {
		if made := r.lives.Blocks[w.of[k]].Start; b.Start == 0 && b.End > int64(w.to-w.from) && made > 0 && b.SizeBytes >= swap.MinBytes && len(j.Accesses[k]) == 0 {
			lasting[r.program.Answers[made-1].Addr] = k
		}
	}
	steps, saved := map[int][]int32{}, map[int]int{}
	for i, e := range w.it.events {
		block, known := lasting[e.address]
		switch {
		case e.take:
			block, known = saved[e.ordinal]
			known = known && e.of == w.it.number
		case known:
			saved[e.ordinal] = block
		}
		if known {
			steps[block] = append(steps[block], int32(w.steps[i]))
		}
	}
	for block, at := range steps {
		if w.updates > 0 {
			at = append(at, int32(w.updates))
		}
		slices.Sort(at)
		j.Accesses[block] = slices.Compact(at)
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
