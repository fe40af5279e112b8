package sandbox

import (
	"github.com/gresize/gresize/estimator/probe/seccomp"
	"golang.org/x/sys/unix"
)

// Namespaces do not reach all of the kernel: VSOCK addresses are the machine's, keys belong to the user wherever he is, io_uring makes calls that no filter
// sees, pages that a program serves (userfaultfd) hold up whoever reads them, and mounts without a place are seen by nobody who measures. The filter answers those as a kernel does that was built without them, which every program must expect.

// x32Calls is the bit of the calls of x86's third ABI.
const x32Calls = 0x40000000

// withoutSupport are the calls that are not there.
var withoutSupport = []uint32{
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_USERFAULTFD,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_MEMFD_SECRET, // no measurement sees what it holds once it is unmapped
}

// filterCalls puts the filter over this process, all its threads and whatever they start. It needs no_new_privs. On another architecture than
// the two that PyTorch's CUDA builds exist for there is none.
func filterCalls(withoutUsers bool) error {
	architecture, known := seccomp.Native()
	if !known {
		return nil
	}
	return seccomp.Install(filter(architecture, withoutUsers))
}

func filter(architecture uint32, withoutUsers bool) []unix.SockFilter {
	program := seccomp.Begin(architecture, unix.ENOSYS)
	if architecture == unix.AUDIT_ARCH_X86_64 {
		program = append(program, seccomp.Unless(unix.BPF_JGE, x32Calls, 1), seccomp.Answer(unix.ENOSYS))
	}
	for _, number := range withoutSupport {
		program = append(program, seccomp.Unless(unix.BPF_JEQ, number, 1), seccomp.Answer(unix.ENOSYS))
	}
	if withoutUsers {
		// The arguments of clone3 cannot be looked at; every program goes on with clone.
		program = append(program, seccomp.Unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1), seccomp.Answer(unix.ENOSYS))
		for _, number := range []uint32{unix.SYS_UNSHARE, unix.SYS_CLONE} {
			program = append(program,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: number},
				seccomp.Load(seccomp.FirstArg),
				seccomp.Unless(unix.BPF_JSET, unix.CLONE_NEWUSER, 1), seccomp.Answer(unix.EPERM),
				seccomp.Load(seccomp.Number))
		}
	}
	return append(program,
		// Of all that is left only the two calls that make sockets are looked at further; the others go on at the last instruction.
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_SOCKET},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKETPAIR},
		seccomp.Load(seccomp.FirstArg),
		seccomp.Unless(unix.BPF_JEQ, unix.AF_VSOCK, 1), seccomp.Answer(unix.EAFNOSUPPORT),
		seccomp.Allow())
}
