package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestBlocked(t *testing.T) {
	const inOwnRoot = "1 1 1:1 / / rw - ext4 /dev/sda rw\n"
	for _, c := range []struct {
		name   string
		files  map[string]string
		uid    int
		cause  error
		naming string
	}{
		{"forbidden", map[string]string{"sys/user/max_user_namespaces": "0\n"}, 1000, syscall.ENOSPC, "user.max_user_namespaces is 0"},
		{"forbidden to root, too", map[string]string{"sys/user/max_user_namespaces": "0\n"}, 0, syscall.ENOSPC, "user.max_user_namespaces is 0"},
		{"used up", map[string]string{"sys/user/max_user_namespaces": "10\n"}, 1000, syscall.ENOSPC, "used up"},
		{"Debian's switch", map[string]string{"sys/kernel/unprivileged_userns_clone": "0\n", "sys/user/max_user_namespaces": "10\n"}, 1000, syscall.EPERM, "kernel.unprivileged_userns_clone=1"},
		{"AppArmor", map[string]string{"sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "sys/kernel/unprivileged_userns_clone": "1\n"}, 1000, syscall.EACCES, "contrib/apparmor"},
		{"AppArmor and root", map[string]string{"sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "self/mountinfo": inOwnRoot}, 0, syscall.EPERM, "a security module"},
		{"a chroot", map[string]string{"self/mountinfo": "1 1 1:1 / /proc rw - proc proc rw\n"}, 1000, syscall.EPERM, "plain chroot"},
		{"a filter", map[string]string{"self/mountinfo": inOwnRoot, "self/status": "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"}, 1000, syscall.EPERM, "filter of system calls"},
		{"a kernel without them", map[string]string{"self/mountinfo": inOwnRoot}, 1000, syscall.EINVAL, "CONFIG_USER_NS"},
		{"no such folder", map[string]string{"sys/user/max_user_namespaces": "0\n"}, 1000, syscall.ENOENT, ""},
		{"nothing is known", nil, 1000, errors.New("x"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(root, "proc", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := blockedIn(root, c.uid, c.cause); !strings.Contains(got, c.naming) || (got == "") != (c.naming == "") {
				t.Errorf("%q, want %q", got, c.naming)
			}
		})
	}
}
