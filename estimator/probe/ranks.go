package probe

import (
	"runtime"

	"github.com/gresize/gresize/estimator/probe/hostmem"
)

const (
	// bytesPerRank is what a rank costs the host before its own model and data: Python, PyTorch, and room.
	bytesPerRank = int64(3) << 29
	// ranksPerCPU: ranks start together and then wait for each other.
	ranksPerCPU = 2
	mostRanks   = 8
	leastRanks  = 2
)

// ranksToRun is the number of ranks up to which all ranks of a job are run as processes here.
func ranksToRun(cpus int, availableBytes int64) int {
	n := min(ranksPerCPU*cpus, mostRanks)
	if availableBytes > 0 {
		n = min(n, int(min(availableBytes/bytesPerRank, mostRanks)))
	}
	return max(n, leastRanks)
}

// ranksHere is ranksToRun for this machine.
func ranksHere() int { return ranksToRun(runtime.NumCPU(), hostmem.Available()) }
