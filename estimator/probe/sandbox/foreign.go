package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A user can map but his own numbers into his namespace, so the overlay can
// change no file and no directory that belongs to another user or to another
// of his groups: the copy could not keep its owner. Shared project directories
// are of that kind. What helps: a directory that is the root of an overlay of
// its own is never copied, so new files can be made in it; and small files in
// it are copied beforehand, under the user's own name. Large ones stay as they
// are: they can be read and removed, not changed.

// Limits on that help.
const (
	maxForeignDirs      = 64
	maxForeignDepth     = 3
	maxForeignCopyBytes = 64 << 20
)

// foreignDirs lists the writable directories of others on the way to the given
// ones, and some levels below them.
func foreignDirs(wanted []string) []string {
	var found []string
	add := func(dir string) bool {
		if !slices.Contains(found, dir) && len(found) < maxForeignDirs && isForeignDir(dir) {
			found = append(found, dir)
		}
		return slices.Contains(found, dir)
	}
	for _, dir := range wanted {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := ""
		for part := range strings.SplitSeq(strings.Trim(filepath.Clean(dir), "/"), "/") {
			path += "/" + part
			add(path)
		}
	}
	level := slices.Clone(found)
	for depth := 0; depth < maxForeignDepth; depth++ {
		var next []string
		for _, dir := range level {
			if fi, err := os.Stat(dir); err != nil || fi.Mode()&os.ModeSticky != 0 {
				continue // what others keep in a common /tmp is not this job's
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, e := range entries {
				if path := filepath.Join(dir, e.Name()); e.IsDir() && !slices.Contains(found, path) && add(path) {
					next = append(next, path)
				}
			}
		}
		level = next
	}
	return found
}

func isForeignDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir() && isForeign(fi) && unix.Access(path, unix.W_OK) == nil
}

// isForeign says that the owner or the group of a file has no number in this
// namespace. Such numbers are shown as the overflow number.
func isForeign(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	const overflow = 65534
	return st.Uid == overflow && os.Getuid() != overflow || st.Gid == overflow && os.Getgid() != overflow
}

// copyForeignFiles fills the upper directory of an overlay with the small files
// that the command may change but the overlay may not.
func (b *builder) copyForeignFiles(src, upper string) {
	if fi, err := os.Stat(src); err != nil || fi.Mode()&os.ModeSticky != 0 {
		return
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return
	}
	left := 0
	for _, e := range entries {
		fi, err := e.Info()
		path := filepath.Join(src, e.Name())
		if err != nil || !fi.Mode().IsRegular() || !isForeign(fi) || unix.Access(path, unix.W_OK) != nil {
			continue
		}
		if fi.Size() > maxCopyBytes || b.copied+fi.Size() > maxForeignCopyBytes {
			left++
			continue
		}
		if data, err := os.ReadFile(path); err == nil && os.WriteFile(filepath.Join(upper, e.Name()), data, 0o600) == nil {
			_ = os.Chmod(filepath.Join(upper, e.Name()), fi.Mode().Perm())
			b.copied += fi.Size()
		}
	}
	if left > 0 {
		b.note("%s: %d large files of another user or group can be read and removed, not changed", src, left)
	}
}
