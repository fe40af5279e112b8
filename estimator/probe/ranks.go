package probe

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
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
func ranksHere() int {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return ranksToRun(runtime.NumCPU(), 0)
	}
	return ranksToRun(runtime.NumCPU(), availableMemory(data))
}

// availableMemory reads MemAvailable from the text of /proc/meminfo, 0 when it is not there.
func availableMemory(meminfo []byte) int64 {
	for s := bufio.NewScanner(bytes.NewReader(meminfo)); s.Scan(); {
		rest, found := strings.CutPrefix(s.Text(), "MemAvailable:")
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err == nil && kib > 0 && kib < 1<<40 {
			return kib << 10
		}
	}
	return 0
}
