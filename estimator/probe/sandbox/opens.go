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

	"github.com/gresize/gresize/estimator/probe/seccomp"
	"golang.org/x/sys/unix"
)

// maxOpened bounds the paths that are kept; a run that opens more is not complete.
const maxOpened = 65536

// The kernel's numbers for a listener of seccomp, which x/sys does not have.
const (
	notifyReceive  = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend     = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifySetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS
	notifyAddFile  = 0x40182103 // SECCOMP_IOCTL_NOTIF_ADDFD
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

// addition is struct seccomp_notif_addfd.
type addition struct {
	id                              uint64
	flags, file, newFile, fileFlags uint32
}

// naming are the system calls that name a file to read, run or ask about it, and which of their arguments is the folder (-1: none), the path and the flags.
// asks: nothing but what the file is comes of it; ofDescriptor is the bit of the flags that says it may be about an open descriptor, which names nothing.
var naming = map[int32]call{
	unix.SYS_OPENAT: {folder: 0, path: 1, flags: 2}, unix.SYS_OPENAT2: {folder: 0, path: 1, flags: -1}, unix.SYS_EXECVE: {folder: -1, path: 0, flags: -1},
	unix.SYS_EXECVEAT: {folder: 0, path: 1, flags: -1},
	unix.SYS_STATX:    {folder: 0, path: 1, flags: 2, asks: true, ofDescriptor: unix.AT_EMPTY_PATH}, unix.SYS_FACCESSAT: {folder: 0, path: 1, flags: -1, asks: true},
	unix.SYS_FACCESSAT2: {folder: 0, path: 1, flags: 3, asks: true, ofDescriptor: unix.AT_EMPTY_PATH}, unix.SYS_READLINKAT: {folder: 0, path: 1, flags: -1, asks: true},
}

type call struct {
	folder, path, flags int
	asks                bool
	ofDescriptor        uint32
}

// The numbers of fstatat(2), and of older calls that arm64 never had: old and static programs still make them.
const (
	sysOpenAMD64, sysStatAMD64, sysLstatAMD64, sysAccessAMD64, sysReadlinkAMD64 = 2, 4, 6, 21, 89
	sysFstatatAMD64, sysFstatatARM64                                            = 262, 79
)

func init() {
	fstatat := call{folder: 0, path: 1, flags: 3, asks: true, ofDescriptor: unix.AT_EMPTY_PATH}
	switch runtime.GOARCH {
	case "amd64":
		naming[sysOpenAMD64], naming[sysFstatatAMD64] = call{folder: -1, path: 0, flags: 1}, fstatat
		for _, nr := range []int32{sysStatAMD64, sysLstatAMD64, sysAccessAMD64, sysReadlinkAMD64} {
			naming[nr] = call{folder: -1, path: 0, flags: -1, asks: true}
		}
	case "arm64":
		naming[sysFstatatARM64] = fstatat
	}
}

// listingMark is the name by which the Python layer says that its program reads a folder: it asks whether there is such a file in it. Python itself reads the
// folders of its modules, in which the outputs of jobs often lie, so what the kernel sees of a Python says too much.
const listingMark = ".gresize-listing"

// watchCalls has the kernel tell of every call by which this thread, and all that comes of it, changes something (changes.go), and where they are to be recorded of every file that it
// opens or runs. It needs no right, and gives none.
func watchCalls(record bool) (*os.File, error) {
	architecture, known := seccomp.Native() // calls of others, such as those of 32-bit programs, are not looked at
	if !known {
		return nil, errors.New("not on this kind of machine")
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{{Code: load, K: 4}, {Code: equal, K: architecture, Jt: 1}, {Code: answer, K: unix.SECCOMP_RET_ALLOW}, {Code: load, K: 0}}
	for nr, paths := range changing {
		if _, recorded := naming[nr]; recorded && record {
			continue
		}
		filter = append(filter, unix.SockFilter{Code: equal, K: uint32(nr), Jf: 1})
		if flags := paths[0].flags; flags >= 0 {
			filter[len(filter)-1].Jf = 4
			filter = append(filter, unix.SockFilter{Code: load, K: uint32(seccomp.FirstArg + 8*flags)}, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: changingFlags, Jt: 1},
				unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
		}
		filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	for nr, c := range naming {
		if !record {
			break
		}
		if c.ofDescriptor == 0 {
			filter = append(filter, unix.SockFilter{Code: equal, K: uint32(nr), Jf: 1}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
			continue
		}
		// What is asked of an open descriptor is by far the most frequent, and names nothing.
		filter = append(filter, unix.SockFilter{Code: equal, K: uint32(nr), Jf: 4}, unix.SockFilter{Code: load, K: uint32(seccomp.FirstArg + 8*c.flags)},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: c.ofDescriptor, Jf: 1}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	filter = append(filter, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "listener"), nil
}

// use is what was done with a path.
type use uint8

const (
	useRead use = 1 << iota
	useAsked
	useListed
	// useMade is the last that counts: what a run has made or written itself, it finds again.
	useMade
)

// openLog is what was opened and asked about, by path.
type openLog struct {
	record bool
	judge  judge
	// view is that of the command, which is told of first.
	view view

	mu         sync.Mutex
	paths      map[string]use
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
		var path string
		var how use
		var err error
		_, names := naming[n.nr]
		if names = names && o.record; names {
			if path, how, err = n.named(); err == nil {
				err = o.inView(n.pid)
			}
		}
		r := response{id: n.id, flags: flagContinue}
		if v := o.judge.judge(&n); v != (verdict{}) {
			r.settle(fd, v, &n)
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, notifySend, uintptr(unsafe.Pointer(&r))) // ENOENT: it was killed meanwhile
		if names {
			o.add(path, how, err)
		}
	}
}

// settle makes of a verdict the answer to the call.
func (r *response) settle(listener uintptr, v verdict, n *notification) {
	r.flags, r.errno = 0, -int32(unix.ENOSPC)
	if v.file == nil {
		r.errno = -int32(v.errno)
		return
	}
	defer v.file.Close()
	a := addition{id: n.id, file: uint32(v.file.Fd())}
	if flags := changing[n.nr][0].flags; flags >= 0 {
		a.fileFlags = uint32(n.args[flags] & unix.O_CLOEXEC)
	}
	if number, _, errno := unix.Syscall(unix.SYS_IOCTL, listener, notifyAddFile, uintptr(unsafe.Pointer(&a))); errno == 0 {
		r.value, r.errno = int64(number), 0
	}
}

// view is what a process sees of files: its mounts, and where its root is among them.
type view struct {
	mounts       string
	device, file uint64
}

// inView refuses a process that sees other files under the same names than the command does, as in a container: what it reads cannot be found again by its names.
func (o *openLog) inView(pid uint32) error {
	at := "/proc/" + strconv.Itoa(int(pid))
	mounts, err := os.Readlink(at + "/ns/mnt")
	if err != nil {
		return err
	}
	var root unix.Stat_t
	if err := unix.Stat(at+"/root", &root); err != nil {
		return err
	}
	v := view{mounts, root.Dev, root.Ino}
	if o.view == (view{}) {
		o.view = v
	}
	if v != o.view {
		return unix.EPERM
	}
	return nil
}

func (o *openLog) add(path string, how use, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		// Whoever died in between has opened nothing; whoever cannot be looked at may have.
		o.incomplete = o.incomplete || errors.Is(err, unix.EPERM)
		return
	}
	before, known := o.paths[path]
	if path == "" || before&useMade != 0 {
		return
	}
	if !known && len(o.paths) >= maxOpened {
		o.incomplete = true
		return
	}
	o.paths[path] = before | how
}

// named is the absolute path that a call names, seen from inside, and what is done with it. It is empty where that does not matter.
func (n *notification) named() (path string, how use, err error) {
	c := naming[n.nr]
	how = useRead
	if c.asks {
		how = useAsked
	} else {
		var flags uint64
		if c.flags >= 0 {
			flags = n.args[c.flags]
		} else if n.nr == unix.SYS_OPENAT2 {
			word := make([]byte, 8)
			if err := readMemory(int(n.pid), uintptr(n.args[2]), word); err != nil {
				return "", 0, err
			}
			for i := range word {
				flags |= uint64(word[i]) << (8 * i)
			}
		}
		switch {
		case flags&unix.O_PATH != 0:
			how = useAsked
		case flags&unix.O_DIRECTORY != 0 && n.isPython():
			return "", 0, nil
		case flags&unix.O_DIRECTORY != 0:
			how = useListed
		case flags&unix.O_ACCMODE == unix.O_WRONLY || flags&unix.O_TRUNC != 0:
			how = useMade
		}
	}
	path, err = readPath(int(n.pid), uintptr(n.args[c.path]))
	if err != nil || path == "" {
		return "", 0, err
	}
	if !filepath.IsAbs(path) {
		link := "/proc/" + strconv.Itoa(int(n.pid)) + "/cwd"
		if c.folder >= 0 {
			if dir := int32(n.args[c.folder]); dir != unix.AT_FDCWD {
				link = "/proc/" + strconv.Itoa(int(n.pid)) + "/fd/" + strconv.Itoa(int(dir))
			}
		}
		folder, err := os.Readlink(link)
		if err != nil {
			return "", 0, err
		}
		path = folder + "/" + path
	}
	if throughProc.MatchString(path) {
		return "", 0, unix.EPERM // the way leads through another process's descriptor
	}
	path = n.resolved(path)
	if folder, name := filepath.Split(path); name == listingMark && how == useAsked {
		return filepath.Clean(folder), useListed, nil
	}
	return path, how, nil
}

// isPython says whether a Python makes the call: it tells by itself which folders its program reads.
func (n *notification) isPython() bool {
	exe, err := os.Readlink("/proc/" + strconv.Itoa(int(n.pid)) + "/exe")
	name := filepath.Base(exe)
	return err == nil && (strings.HasPrefix(name, "python") || strings.HasPrefix(name, "pypy"))
}

// throughProc are paths that go on behind a folder that a process has open.
var throughProc = regexp.MustCompile(`^/proc/[^/]+/(?:fd/[0-9]+|cwd|root)/.`)

// resolved takes the dots out of a path: behind a symbolic link, "..", is not where the text says. It looks at nothing but what the command itself can see.
func (n *notification) resolved(path string) string {
	if strings.Contains(path+"/", "/../") {
		end := strings.LastIndexByte(path, '/') + 1
		if root, err := unix.Open("/proc/"+strconv.Itoa(int(n.pid))+"/root", unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			defer unix.Close(root)
			if folder, err := within(root, path[:end], unix.O_DIRECTORY); err == nil {
				defer unix.Close(folder)
				if name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(folder)); err == nil {
					path = name + "/" + path[end:]
				}
			}
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

// Seen is what a command, and all that it started, wanted to know of files, as absolute paths from inside. What it had made itself before is not among them.
type Seen struct {
	// Read were opened to read or run them; Asked are those of which only it was asked whether they are there, or what they are.
	Read, Asked []string
	// Listed are folders whose names were read.
	Listed []string
}

// Seen tells it. Call it after Wait. complete is false where not all of it was seen, or Policy.RecordOpens was not set.
func (p *Process) Seen() (seen Seen, complete bool) {
	p.mu.Lock()
	o := p.opens
	p.mu.Unlock()
	if o == nil || !o.record {
		return Seen{}, false
	}
	<-o.done
	o.mu.Lock()
	defer o.mu.Unlock()
	for path, how := range o.paths {
		switch {
		case how&useRead != 0:
			seen.Read = append(seen.Read, path)
		case how&useAsked != 0:
			seen.Asked = append(seen.Asked, path)
		}
		if how&useListed != 0 {
			seen.Listed = append(seen.Listed, path)
		}
	}
	return seen, !o.incomplete
}
