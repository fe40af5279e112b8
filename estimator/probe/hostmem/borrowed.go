package hostmem

import "golang.org/x/sys/unix"

// kcmpMemory is KCMP_VM of linux/kcmp.h: do two processes run in one address space?
const kcmpMemory = 1

// shareMemory is true of a child that runs in its parent's memory: one between vfork or posix_spawn and exec. Its figures in /proc are those of the parent, and would count twice.
// A kernel without kcmp, and processes that may not be compared, are answered with false.
func shareMemory(child, parent int) bool {
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(child), uintptr(parent), kcmpMemory, 0, 0, 0)
	return errno == 0 && order == 0
}
