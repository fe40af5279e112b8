package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// nameless measures memory that is nobody's resident memory: files without a name (memfd_create) and System V segments that are not mapped at this moment. Looking for
// them means looking at every descriptor, so it is done when the machine as a whole has more or less shared memory than at the last look.
type nameless struct {
	lastShared int64
	bytes      int64
	// segments says that the System V segments which can be seen are those of the processes that are measured: in an IPC namespace of their own.
	segments bool
}

func (n *nameless) sample(pids []int) int64 {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return n.bytes
	}
	shared := field(meminfo, "Shmem:")
	if growth := shared - n.lastShared; growth < growthBytes && -growth < growthBytes {
		return n.bytes
	}
	n.lastShared = shared
	held := memoryFiles(pids)
	if n.segments {
		if table, err := os.ReadFile("/proc/sysvipc/shm"); err == nil {
			held += residentSegments(table)
		}
	}
	// What is mapped is in the proportional size already.
	for _, pid := range pids {
		if held <= 0 {
			break
		}
		if rollup, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup"); err == nil {
			held -= field(rollup, "Pss_Shmem:")
		}
	}
	n.bytes = max(0, held)
	return n.bytes
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

// field is a value in bytes out of a file like /proc/meminfo, which gives it in kB; 0 where there is none.
func field(text []byte, name string) int64 {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte(name)); found {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err == nil && kib > 0 && kib < 1<<40 {
				return kib << 10
			}
		}
	}
	return 0
}
