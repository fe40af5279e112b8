package sandbox

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// forksRefused is how often the group of processes (cgroup) of this process has refused one more, for its pids.max: a job's own, on a node. 0: never, or there is no such group.
func forksRefused() (times int64) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // 8:pids:/path, 0::/path
		if len(parts) != 3 {
			continue
		}
		for _, place := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
			if (parts[1] == "pids") != strings.HasSuffix(place, "pids") || parts[1] != "pids" && parts[1] != "" {
				continue
			}
			events, err := os.ReadFile(filepath.Join(place, parts[2], "pids.events"))
			if err != nil {
				continue
			}
			for event := range strings.Lines(string(events)) {
				if count, ok := strings.CutPrefix(strings.TrimSpace(event), "max "); ok {
					n, _ := strconv.ParseInt(count, 10, 64)
					times = max(times, n)
				}
			}
		}
	}
	return times
}
