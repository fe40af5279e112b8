package vgpu

import (
	"testing"

	"github.com/gresize/gresize/estimator/gpu"
)

func number(n int) *int { return &n }

func TestRanksHaveTheirNumbers(t *testing.T) {
	ranks := []rankReport{{GlobalRank: number(0), WorldSize: 64}, {GlobalRank: number(63), WorldSize: 64, Node: 7}}
	numberRanks(ranks)
	if ranks[0].Rank != 0 || ranks[1].Rank != 63 {
		t.Errorf("%d and %d", ranks[0].Rank, ranks[1].Rank)
	}
	if got, some := notRun(ranks); !some || got != "of 64 ranks, ranks 0 and 63 were run: the others are taken to need no more, and the host memory is that of those" {
		t.Errorf("%v %q", some, got)
	}
	for name, ranks := range map[string][]rankReport{
		"all were run":       {{GlobalRank: number(0), WorldSize: 2}, {GlobalRank: number(1), WorldSize: 2}},
		"no rank at all":     {{}, {}},
		"one rank of one":    {{GlobalRank: number(0), WorldSize: 1}},
		"two cards, one pid": {{GlobalRank: number(0), WorldSize: 2}, {GlobalRank: number(0), WorldSize: 2}, {GlobalRank: number(1), WorldSize: 2}},
	} {
		numberRanks(ranks)
		if detail, some := notRun(ranks); some {
			t.Errorf("%s: %q", name, detail)
		}
		for i := range ranks {
			if ranks[i].Rank != i {
				t.Errorf("%s: %d is rank %d", name, i, ranks[i].Rank)
			}
		}
	}
}

func TestNodesShareNoCard(t *testing.T) {
	at := func(pid, node int) rankReport { return rankReport{PID: pid, Node: node, BeganUnix: 1, WallSeconds: 9} }
	if overlapping([]rankReport{at(1, 0), at(2, 1)}) {
		t.Error("two nodes")
	}
	if !overlapping([]rankReport{at(1, 1), at(2, 1)}) {
		t.Error("one node")
	}
}

func TestNCCLIsOutside(t *testing.T) {
	p, err := gpu.Load("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	without := rankReport{Libraries: []string{"cublas"}}
	with := rankReport{Libraries: []string{"cublas", "nccl"}, Communicators: []Communicator{{Ranks: 8, Made: 1}, {Ranks: 2, Made: 3}, {Ranks: 1, Made: 9}}}
	low, high := without.outside(p)
	more, most := with.outside(p)
	if want := int64(688+3*544) * mib; more-low != want {
		t.Errorf("%d bytes, want %d", more-low, want)
	}
	if want := int64(1536+3*688) * mib; most-high != want {
		t.Errorf("at most %d bytes, want %d", most-high, want)
	}
}

func TestPlacesAreChecked(t *testing.T) {
	if checkPlace(number(3), nil, 0) != nil || checkPlace(number(-1), nil, 0) == nil || checkPlace(nil, number(1<<30), 0) == nil || checkPlace(nil, nil, -1) == nil {
		t.Error("ranks, sizes and nodes")
	}
	if checkCommunicators([]Communicator{{Ranks: 2, Made: 1}}) != nil || checkCommunicators([]Communicator{{}}) == nil ||
		checkCommunicators([]Communicator{{Ranks: 2, Peers: -1}}) == nil || checkCommunicators(make([]Communicator, 100)) == nil {
		t.Error("communicators")
	}
}
