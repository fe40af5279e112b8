// Package sandboxtest takes from a test's process what a hardened machine does not have, and gives a file the rights that an administrator would give it.
package sandboxtest

import (
	"encoding/binary"

	"github.com/gresize/gresize/estimator/probe/seccomp"
	"golang.org/x/sys/unix"
)

// withoutUserNamespaces answers as the kernel does where user.max_user_namespaces is 0.
var withoutUserNamespaces = []unix.SockFilter{
	seccomp.Load(seccomp.Number),
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 6, K: unix.SYS_CLONE3},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.SYS_CLONE},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 3, K: unix.SYS_UNSHARE},
	seccomp.Load(seccomp.FirstArg),
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jf: 1, K: unix.CLONE_NEWUSER},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSPC)},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
}

// ForbidUserNamespaces has this process, and all that it starts, find a kernel that makes no user namespaces. Root puts it over itself without no_new_privs, which would take the rights of files away.
func ForbidUserNamespaces() error { return seccomp.Install(withoutUserNamespaces) }

// GiveRights is setcap.
func GiveRights(path string, rights []uintptr) error {
	const revision2, effective = 0x02000000, 1
	var permitted uint64
	for _, right := range rights {
		permitted |= 1 << right
	}
	value := binary.LittleEndian.AppendUint32(nil, revision2|effective)
	value = binary.LittleEndian.AppendUint32(value, uint32(permitted))
	value = binary.LittleEndian.AppendUint32(value, 0)
	value = binary.LittleEndian.AppendUint32(value, uint32(permitted>>32))
	value = binary.LittleEndian.AppendUint32(value, 0)
	return unix.Setxattr(path, "security.capability", value, 0)
}
