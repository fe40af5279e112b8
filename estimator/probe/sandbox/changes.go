package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Before an overlay lets a file be changed it copies all of it, and fails after as many seconds as there is room for; and a folder that could not be made beforehand
// (ways.go) it cannot change at all. Both are known before the call is made: so the calls that change something wait until it was looked at what they change. A database like LMDB
// opens for writing what it only reads: a file for whose copy there is no room is opened for reading, and fails when it is really written to.

// changing are the system calls that change what their path names, or the folder in which it lies, with the arguments of folder and path; flags is the one that
// tells openat from a reading one, where it counts.
var changing = map[int32][]pathArguments{
	unix.SYS_OPENAT: {{folder: 0, path: 1, flags: 2}}, unix.SYS_MKDIRAT: {{folder: 0, path: 1, flags: -1}}, unix.SYS_FCHMODAT: {{folder: 0, path: 1, flags: -1}},
	unix.SYS_RENAMEAT2: {{folder: 0, path: 1, flags: -1}, {folder: 2, path: 3, flags: -1}}, unix.SYS_LINKAT: {{folder: 0, path: 1, flags: -1}, {folder: 2, path: 3, flags: -1}},
	unix.SYS_SYMLINKAT: {{folder: 1, path: 2, flags: -1}}, unix.SYS_UNLINKAT: {{folder: 0, path: 1, flags: -1}}, unix.SYS_TRUNCATE: {{folder: -1, path: 0, flags: -1}},
}

type pathArguments struct{ folder, path, flags int }

// The numbers of older calls, which amd64 alone has, and of renameat, which it shares with arm64 under another.
const (
	sysRenameAMD64, sysMkdirAMD64, sysRmdirAMD64, sysCreatAMD64, sysLinkAMD64, sysUnlinkAMD64, sysSymlinkAMD64, sysChmodAMD64 = 82, 83, 84, 85, 86, 87, 88, 90
	sysRenameatAMD64, sysRenameatARM64                                                                                        = 264, 38
)

func init() {
	renameat := []pathArguments{{folder: 0, path: 1, flags: -1}, {folder: 2, path: 3, flags: -1}}
	switch runtime.GOARCH {
	case "amd64":
		changing[sysOpenAMD64], changing[sysRenameatAMD64] = []pathArguments{{folder: -1, path: 0, flags: 1}}, renameat
		for _, nr := range []int32{sysMkdirAMD64, sysRmdirAMD64, sysCreatAMD64, sysUnlinkAMD64, sysChmodAMD64} {
			changing[nr] = []pathArguments{{folder: -1, path: 0, flags: -1}}
		}
		changing[sysSymlinkAMD64] = []pathArguments{{folder: -1, path: 1, flags: -1}}
		for _, nr := range []int32{sysRenameAMD64, sysLinkAMD64} {
			changing[nr] = []pathArguments{{folder: -1, path: 0, flags: -1}, {folder: -1, path: 1, flags: -1}}
		}
	case "arm64":
		changing[sysRenameatARM64] = renameat
	}
}

// changingFlags are those of an openat that may change something.
const changingFlags = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC

// leastLarge is the size from which on it is asked whether there is room for a copy.
const leastLarge = 16 << 20

// judge looks at the changes of a command before they are made.
type judge struct {
	began time.Time
	// missing is asked when the command changes something in a folder of another that it may write to and that was not made beforehand; true: it is to be ended.
	missing func(dir string) bool
	// tooLarge is told of a file for whose copy there is no room.
	tooLarge func(what string)
	// known are folders in which changes can be made, or of which it was told that they cannot.
	known map[inode]bool
}

type inode struct{ device, number uint64 }

// maxKnown bounds the folders that are remembered.
const maxKnown = 1 << 16

// verdict is what comes of a call: it goes on, fails, or gets a file that was opened for it.
type verdict struct {
	errno unix.Errno
	file  *os.File
}

// judge decides on the call of n.
func (j *judge) judge(n *notification) verdict {
	for _, a := range changing[n.nr] {
		flags := uint64(unix.O_RDWR)
		if a.flags >= 0 {
			flags = n.args[a.flags]
		}
		if flags&changingFlags == 0 {
			continue
		}
		if v := j.look(n, a, flags); v != (verdict{}) {
			return v
		}
	}
	return verdict{}
}

func (j *judge) look(n *notification, a pathArguments, flags uint64) (v verdict) {
	path, err := readPath(int(n.pid), uintptr(n.args[a.path]))
	if err != nil || path == "" {
		return v
	}
	process := "/proc/" + strconv.Itoa(int(n.pid))
	if !filepath.IsAbs(path) {
		link := process + "/cwd"
		if a.folder >= 0 {
			if dir := int32(n.args[a.folder]); dir != unix.AT_FDCWD {
				link = process + "/fd/" + strconv.Itoa(int(dir))
			}
		}
		folder, err := os.Readlink(link)
		if err != nil {
			return v
		}
		path = folder + "/" + path
	}
	root, err := unix.Open(process+"/root", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return v
	}
	defer unix.Close(root)
	if flags&(unix.O_TRUNC|unix.O_EXCL) == 0 { // else nothing is copied
		if v = j.lookAtFile(root, path, flags, a.flags >= 0); v != (verdict{}) {
			return v
		}
	}
	j.lookAtFolder(root, filepath.Dir(path))
	return v
}

// within opens a path below a root without opening what it names.
func within(root int, path string, flags uint64) (int, error) {
	return unix.Openat2(root, path, &unix.OpenHow{Flags: flags | unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
}

func inOverlay(fd int) (st unix.Statfs_t, yes bool) {
	err := unix.Fstatfs(fd, &st)
	return st, err == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// lookAtFile does not let a file be changed that is as it was outside, and larger than what is left for changes.
func (j *judge) lookAtFile(root int, path string, flags uint64, opens bool) (v verdict) {
	fd, err := within(root, path, flags&unix.O_NOFOLLOW)
	if err != nil {
		return v
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks*512 < leastLarge || !time.Unix(st.Ctim.Unix()).Before(j.began) {
		return v
	}
	room, yes := inOverlay(fd)
	left, name := int64(room.Bavail)*room.Bsize, "/proc/self/fd/"+strconv.Itoa(fd)
	if !yes || left >= st.Blocks*512 || unix.Access(name, unix.W_OK) != nil {
		return v
	}
	j.tooLarge(fmt.Sprintf("%s is opened to be changed: its %d MiB would be copied, and there is room for %d", path, st.Blocks*512>>20, left>>20))
	v.errno = unix.ENOSPC
	// Root's own rights reach further than those of the root inside.
	if opens && (os.Getuid() != 0 || st.Uid == 0 && st.Mode&0o600 == 0o600) {
		const change = unix.O_ACCMODE | unix.O_CREAT | unix.O_NOFOLLOW
		if file, err := os.OpenFile(name, int(flags&^change)|unix.O_RDONLY, 0); err == nil {
			v = verdict{file: file}
		}
	}
	return v
}

// lookAtFolder tells of a folder in which the command may make changes, and the overlay cannot.
func (j *judge) lookAtFolder(root int, path string) {
	if os.Getuid() == 0 {
		return
	}
	dir, err := within(root, path, unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	if !j.foreign(dir) || unix.Access("/proc/self/fd/"+strconv.Itoa(dir), unix.W_OK) != nil {
		return
	}
	if name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(dir)); err != nil || !filepath.IsAbs(name) || strings.HasSuffix(name, " (deleted)") || j.missing(name) {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(dir, &st) == nil {
		j.know(inode{st.Dev, st.Ino})
	}
}

func (j *judge) know(folders ...inode) {
	for _, f := range folders {
		if len(j.known) < maxKnown {
			j.known[f] = true
		}
	}
}

// foreign says that the folder, or one above it in the same overlay, belongs to another: the user has no number for it in the sandbox, and nothing was made in its place.
func (j *judge) foreign(dir int) bool {
	if _, yes := inOverlay(dir); !yes {
		return false
	}
	var looked []inode
	at, err := unix.Openat(dir, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for err == nil {
		var st unix.Stat_t
		err = unix.Fstat(at, &st)
		here := inode{st.Dev, st.Ino}
		if err != nil || len(looked) > 0 && (here.device != looked[0].device || here == looked[len(looked)-1]) || j.known[here] {
			break
		}
		if int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
			_ = unix.Close(at)
			return true
		}
		looked = append(looked, here)
		above, aboveErr := unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(at)
		at, err = above, aboveErr
	}
	if at >= 0 {
		_ = unix.Close(at)
	}
	j.know(looked...)
	return false
}
