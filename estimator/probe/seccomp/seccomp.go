// Package seccomp has the parts of a filter of system calls, and puts one into force.
package seccomp

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets into struct seccomp_data.
const (
	Number       = 0
	Architecture = 4
	FirstArg     = 16 // the low half, on the little-endian machines below
)

// Native is this machine's architecture, as the kernel's audit names it; known is false where it is none of the two that PyTorch's CUDA builds exist for.
func Native() (architecture uint32, known bool) {
	switch runtime.GOARCH {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, true
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, true
	}
	return 0, false
}

// Load takes the word at an offset of struct seccomp_data.
func Load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// Unless passes over some instructions when the loaded word is not (jump) what is asked.
func Unless(jump uint16, k uint32, over uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | jump | unix.BPF_K, Jf: over, K: k}
}

// Answer ends the filter: the call fails with errno.
func Answer(errno unix.Errno) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// Allow ends the filter: the call is made.
func Allow() unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
}

// Begin is how a filter begins: calls of another architecture fail with errno, and the number of the call is loaded.
func Begin(architecture uint32, errno unix.Errno) []unix.SockFilter {
	return []unix.SockFilter{
		Load(Architecture),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: architecture}, Answer(errno),
		Load(Number),
	}
}

// Install puts a filter over this process, all its threads and whatever they start. It needs no_new_privs.
func Install(program []unix.SockFilter) error {
	return install(program, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// InstallHere puts a filter over this thread and the processes that it starts. It needs no_new_privs, and a goroutine that is locked to its thread and never unlocks it.
func InstallHere(program []unix.SockFilter) error {
	return install(program, 0)
}

func install(program []unix.SockFilter, flags uintptr) error {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}
