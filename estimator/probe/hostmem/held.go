package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// sharedMemoryDir is where programs keep files that are memory.
const sharedMemoryDir = "/dev/shm"

// held is all memory in files that are memory, whether somebody maps it at this moment or not. A file without a name (memfd_create) is kept by a descriptor or by a mapping. Of
// System V segments and of what lies in /dev/shm, the whole is known where all that can be seen is to be measured; the parts of the processes would not add up to it
// while one of them begins to read what another has.
func (s *Sampler) held(pids []int, mappedNameless, mappedShared int64) int64 {
	nameless := max(memoryFiles(pids), mappedNameless)
	if !s.inside {
		return nameless + mappedShared
	}
	shared := int64(0)
	if table, err := os.ReadFile("/proc/sysvipc/shm"); err == nil {
		shared += residentSegments(table)
	}
	var st syscall.Statfs_t
	if syscall.Statfs(sharedMemoryDir, &st) == nil && st.Blocks > st.Bfree && st.Bsize > 0 {
		shared += int64(st.Blocks-st.Bfree) * st.Bsize
	}
	return nameless + shared
}

// memoryFiles sums the pages of all files without a name that the processes hold open, each once.
func memoryFiles(pids []int) int64 {
	seen := map[uint64]bool{}
	var sum int64
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		folder, err := os.Open(dir)
		if err != nil {
			continue
		}
		names, _ := folder.Readdirnames(-1)
		_ = folder.Close()
		for _, name := range names {
			target, err := os.Readlink(dir + "/" + name)
			if err != nil || !strings.HasPrefix(target, "/memfd:") {
				continue
			}
			var st syscall.Stat_t
			if syscall.Stat(dir+"/"+name, &st) == nil && !seen[st.Ino] {
				seen[st.Ino] = true
				sum += st.Blocks * 512
			}
		}
	}
	return sum
}

// residentSegments sums the column rss of /proc/sysvipc/shm.
func residentSegments(table []byte) int64 {
	column, sum := -1, int64(0)
	for line := range bytes.Lines(table) {
		words := bytes.Fields(line)
		if column < 0 {
			for i, word := range words {
				if string(word) == "rss" {
					column = i
				}
			}
			if column < 0 {
				return 0
			}
			continue
		}
		if column < len(words) {
			if resident, err := strconv.ParseInt(string(words[column]), 10, 64); err == nil && resident > 0 && resident < 1<<50 && sum < 1<<60 {
				sum += resident
			}
		}
	}
	return sum
}
