package contract

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prizeVariable names a folder of the host's, where a plugin has no business.
const prizeVariable = "GRESIZE_TEST_PRIZE"

// reaches are what a plugin that was taken over goes for with the user number of its host, each with the kernel's part that stops it. None is an error where it succeeds.
func reaches(prize, tcp string) map[string]func() error {
	host := os.Getppid()
	call := func(number uintptr, args ...uintptr) error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := syscall.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
	read := func(path string) func() error {
		return func() error { _, err := os.ReadFile(path); return err }
	}
	dial := func(network, address string) func() error {
		return func() error { _, err := net.Dial(network, address); return err }
	}
	of := func(name string) string { return fmt.Sprintf("/proc/%d/%s", host, name) }
	word := make([]byte, 8)
	local := unix.Iovec{Base: &word[0], Len: 8}
	return map[string]func() error{
		"seccomp a socket":           dial("unix", prize+"/socket"),
		"seccomp an abstract socket": dial("unix", "@"+prize),
		"seccomp an address":         dial("tcp", tcp),
		"seccomp a packet":           dial("udp", tcp),
		"seccomp ptrace":             func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(host), 0, 0) },
		"seccomp memory of the host": func() error {
			return call(unix.SYS_PROCESS_VM_READV, uintptr(host), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&local)), 1, 0)
		},
		"seccomp limits of the host": func() error { return unix.Prlimit(host, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 4096, Max: 4096}, nil) },
		"seccomp order of the host":  func() error { return unix.Setpriority(unix.PRIO_PROCESS, host, 1) },
		"seccomp a ring of calls":    func() error { var p [120]byte; return call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&p))) },
		"seccomp a user namespace":   func() error { return exec.Command("/usr/bin/unshare", "-U", "/bin/true").Run() },
		"seccomp shared memory":      func() error { return call(unix.SYS_SHMGET, 0, 4096, unix.IPC_CREAT|0o600) },
		"Landlock a signal":          func() error { return syscall.Kill(host, 0) },
		"Landlock a file":            read(prize + "/secret"),
		"Landlock a list":            func() error { _, err := os.ReadDir(prize); return err },
		"Landlock a program there":   func() error { return exec.Command(prize + "/program").Run() },
		"Landlock a file there":      func() error { return os.WriteFile(prize+"/new", nil, 0o600) },
		"Landlock a file anywhere":   func() error { return os.WriteFile(filepath.Dir(prize)+"/new", nil, 0o600) },
		"Landlock a file away":       func() error { return os.Remove(prize + "/victim") },
		"Landlock a file out of it":  func() error { return os.Rename(prize+"/victim", "victim") },
		"Landlock a second name":     func() error { return os.Link(prize+"/secret", "secret") },
		"Landlock a file empty":      func() error { return os.Truncate(prize+"/secret", 0) },
		"Landlock through a link":    func() error { _ = os.Symlink(prize+"/secret", "link"); return read("link")() },
		"Landlock the host's folder": read(of("root") + prize + "/secret"),
		"Landlock the host's cwd":    func() error { _, err := os.ReadDir(of("cwd")); return err },
		"Landlock the environment":   read(of("environ")),
		"Landlock the host's files":  func() error { _, err := os.Readlink(of("fd/0")); return err },
		"Landlock the host's memory": func() error { _, err := os.OpenFile(of("mem"), os.O_RDWR, 0); return err },
		"Landlock a child's way":     func() error { return exec.Command("/bin/cat", prize+"/secret").Run() },
		"Landlock the host's score":  func() error { return os.WriteFile(of("oom_score_adj"), []byte("1000"), 0) },
		"Landlock keys of Slurm":     func() error { _, err := os.ReadDir("/etc/munge"); return err },
		"Landlock its own program": func() error {
			path, _ := os.Executable()
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				f.Close()
			}
			return err
		},
		"capabilities": func() error { return os.Chown("own", 12345, 12345) },
		"no_new_privs": func() error {
			n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err == nil && n == 1 {
				err = unix.EPERM
			}
			return err
		},
	}
}

// works is what a plugin needs to be able to do.
func works() map[string]error {
	path, _ := os.Executable()
	_, self := os.ReadFile(path)
	_, passwd := os.ReadFile("/etc/passwd")
	_, lent := os.ReadFile(os.Getenv(prizeVariable) + "/lent/model")
	_, named := os.ReadFile(os.Args[len(os.Args)-1])
	return map[string]error{
		"its program": self, "a file of the system": passwd, "what it was lent": lent, "a file that an argument names": named,
		"its folder": os.WriteFile("own", nil, 0o600), "nothing": os.WriteFile("/dev/null", []byte("x"), 0o600),
		"a program": exec.Command("/bin/sh", "-c", "exit 0").Run(), "a signal to itself": syscall.Kill(os.Getpid(), 0),
	}
}

// TestTakenOver: a plugin that goes for what its host may do, root here, gets nothing of it, and what it needs it has.
func TestTakenOver(t *testing.T) {
	prize := t.TempDir()
	t.Chdir(t.TempDir()) // what is tried leaves links
	for name, mode := range map[string]os.FileMode{"secret": 0o600, "victim": 0o600, "program": 0o700, "lent/model": 0o600, "script": 0o600} {
		if err := os.MkdirAll(filepath.Dir(prize+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(prize+"/"+name, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	var addresses []string
	for _, at := range [][2]string{{"unix", prize + "/socket"}, {"unix", "@" + prize}, {"tcp", "127.0.0.1:0"}} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	open := 0
	for name, try := range reaches(prize, addresses[2]) {
		if strings.HasPrefix(name, "Landlock a file") || strings.Contains(name, "host") || strings.HasPrefix(name, "seccomp ptrace") || name == "Landlock a second name" || strings.Contains(name, "no_new_privs") {
			continue // done here it would change what is tried below
		}
		if try() == nil {
			open++
		}
	}
	if open < 10 {
		t.Errorf("only %d things can be had here without bounds: the others are no test", open)
	}
	c := command(t, "teller")
	c.Env = append(c.Env, prizeVariable+"="+prize, "GRESIZE_TEST_ADDRESS="+addresses[2])
	c.Args = []string{"--fast", prize + "/script"}
	c.Reads = []string{prize + "/lent"}
	client, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	missing := client.Unconfined()
	if len(missing) > 0 {
		t.Logf("this machine cannot: %v", missing)
	}
	got, err := ask(t, client, "reach")
	if err != nil {
		t.Fatal(err)
	}
	reached := strings.Split(got, "|")
	t.Logf("%d things tried: %s", len(reaches(prize, "")), got)
	for _, name := range reached {
		part, _, _ := strings.Cut(name, " ")
		if name != "" && !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, part) }) && !(name == "Landlock a signal" && landlockVersion() < 6) {
			t.Errorf("it has: %s", name)
		}
	}
	if text, err := os.ReadFile(prize + "/secret"); err != nil || len(text) == 0 {
		t.Errorf("the secret is harmed: %q %v", text, err)
	}
}

// reach tries all of it and names what succeeded, and what ought to and did not.
func reach() string {
	var had []string
	for name, try := range reaches(os.Getenv(prizeVariable), os.Getenv("GRESIZE_TEST_ADDRESS")) {
		if try() == nil {
			had = append(had, name)
		}
	}
	for name, err := range works() {
		if err != nil {
			had = append(had, "lacks "+name+": "+err.Error())
		}
	}
	slices.Sort(had)
	return strings.Join(had, "|")
}

func TestWithout(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"a", "b/c", "b/d/key", "e/key"} {
		if err := os.MkdirAll(root+"/"+path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root+"/e/key", root+"/b/link"); err != nil {
		t.Fatal(err)
	}
	got := without(root, []string{root + "/b/d/key", root + "/e", root + "/nowhere/x"})
	slices.Sort(got)
	if want := []string{root + "/a", root + "/b/c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := without(root+"/e", []string{root + "/e"}); got != nil {
		t.Errorf("a hidden folder: %v", got)
	}
	if got := without(root+"/b", []string{root}); !slices.Equal(got, []string{root + "/b"}) {
		t.Errorf("below a hidden one, and named: %v", got)
	}
}
