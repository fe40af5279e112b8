package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Before Linux 5.11 users make no overlays (some distributions allow them: RHEL 8.5, and Debian 10 and 11 with overlay.permit_mounts_in_userns=1). There the world is
// read-only, and where the command will write, its files are copied into memory: small ones, nearest to the top first, as far as the limits go.

// Limits on the copies.
const (
	maxCopiedEntries = 20_000
	maxCopiedBinds   = 500 // for one place
	copyTime         = 3 * time.Second
	// copiedShare is the part of what may be written that copies may take.
	copiedShare = 4
)

// commonPlaces are where everybody makes files.
var commonPlaces = []string{"/tmp", "/var/tmp"}

// chooseOverlays finds out how overlays are made here, or that none can be.
func (b *builder) chooseOverlays() {
	cause := errors.New("as was asked for")
	if !b.policy.Copies {
		options := []string{",userxattr", ""} // a distribution may allow them without that option
		if lent {
			// Redirections would be believed as root's own.
			options = []string{",redirect_dir=nofollow,index=off"}
		}
		for _, option := range options {
			if cause = b.tryOverlay(option); cause == nil {
				b.overlayOptions = option
				return
			}
			if !errors.Is(cause, unix.EINVAL) {
				break
			}
		}
	}
	b.copies = true
	b.needed = append(b.needed, commonPlaces...)
	b.note("users can make no overlays here (%v; Linux 5.11 has them, Debian before with overlay.permit_mounts_in_userns=1): the working directory, the home and TMPDIR are copies, all else is read-only", cause)
}

// tryOverlay makes one and takes it away.
func (b *builder) tryOverlay(option string) error {
	const dir = memoryDir + "/try"
	for _, d := range []string{dir, dir + "/l", dir + "/u", dir + "/w", dir + "/m"} {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := mountOverlay(dir+"/l", dir+"/m", ",upperdir="+dir+"/u,workdir="+dir+"/w"+option); err != nil {
		return err
	}
	return unmount(dir + "/m")
}

// willWrite says that the command is expected to write in a directory.
func (b *builder) willWrite(dir string) bool {
	for _, path := range b.needed {
		common := slices.Contains(commonPlaces, path) // below it lies what is not this job's
		if path != "/" && (dir == path || !common && strings.HasPrefix(dir, path+"/")) {
			return true
		}
	}
	return false
}

// copyPlace shows src, below which nothing is mounted, in the new directory dst without an overlay.
func (b *builder) copyPlace(src, dst string) {
	type pair struct{ src, dst string }
	b.copiedBinds = 0
	if b.copyUntil.IsZero() {
		b.copyUntil = time.Now().Add(copyTime)
	}
	for queue := []pair{{src, dst}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		onTheWay := b.distance(at.src) == 0
		if !b.willWrite(at.src) && !onTheWay || !onTheWay && b.copiesSpent() {
			b.coverCopy(at.src, at.dst)
			continue
		}
		entries, err := os.ReadDir(at.src)
		if err != nil {
			b.placeOver(at.src, at.dst, b.namesOnTheWay(at.src), 0)
			continue
		}
		about, err := os.Stat(at.src)
		sticky := err == nil && about.Mode()&os.ModeSticky != 0
		for _, e := range entries {
			from, to := filepath.Join(at.src, e.Name()), filepath.Join(at.dst, e.Name())
			fi, err := e.Info()
			// What lies in a common /tmp and is not named is another job's, and the sandbox's own folder is not for the command.
			if err != nil || from == b.base || sticky && b.distance(from) > 1 {
				continue
			}
			b.copiedEntries++
			switch {
			case fi.Mode()&os.ModeSymlink != 0:
				if target, err := os.Readlink(from); err == nil {
					_ = os.Symlink(target, to)
				}
			case fi.IsDir():
				if err := os.Mkdir(to, fi.Mode().Perm()|0o700); err != nil {
					b.leftOut(from, err)
					continue
				}
				queue = append(queue, pair{from, to})
			case fi.Mode()&os.ModeNamedPipe != 0:
				_ = unix.Mkfifo(to, uint32(fi.Mode().Perm()))
			case fi.Mode().IsRegular():
				b.copyFile(from, to, fi)
			}
		}
	}
}

func (b *builder) copiesSpent() bool {
	return b.copiedEntries > maxCopiedEntries || time.Now().After(b.copyUntil)
}

// coverCopy shows a directory as it is, read-only.
func (b *builder) coverCopy(src, dst string) {
	if b.copiedBinds++; b.copiedBinds > maxCopiedBinds {
		b.leftOut(src, fmt.Errorf("more than %d places are shown as they are", maxCopiedBinds))
		return
	}
	if err := bindReadOnly(src, dst); err != nil {
		b.leftOut(src, err)
		return
	}
	b.uncoveredCopies = append(b.uncoveredCopies, [2]string{src, dst}) // the search takes time, which the copies need first
}

// coverCopies covers the sockets and pipes of what is shown as it is.
func (b *builder) coverCopies() {
	for _, place := range b.uncoveredCopies {
		b.coverEndpoints(place[0], place[1])
	}
}

// copyFile copies a file, or shows a large one as it is.
func (b *builder) copyFile(src, dst string, fi os.FileInfo) {
	const page = 4096
	size := (fi.Size() + page) / page * page // what memory it takes, with some for its name
	if b.willWrite(src) && !b.copiesSpent() && b.copied+size <= b.policy.ScratchBytes/copiedShare && copyContent(src, dst, fi) == nil {
		b.copied += size
		return
	}
	if b.copiedBinds++; b.copiedBinds > maxCopiedBinds {
		b.leftOut(src, fmt.Errorf("more than %d files are shown as they are", maxCopiedBinds))
		return
	}
	if err := os.WriteFile(dst, nil, 0o600); err != nil {
		b.leftOut(src, err)
		return
	}
	if err := bindReadOnly(src, dst); err != nil {
		_ = os.Remove(dst) // none is better than an empty one
		b.leftOut(src, err)
	}
}

func copyContent(src, dst string, fi os.FileInfo) error {
	in, err := os.OpenFile(src, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, fi.Size()))
	if err = errors.Join(err, out.Chmod(fi.Mode().Perm()), out.Close(), os.Chtimes(dst, fi.ModTime(), fi.ModTime())); err != nil {
		_ = os.Remove(dst)
	}
	return err
}

// leftOut says once that something is missing in the view.
func (b *builder) leftOut(path string, cause error) {
	if b.copiesMissing++; b.copiesMissing == 1 {
		b.note("%s is missing, and perhaps more: %v", path, cause)
	}
}
