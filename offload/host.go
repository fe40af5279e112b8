package offload

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gresize/gresize/estimator/probe/hostmem"
)

// HostError says that the host has no room for what a plan moves there.
type HostError struct{ NeedBytes, HaveBytes int64 }

func (e *HostError) Error() string {
	return fmt.Sprintf("the plan takes %d bytes of pinned host memory, and this job may have %d", e.NeedBytes, e.HaveBytes)
}

// CheckHost refuses a plan whose buffers cannot be had here, whatever else the job takes: they are more than the memory that is free, or than the limit of a control group.
func (p *Plan) CheckHost() error {
	have := int64(math.MaxInt64)
	if free := hostmem.Available(); free > 0 {
		have = free
	}
	if have = min(have, groupLimit("/")); p.HostBytes > have {
		return &HostError{NeedBytes: p.HostBytes, HaveBytes: have}
	}
	return nil
}

// groupLimit is the lowest limit on memory of this process's control groups and those above; the largest number without one. root is where the system's files are.
func groupLimit(root string) int64 {
	limit := int64(math.MaxInt64)
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		mount, name := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		switch {
		case fields[1] == "memory":
			mount, name = filepath.Join(mount, "memory"), "memory.limit_in_bytes"
		case fields[0] != "0":
			continue
		}
		for group := filepath.Join("/", fields[2]); ; group = filepath.Dir(group) {
			text, err := os.ReadFile(filepath.Join(mount, group, name))
			if n, parsed := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && parsed == nil && n > 0 {
				limit = min(limit, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return limit
}
