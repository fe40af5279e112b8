package vgpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gresize/gresize/estimator/gpu"
)

const maxWorld = 1 << 20

// Communicator counts the groups of one size that a process made with NCCL.
type Communicator struct {
	Ranks int   `json:"ranks"`
	Made  int64 `json:"made"`
	// Peers are the ranks that were sent to or received from one by one, in all these groups together.
	Peers int64 `json:"peers"`
}

// outside is the device memory that no allocator of PyTorch sees, as a point and the upper end of its interval. NCCL's depends on the
// groups that were made.
func (r *rankReport) outside(p *gpu.Profile) (pointBytes, highBytes int64) {
	if len(r.Communicators) == 0 {
		return p.OutsideBytes(r.Libraries)
	}
	var use gpu.NCCLUse
	for _, c := range r.Communicators {
		use.Peers += c.Peers
		switch {
		case c.Ranks == 2:
			use.Pairs += c.Made
		case c.Ranks > 2:
			use.Groups += c.Made
		}
	}
	point, high := p.OutsideBytes(slices.DeleteFunc(slices.Clone(r.Libraries), func(name string) bool { return name == "nccl" }))
	nccl := p.NCCLBytes(use)
	return point + nccl.Bytes, high + nccl.High()
}

func checkCommunicators(list []Communicator) error {
	if len(list) > maxDevicesInOne {
		return errors.New("communicators: too many entries")
	}
	for _, c := range list {
		if c.Ranks < 1 || c.Ranks > maxWorld || c.Made < 0 || c.Made > maxWorld || c.Peers < 0 || c.Peers > maxWorld {
			return fmt.Errorf("communicators: %d of %d ranks", c.Made, c.Ranks)
		}
	}
	return nil
}

// checkPlace looks at what a process says of its place among the ranks of a job.
func checkPlace(rank, world *int, node int) error {
	for name, n := range map[string]*int{"rank": rank, "world_size": world, "node": &node} {
		if n != nil && (*n < 0 || *n > maxWorld) {
			return fmt.Errorf("%s: %d", name, *n)
		}
	}
	return nil
}

// launched says that the process is one rank of several.
func (r *rankReport) launched() bool { return r.GlobalRank != nil && r.WorldSize > 1 }

// numberRanks gives each report of a card its number: that of the rank where all are ranks of one job with a card each, else its place.
func numberRanks(ranks []rankReport) {
	seen := map[int]bool{}
	for i := range ranks {
		ranks[i].Rank = i
		if ranks[i].launched() {
			seen[*ranks[i].GlobalRank] = true
		}
	}
	if len(seen) != len(ranks) {
		return
	}
	for i := range ranks {
		ranks[i].Rank = *ranks[i].GlobalRank
	}
}

// notRun says which ranks of the job were run where not all were.
func notRun(ranks []rankReport) (string, bool) {
	world, numbers := 0, []int{}
	for i := range ranks {
		if ranks[i].launched() {
			world = max(world, ranks[i].WorldSize)
			numbers = append(numbers, ranks[i].Rank)
		}
	}
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	if world <= len(numbers) || len(numbers) > namedRanks {
		return "", false
	}
	return fmt.Sprintf("of %d ranks, %s: the others are taken to need no more, and the host memory is that of those", world, inWords(numbers)), true
}

const namedRanks = 8

func inWords(numbers []int) string {
	words := ""
	for i, n := range numbers {
		switch {
		case i > 0 && i == len(numbers)-1:
			words += " and "
		case i > 0:
			words += ", "
		}
		words += fmt.Sprint(n)
	}
	if len(numbers) == 1 {
		return "rank " + words + " was run"
	}
	return "ranks " + words + " were run"
}
