package hostmem

import (
	"errors"
	"os"
	"strconv"
)

// Memory can be held where no process shows it: in files of a file system that a process has mounted for itself and let go of, and in files that are on their way between two
// processes, or that one has which closes itself to its owner. The kernel counts it for the whole machine alone. So once the processes have begun to do such things, what the machine has gained since the start
// and is nowhere to be seen is taken as theirs.
type hidden struct {
	// is: a process has mounts of its own, has sent descriptors, or does not show its own.
	is bool
	// seenBytes is what was seen of shared memory at the last close look, without the files in /dev/shm and the scratch.
	seenBytes int64
	// least is the least of the machine's that was ever there beside what was seen: what others give back in between hides nothing.
	least machine
}

// machine is the memory of the whole machine in files that are memory: those that can be swapped, and those that cannot and that no process has locked.
type machine struct{ sharedBytes, lockedBytes int64 }

func readMachine() machine {
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return machine{}
	}
	return machine{field(meminfo, "Shmem:"), max(0, field(meminfo, "Unevictable:")-field(meminfo, "Mlocked:"))}
}

// meet looks at the mounts of a process.
func (h *hidden) meet(pid int, inside bool) {
	if !inside || h.is {
		return
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	theirs, theirErr := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	h.is = err == nil && (theirErr == nil && own != theirs || errors.Is(theirErr, os.ErrPermission) && hasMemory(pid))
}

// hasMemory is false of a process that has ended, of which nothing can be seen either.
func hasMemory(pid int) bool {
	s, ok := readStatus(pid)
	return ok && s.alive()
}

// bytes is what is held beside what processes show.
func (h *hidden) bytes(scratch []string) int64 {
	files, keeping := memoryFileSystem(sharedMemoryDir)
	for _, dir := range scratch {
		more, moreKeeping := memoryFileSystem(dir)
		files, keeping = files+more, keeping+moreKeeping
	}
	now := readMachine()
	now.sharedBytes -= files + h.seenBytes
	if h.least == (machine{}) {
		h.least = now
	}
	h.least = machine{min(h.least.sharedBytes, now.sharedBytes), min(h.least.lockedBytes, now.lockedBytes)}
	if !h.is {
		return keeping
	}
	return keeping + now.sharedBytes - h.least.sharedBytes + now.lockedBytes - h.least.lockedBytes
}
