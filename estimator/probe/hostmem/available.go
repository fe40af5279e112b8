package hostmem

import "os"

// Available is the memory in bytes that this machine can give without swapping, 0 where it does not say.
func Available() int64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return field(meminfo, "MemAvailable:")
}
