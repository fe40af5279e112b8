package hostmem

import (
	"bytes"
	"os"
	"strconv"
)

// Limits are the lowest limits that some process of a run was under; 0: under none.
type Limits struct {
	// AddressBytes and DataBytes are ulimit -v and -d.
	AddressBytes int64 `json:"address_bytes,omitempty"`
	DataBytes    int64 `json:"data_bytes,omitempty"`
	// OpenFiles is ulimit -n.
	OpenFiles int64 `json:"open_files,omitempty"`
	// FileBytes is ulimit -f.
	FileBytes int64 `json:"file_bytes,omitempty"`
	// CPUSeconds is ulimit -t.
	CPUSeconds int64 `json:"cpu_seconds,omitempty"`
}

// parseLimits reads the soft limits out of the text of /proc/PID/limits.
func parseLimits(text []byte) Limits {
	var l Limits
	for line := range bytes.Lines(text) {
		for name, to := range map[string]*int64{
			"Max address space": &l.AddressBytes, "Max data size": &l.DataBytes, "Max open files": &l.OpenFiles, "Max file size": &l.FileBytes, "Max cpu time": &l.CPUSeconds,
		} {
			rest, found := bytes.CutPrefix(line, []byte(name))
			if !found {
				continue
			}
			if words := bytes.Fields(rest); len(words) > 0 {
				if n, err := strconv.ParseInt(string(words[0]), 10, 64); err == nil && n >= 0 {
					*to = max(n, 1) // a limit of nothing is a limit
				}
			}
		}
	}
	return l
}

func readLimits(pid int) Limits {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
	if err != nil {
		return Limits{}
	}
	return parseLimits(text)
}

// lowered is the lower of the two, each for itself.
func (l Limits) lowered(other Limits) Limits {
	for _, f := range [][2]*int64{
		{&l.AddressBytes, &other.AddressBytes}, {&l.DataBytes, &other.DataBytes}, {&l.OpenFiles, &other.OpenFiles}, {&l.FileBytes, &other.FileBytes}, {&l.CPUSeconds, &other.CPUSeconds},
	} {
		if n := *f[1]; n > 0 && (*f[0] == 0 || n < *f[0]) {
			*f[0] = n
		}
	}
	return l
}
