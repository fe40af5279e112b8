package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Namespaces do not reach all of the kernel: VSOCK addresses are the machine's, keys belong to the user wherever he is, io_uring makes calls that no filter
// sees, pages that a program serves (userfaultfd) hold up whoever reads them, and mounts without a place are seen by nobody who measures. The filter answers those as a kernel does that was built without them, which every program must expect.

// offsets into struct seccomp_data
const (
	dataNumber       = 0
	dataArchitecture = 4
	dataFirstArg     = 16 // the low half, on the little-endian machines below
)

var auditArchitectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// x32Calls is the bit of the calls of x86's third ABI.
const x32Calls = 0x40000000

// withoutSupport are the calls that are not there.
var withoutSupport = []uint32{
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_USERFAULTFD,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
}

// filterCalls puts the filter over this process, all its threads and whatever they start. It needs no_new_privs. On another architecture than
// the two that PyTorch's CUDA builds exist for there is none.
func filterCalls(withoutUsers bool) error {
	architecture, known := auditArchitectures[runtime.GOARCH]
	if !known {
		return nil
	}
	program := filter(architecture, withoutUsers)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}

func filter(architecture uint32, withoutUsers bool) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// unless passes over the next instruction when the loaded word is not (jump) what is asked.
	unless := func(jump uint16, k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | jump | unix.BPF_K, Jf: 1, K: k}
	}
	answer := func(errno unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	program := []unix.SockFilter{
		load(dataArchitecture),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: architecture}, answer(unix.ENOSYS),
		load(dataNumber),
	}
	if architecture == unix.AUDIT_ARCH_X86_64 {
		program = append(program, unless(unix.BPF_JGE, x32Calls), answer(unix.ENOSYS))
	}
	for _, number := range withoutSupport {
		program = append(program, unless(unix.BPF_JEQ, number), answer(unix.ENOSYS))
	}
	if withoutUsers {
		// The arguments of clone3 cannot be looked at; every program goes on with clone.
		program = append(program, unless(unix.BPF_JEQ, unix.SYS_CLONE3), answer(unix.ENOSYS))
		for _, number := range []uint32{unix.SYS_UNSHARE, unix.SYS_CLONE} {
			program = append(program,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 4, K: number},
				load(dataFirstArg),
				unless(unix.BPF_JSET, unix.CLONE_NEWUSER), answer(unix.EPERM),
				load(dataNumber))
		}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	return append(program,
		// Of all that is left only the two calls that make sockets are looked at further; the others go on at the last instruction.
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_SOCKET},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_SOCKETPAIR},
		load(dataFirstArg),
		unless(unix.BPF_JEQ, unix.AF_VSOCK), answer(unix.EAFNOSUPPORT),
		allow)
}
