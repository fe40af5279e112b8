package capacity

import (
	"testing"

	"github.com/gresize/gresize/estimator/allocator"
	"github.com/gresize/gresize/estimator/allocator/replay"
)

// BenchmarkSearchMillionEvents searches the minimum of resnet50 training repeated to 10^6 events.
func BenchmarkSearchMillionEvents(b *testing.B) {
	p, err := replay.Open("../../allocator/replay/testdata/resnet50_2.6.json.gz", replay.OpenOptions{Version: allocator.Version{Major: 2, Minor: 6}})
	if err != nil {
		b.Fatal(err)
	}
	once := p.Ops
	live := map[int32]bool{}
	for _, op := range once {
		live[op.Block] = op.Kind == replay.OpAlloc
	}
	p.Ops, p.Answers, p.Final = nil, nil, nil
	for events := 0; events < 1_000_000; {
		p.Ops = append(p.Ops, once...)
		for block := range int32(p.Blocks) {
			if live[block] {
				p.Ops = append(p.Ops, replay.Op{Kind: replay.OpFree, Block: block})
				events++
			}
		}
		events += len(once) * 3 / 2
	}
	for b.Loop() {
		r, err := Search(p, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.Runs), "runs")
		b.ReportMetric(float64(len(p.Ops)), "requests")
		if !r.ProvenAbove {
			b.Fatalf("not proven: %+v", r)
		}
	}
}
