// Package private makes directories of one process that do not outlive it for
// long: each is locked while its process lives, and whoever makes the next one
// first removes those of the same user whose process is gone, however it ended.
package private

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quietPeriod is how old a directory without a lock must be: a new one is locked a moment after it was made.
const quietPeriod = time.Minute

// mostRemoved bounds how many directories one call removes, so that no run waits for the faults of many.
const mostRemoved = 16

// Dir is a private directory.
type Dir struct {
	Path string
	lock *os.File
}

// TemporaryDir is the folder for temporary files: that of the variable TMPDIR, or /tmp where it names none that is there, as Python has it.
func TemporaryDir() string {
	dir := os.TempDir()
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return "/tmp"
	}
	return dir
}

// Make makes a new directory whose name begins with prefix under parent; an empty parent is TemporaryDir().
func Make(parent, prefix string) (*Dir, error) {
	if parent == "" {
		parent = TemporaryDir()
	}
	sweep(parent, prefix, time.Now().Add(-quietPeriod))
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	// Without a lock, on a file system that has none, the directory is only removed in the usual way.
	if d.lock, err = lock(path); err != nil {
		d.lock = nil
	}
	return d, nil
}

// Remove removes the directory and all in it.
func (d *Dir) Remove() {
	removeTree(d.Path)
	if d.lock != nil {
		_ = d.lock.Close()
	}
}

// lock takes the lock of a directory, which goes with the process.
func lock(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// sweep removes what processes of this user left behind that are gone. What belongs to others, is in use, is no directory or is new stays.
func sweep(parent, prefix string, before time.Time) {
	dir, err := os.Open(parent)
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	removed := 0
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		path := filepath.Join(parent, name)
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || info.ModTime().After(before) {
			continue
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(owner.Uid) != os.Geteuid() {
			continue
		}
		held, err := lock(path)
		if err != nil {
			continue
		}
		removeTree(path)
		held.Close()
		if removed++; removed == mostRemoved {
			return
		}
	}
}

// removeTree removes a directory. Directories without permissions are in it:
// overlayfs makes some, and a command may have made others.
func removeTree(root string) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // before its entries are read
		}
		return nil
	})
	_ = os.RemoveAll(root)
}
