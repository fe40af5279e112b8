package reader

import (
	"github.com/gresize/gresize/estimator/probe/seccomp"
	"golang.org/x/sys/unix"
)

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
	architecture, known := seccomp.Native()
	if !known {
		return unix.ENOSYS
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return seccomp.Install(filter(architecture, uint32(unix.Getpid())))
}

func filter(architecture, self uint32) []unix.SockFilter {
	program := seccomp.Begin(architecture, unix.EPERM)
	for _, number := range allowed {
		program = append(program, seccomp.Unless(unix.BPF_JEQ, number, 1), seccomp.Allow())
	}
	return append(program,
		// A thread, no process: what another process takes would not count.
		seccomp.Unless(unix.BPF_JEQ, unix.SYS_CLONE, 3), seccomp.Load(seccomp.FirstArg), seccomp.Unless(unix.BPF_JSET, unix.CLONE_THREAD, 1), seccomp.Allow(),
		// Go interrupts its own threads so.
		seccomp.Load(seccomp.Number), seccomp.Unless(unix.BPF_JEQ, unix.SYS_TGKILL, 3), seccomp.Load(seccomp.FirstArg), seccomp.Unless(unix.BPF_JEQ, self, 1), seccomp.Allow(),
		// The arguments of clone3 cannot be looked at; the C library goes on with clone.
		seccomp.Load(seccomp.Number), seccomp.Unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1), seccomp.Answer(unix.ENOSYS),
		seccomp.Answer(unix.EPERM))
}
