package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The steps that fail first: where there is no place, no user namespace, or one without rights.
const (
	opMountPoint = "make a mount point"
	opNamespaces = "make namespaces"
	opPrivate    = "make mounts private"
)

// blocked names the one thing to change where the kernel refuses a sandbox, as far as this machine shows what it is.
func blocked(op string, cause error) string {
	switch op {
	case opMountPoint:
		return "let TMPDIR name a folder of the node that this user can write to"
	case opNamespaces, opPrivate:
	default:
		return ""
	}
	return blockedIn("/", os.Geteuid(), cause)
}

// blockedIn reads the machine's settings below root.
func blockedIn(root string, uid int, cause error) string {
	setting := func(name string) int {
		text, err := os.ReadFile(filepath.Join(root, "proc/sys", strings.ReplaceAll(name, ".", "/")))
		if err != nil {
			return -1
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return -1
		}
		return n
	}
	refused := errors.Is(cause, syscall.EPERM) || errors.Is(cause, syscall.EACCES) || errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EUSERS)
	switch {
	case !refused && !errors.Is(cause, syscall.EINVAL) && !errors.Is(cause, syscall.ENOSYS):
		return ""
	case setting("user.max_user_namespaces") == 0:
		return "user namespaces are forbidden: sysctl user.max_user_namespaces is 0; set it to 15000, or let gresize-sandbox make them (docs/security.md)"
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EUSERS):
		return "user namespaces are used up: raise sysctl user.max_user_namespaces"
	case uid != 0 && setting("kernel.unprivileged_userns_clone") == 0:
		return "user namespaces are forbidden to users: set sysctl kernel.unprivileged_userns_clone=1, or let gresize-sandbox make them (docs/security.md)"
	case uid != 0 && setting("kernel.apparmor_restrict_unprivileged_userns") == 1:
		return "AppArmor lets only programs with a profile make user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns): install contrib/apparmor/gresize in /etc/apparmor.d"
	case inChroot(root):
		return "this is a plain chroot, in which Linux makes no user namespaces: make it the root of a mount namespace (pivot_root), as containers do"
	case filtered(root):
		return "a filter of system calls is over this process: a container's seccomp profile, or RestrictNamespaces= and SystemCallFilter= of the unit of slurmd"
	case refused:
		return "user namespaces are not allowed, though no sysctl forbids them: in a plain chroot Linux makes none (pivot_root does not have that), else see the rules of a security module such as SELinux"
	}
	return "Linux 4.18 or later with user namespaces (CONFIG_USER_NS) is wanted"
}

// inChroot says that the root of this process is no mount point, which is the kernel's test.
func inChroot(root string) bool {
	f, err := os.Open(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return false
	}
	defer f.Close()
	mounts, err := parseMountinfo(io.LimitReader(f, maxMountinfoLen))
	if err != nil {
		return false
	}
	_, mounted := mounts["/"]
	return !mounted
}

// filtered says that seccomp is over this process.
func filtered(root string) bool {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/status"))
	return err == nil && strings.Contains(string(text), "\nSeccomp:\t2\n")
}
