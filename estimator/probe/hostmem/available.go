package hostmem

import (
	"bytes"
	"os"
	"strconv"
)

// Available is the memory in bytes that this machine can give without swapping, 0 where it does not say.
func Available() int64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return available(meminfo)
}

func available(meminfo []byte) int64 {
	for line := range bytes.Lines(meminfo) {
		rest, found := bytes.CutPrefix(line, []byte("MemAvailable:"))
		if !found {
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
		if err == nil && kib > 0 && kib < 1<<40 {
			return kib << 10
		}
	}
	return 0
}
