package hostmem

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// sharedMemoryDir is where programs keep files that are memory.
const sharedMemoryDir = "/dev/shm"

// held is all memory in files that are memory, whether somebody maps it at this moment or not. A file without a name (memfd_create) is kept by a descriptor or by a mapping. Of
// System V segments and of what lies in /dev/shm, the whole is known where all that can be seen is to be measured; the parts of the processes would not add up to it
// while one of them begins to read what another has. segments is the part of System V.
func (s *Sampler) held(nameless, mappedShared int64) (all, segments int64) {
	if !s.inside {
		return nameless + mappedShared, 0
	}
	if table, err := os.ReadFile("/proc/sysvipc/shm"); err == nil {
		segments = residentSegments(table)
	}
	shared, _ := memoryFileSystem(sharedMemoryDir)
	return nameless + segments + shared, segments
}

// memoryFileSystem is what the files of a tmpfs take, and what it takes for keeping them: names, and attributes with them, have a room that is counted by inodeBytes.
func memoryFileSystem(dir string) (files, keeping int64) {
	const inodeBytes = 1024
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil || st.Bsize <= 0 {
		return 0, 0
	}
	if st.Blocks > st.Bfree {
		files = int64(st.Blocks-st.Bfree) * st.Bsize
	}
	if st.Files > st.Ffree {
		keeping = int64(st.Files-st.Ffree) * inodeBytes
	}
	return files, keeping
}

// memoryFiles sums the pages of all files without a name that the processes hold open, each once. hidden says that there may be more: a socket has descriptors on their
// way, or a process does not show its own.
func memoryFiles(pids []int, inside bool) (sum int64, hidden bool) {
	seen := map[uint64]bool{}
	for _, pid := range pids {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		folder, err := os.Open(dir)
		if err != nil {
			hidden = hidden || errors.Is(err, os.ErrPermission) && hasMemory(pid)
			continue
		}
		names, _ := folder.Readdirnames(-1)
		_ = folder.Close()
		for _, name := range names {
			target, err := os.Readlink(dir + "/" + name)
			if inside && !hidden && err == nil && strings.HasPrefix(target, "socket:") {
				hidden = carriesDescriptors("/proc/" + strconv.Itoa(pid) + "/fdinfo/" + name)
			}
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
	return sum, hidden
}

// carriesDescriptors reads what the kernel says of an open socket (Linux 5.5).
func carriesDescriptors(info string) bool {
	text, err := os.ReadFile(info)
	if err != nil {
		return false
	}
	_, count, found := bytes.Cut(text, []byte("scm_fds:"))
	count, _, _ = bytes.Cut(count, []byte("\n"))
	return found && string(bytes.TrimSpace(count)) != "0"
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
