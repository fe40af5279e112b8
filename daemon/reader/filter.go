package reader

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offsets into struct seccomp_data
const (
	dataNumber       = 0
	dataArchitecture = 4
	dataFirstArg     = 16 // the low half, on the little-endian machines below
)

var auditArchitectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// allowed are the calls of a Go program, and of the C library below it, that computes and reads and writes what is open already.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_LSEEK, unix.SYS_FSTAT, unix.SYS_FCNTL,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_RESTART_SYSCALL, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETRANDOM,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_GETPID, unix.SYS_GETTID,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// filterCalls leaves this process, all its threads, the calls that computing takes. All others fail.
func filterCalls() error {
	architecture, known := auditArchitectures[runtime.GOARCH]
	if !known {
		return unix.ENOSYS
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := filter(architecture, uint32(unix.Getpid()))
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}

func filter(architecture, self uint32) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// unless passes over some instructions when the loaded word is not (jump) what is asked.
	unless := func(jump uint16, k uint32, over uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | jump | unix.BPF_K, Jf: over, K: k}
	}
	answer := func(errno unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	program := []unix.SockFilter{
		load(dataArchitecture),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: architecture}, answer(unix.EPERM),
		load(dataNumber),
	}
	for _, number := range allowed {
		program = append(program, unless(unix.BPF_JEQ, number, 1), allow)
	}
	return append(program,
		// A thread, no process: what another process takes would not count.
		unless(unix.BPF_JEQ, unix.SYS_CLONE, 3), load(dataFirstArg), unless(unix.BPF_JSET, unix.CLONE_THREAD, 1), allow,
		// Go interrupts its own threads so.
		load(dataNumber), unless(unix.BPF_JEQ, unix.SYS_TGKILL, 3), load(dataFirstArg), unless(unix.BPF_JEQ, self, 1), allow,
		// The arguments of clone3 cannot be looked at; the C library goes on with clone.
		load(dataNumber), unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1), answer(unix.ENOSYS),
		answer(unix.EPERM))
}
