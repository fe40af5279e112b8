package sandbox

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// How often the size of changes on the disk is looked at.
const diskInterval = time.Second

// watchDisk ends the sandbox when what it wrote to the disk is over the limit.
func (p *Process) watchDisk() {
	ticker := time.NewTicker(diskInterval)
	defer ticker.Stop()
	for {
		select {
		case <-p.drained:
			return
		case <-ticker.C:
		}
		if used := diskUsage(filepath.Join(p.base, diskName)); used > p.scratch {
			p.mu.Lock()
			p.meet(BoundDisk, fmt.Sprintf("%d MiB of files were changed, at most %d are allowed", used>>20, p.scratch>>20))
			p.mu.Unlock()
			p.Kill()
			return
		}
	}
}

// diskUsage sums the blocks below a directory; what cannot be read is left out.
func diskUsage(root string) int64 {
	var sum int64
	_ = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := d.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				sum += st.Blocks * 512
			}
		}
		return nil
	})
	return sum
}
