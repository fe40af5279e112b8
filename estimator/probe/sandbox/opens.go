package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxOpened bounds the paths that are kept; a run that opens more is not complete.
const maxOpened = 65536

// The kernel's numbers for a listener of seccomp, which x/sys does not have.
const (
	notifyReceive  = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend     = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifySetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS
	syncWakeUp     = 1          // hand the processor over at once
	flagContinue   = 1          // let the call go on
)

// notification is struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// opening are the system calls that name a file whose content is read or run, and which of their arguments is the folder (-1: none), the path and the flags.
var opening = map[int32]struct{ folder, path, flags int }{
	unix.SYS_OPENAT: {0, 1, 2}, unix.SYS_OPENAT2: {0, 1, -1}, unix.SYS_EXECVE: {-1, 0, -1}, unix.SYS_EXECVEAT: {0, 1, -1},
}

func init() {
	if runtime.GOARCH == "amd64" {
		opening[sysOpenAMD64] = struct{ folder, path, flags int }{-1, 0, 1}
	}
}

// sysOpenAMD64 is the number of open(2), which arm64 never had: old and static programs still call it.
const sysOpenAMD64 = 2

// auditArch is the number of this machine's kind of system calls; others, such as those of 32-bit programs, are not looked at.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// watchOpens has the kernel tell of every file that this thread, and all that comes of it, opens or runs. It needs no right, and gives none: each call
// goes on as it was made.
func watchOpens() (*os.File, error) {
	if auditArch == 0 {
		return nil, errors.New("not on this kind of machine")
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{{Code: load, K: 4}, {Code: equal, K: auditArch, Jt: 1}, {Code: answer, K: unix.SECCOMP_RET_ALLOW}, {Code: load, K: 0}}
	for nr := range opening {
		filter = append(filter, unix.SockFilter{Code: equal, K: uint32(nr), Jf: 1}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "listener"), nil
}

// openLog is what was opened, by path; true: it was first opened to be read.
type openLog struct {
	mu         sync.Mutex
	paths      map[string]bool
	incomplete bool
	done       chan struct{}
}

// follow answers the kernel until nothing of the sandbox is left.
func (o *openLog) follow(listener *os.File) {
	// Every open of the command waits for this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(o.done)
	defer listener.Close()
	fd := listener.Fd()
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifySetFlags, syncWakeUp) // only for speed, from Linux 6.6 on
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, notifyReceive, uintptr(unsafe.Pointer(&n))); errno != 0 {
			if errno == unix.EINTR || errno == unix.ENOENT { // it was killed meanwhile
				continue
			}
			return
		}
		path, read, err := n.opened()
		r := response{id: n.id, flags: flagContinue}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifySend, uintptr(unsafe.Pointer(&r))) // ENOENT: it was killed meanwhile
		o.add(path, read, err)
	}
}

func (o *openLog) add(path string, read bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		// Whoever died in between has opened nothing; whoever cannot be looked at may have.
		o.incomplete = o.incomplete || errors.Is(err, unix.EPERM)
		return
	}
	if _, known := o.paths[path]; known || path == "" {
		return
	}
	if len(o.paths) >= maxOpened {
		o.incomplete = true
		return
	}
	o.paths[path] = read
}

// opened is the absolute path that a call names, seen from inside; read is false for a file that is made or written. It is empty for folders.
func (n *notification) opened() (path string, read bool, err error) {
	call := opening[n.nr]
	var flags uint64
	if call.flags >= 0 {
		flags = n.args[call.flags]
	} else if n.nr == unix.SYS_OPENAT2 {
		how := make([]byte, 8)
		if err := readMemory(int(n.pid), uintptr(n.args[2]), how); err != nil {
			return "", false, err
		}
		for i := range how {
			flags |= uint64(how[i]) << (8 * i)
		}
	}
	if flags&(unix.O_DIRECTORY|unix.O_PATH) != 0 {
		return "", false, nil
	}
	path, err = readPath(int(n.pid), uintptr(n.args[call.path]))
	if err != nil || path == "" {
		return "", false, err
	}
	if !filepath.IsAbs(path) {
		link := "/proc/" + strconv.Itoa(int(n.pid)) + "/cwd"
		if call.folder >= 0 {
			if dir := int32(n.args[call.folder]); dir != unix.AT_FDCWD {
				link = "/proc/" + strconv.Itoa(int(n.pid)) + "/fd/" + strconv.Itoa(int(dir))
			}
		}
		folder, err := os.Readlink(link)
		if err != nil {
			return "", false, err
		}
		path = folder + "/" + path
	}
	if throughProc.MatchString(path) {
		return "", false, unix.EPERM // the way leads through another process's descriptor
	}
	return resolved(path), flags&unix.O_ACCMODE != unix.O_WRONLY && flags&unix.O_TRUNC == 0, nil
}

// throughProc are paths that go on behind a folder that a process has open.
var throughProc = regexp.MustCompile(`^/proc/[^/]+/(?:fd/[0-9]+|cwd|root)/.`)

// resolved takes the dots out of a path: behind a symbolic link, "..", is not where the text says.
func resolved(path string) string {
	if strings.Contains(path+"/", "/../") {
		if folder, err := filepath.EvalSymlinks(path[:strings.LastIndexByte(path, '/')+1]); err == nil {
			path = folder + path[strings.LastIndexByte(path, '/'):]
		}
	}
	return filepath.Clean(path)
}

// readPath reads a text that ends with a zero byte, page by page: what follows it may not be there.
func readPath(pid int, at uintptr) (string, error) {
	const page, longest = 4096, 4096
	var text []byte
	for len(text) < longest {
		part := make([]byte, page-at%page)
		if err := readMemory(pid, at, part); err != nil {
			return "", err
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(text, part[:end]...)), nil
		}
		text = append(text, part...)
		at += uintptr(len(part))
	}
	return "", nil
}

func readMemory(pid int, at uintptr, into []byte) error {
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: at, Len: len(into)}}, 0)
	return err
}

// Opened are the files that the command, and all that it started, opened to read or ran, as absolute paths from inside; those that it made itself are not
// among them. Call it after Wait. complete is false where not all of it was seen, or Policy.RecordOpens was not set.
func (p *Process) Opened() (paths []string, complete bool) {
	p.mu.Lock()
	o := p.opens
	p.mu.Unlock()
	if o == nil {
		return nil, false
	}
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	for path, read := range o.paths {
		if read {
			paths = append(paths, path)
		}
	}
	return paths, !o.incomplete
}
