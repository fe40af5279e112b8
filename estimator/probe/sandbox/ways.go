package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An overlay copies a directory before it changes something in it, and all directories on the way there. A user can map but his own numbers into his namespace, so the
// kernel refuses to copy what belongs to another user, to another of his groups, or names one in an access list (EOVERFLOW): his own folder below /home/GROUP and
// a project's shared folders could not be written to. Such a directory is therefore made beforehand among the changes, under the user's own name, with the rights that he has
// in it; the kernel merges it with the one below and never copies it. Which directories that is, is looked for from those that the command will need outwards, as
// long as the limits allow.

// Limits on the search and on what is made.
const (
	maxWays        = 1 << 15
	maxWayLooks    = 20_000
	wayTime        = 200 * time.Millisecond
	maxNamedPaths  = 256
	maxNamedText   = 1 << 20
	maxForeignCopy = 64 << 20
)

// ways is the search for the directories to make.
type ways struct {
	mounts map[string]string
	needed []string
	// made are the directories to make beforehand, with all above them.
	made map[string]bool
	seen map[string]bool
}

// findWays lists them, each after the one that holds it.
func (b *builder) findWays() []string {
	if mapsEveryone() {
		return nil
	}
	w := &ways{mounts: b.mounts, needed: b.needed, made: map[string]bool{}, seen: map[string]bool{}}
	for _, path := range slices.Concat(b.needed, []string{"/tmp", "/var/tmp"}, b.named) {
		if dir := existing(path); writable(dir) {
			w.markIfNeeded(dir)
		}
	}
	w.search(slices.Clone(b.needed))
	var around []string
	for _, path := range b.needed {
		for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
			around = append(around, dir)
		}
	}
	w.search(append(around, "/"))
	found := make([]string, 0, len(w.made))
	for dir := range w.made {
		found = append(found, dir)
	}
	slices.Sort(found)
	return found
}

// mapsEveryone says that this namespace has a number for every user: that of a root's sandbox.
func mapsEveryone() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err == nil && len(fields) == 3 && fields[2] == "4294967295"
}

// absolutePath finds paths in text that people wrote.
var absolutePath = regexp.MustCompile(`/[^\s"'` + "`" + `$:;,=(){}<>|&*?\[\]\\]+`)

// namedPaths are the paths that the command, its environment and its script name: where they lie, it will often write.
func namedPaths(cfg *config) []string {
	var named []string
	for _, text := range slices.Concat(cfg.Argv, cfg.Env) {
		named = append(named, absolutePath.FindAllString(text, maxNamedPaths)...)
	}
	for _, f := range cfg.Files {
		if len(f.Data) <= maxNamedText && !bytes.ContainsRune(f.Data, 0) {
			named = append(named, absolutePath.FindAllString(string(f.Data), maxNamedPaths)...)
		}
	}
	slices.Sort(named)
	named = slices.Compact(named)
	return named[:min(len(named), maxNamedPaths)]
}

// existing is the directory to which a path leads, or the last one on the way that is there, without symbolic links; empty where there is none.
func existing(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	for path = filepath.Clean(path); path != "/"; path = filepath.Dir(path) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		if fi, err := os.Stat(real); err == nil && fi.IsDir() {
			return real
		}
	}
	return ""
}

func writable(dir string) bool { return dir != "" && unix.Access(dir, unix.W_OK) == nil }

// markIfNeeded marks a directory that can be written to, where the kernel could not copy it or one above it.
func (w *ways) markIfNeeded(dir string) {
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if fi, err := os.Lstat(d); err == nil && isForeign(d, fi) {
			w.mark(dir)
			return
		}
	}
}

func (w *ways) mark(dir string) {
	for ; dir != "/" && dir != "." && !w.made[dir] && len(w.made) < maxWays; dir = filepath.Dir(dir) {
		w.made[dir] = true
	}
}

// search looks at what lies below the given directories, those nearest to them first. Into directories of the user's own it goes only below what the command needs.
func (w *ways) search(queue []string) {
	until, looks := time.Now().Add(wayTime), 0
	for ; len(queue) > 0; queue = queue[1:] {
		dir := queue[0]
		if w.seen[dir] {
			continue
		}
		w.seen[dir] = true
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			path := filepath.Join(dir, e.Name())
			if kind, mounted := w.mounts[path]; mounted && (kind == "autofs" || slices.Contains(pseudoFileSystems, kind)) {
				continue
			}
			if looks++; looks > maxWayLooks || time.Now().After(until) {
				return
			}
			if w.look(path, e) {
				queue = append(queue, path)
			}
		}
	}
}

// look marks a directory where that is necessary, and says whether to go on below it.
func (w *ways) look(path string, e fs.DirEntry) bool {
	fi, err := e.Info()
	if err != nil {
		return false
	}
	access := unix.Access(path, unix.W_OK)
	if !isForeign(path, fi) {
		if access == nil {
			w.markIfNeeded(path)
		}
		return slices.ContainsFunc(w.needed, func(needed string) bool { return strings.HasPrefix(path, needed+"/") })
	}
	if access == nil {
		w.mark(path)
	}
	return !errors.Is(access, unix.EROFS)
}

// overflowNumber is how the kernel shows a user or a group without a number in this namespace.
const overflowNumber = 65534

// isForeign says that the kernel could not copy a file: its owner, its group or a name in its access list has no number in this namespace.
func isForeign(path string, fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if st.Uid == overflowNumber && os.Getuid() != overflowNumber || st.Gid == overflowNumber && os.Getgid() != overflowNumber {
		return true
	}
	list := make([]byte, 1024)
	for _, name := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
		n, err := unix.Lgetxattr(path, name, list)
		if errors.Is(err, unix.ERANGE) || err == nil && namesStrangers(list[:n]) {
			return true
		}
	}
	return false
}

// namesStrangers reads an access list as the kernel gives it: a word for its version, then for each entry a tag, rights and a number, which is -1 where there is none.
func namesStrangers(list []byte) bool {
	const header, entry, user, group = 4, 8, 2, 8
	for at := header; at+entry <= len(list); at += entry {
		tag, number := binary.LittleEndian.Uint16(list[at:]), binary.LittleEndian.Uint32(list[at+4:])
		if (tag == user || tag == group) && number == ^uint32(0) {
			return true
		}
	}
	return false
}

// makeWays makes the directories below src in the upper directory of its overlay.
func (b *builder) makeWays(src, upper string) {
	var made []string
	for _, dir := range b.ways {
		rest, below := strings.CutPrefix(dir, src+"/")
		if !below {
			continue
		}
		if err := makeWay(dir, filepath.Join(upper, rest)); err != nil {
			b.note("%s cannot be written to: %v", dir, err)
			continue
		}
		made = append(made, dir)
	}
	if slices.Contains(b.ways, src) {
		made = append(made, src)
	}
	// What is near to the command's own directories comes first, while there is room.
	slices.SortStableFunc(made, func(x, y string) int { return b.distance(x) - b.distance(y) })
	until := time.Now().Add(wayTime)
	for _, dir := range made {
		if time.Now().Before(until) {
			b.copyForeignFiles(dir, upper+dir[len(src):])
		}
	}
	slices.Sort(made)
	for _, dir := range slices.Backward(made) { // what is made in a directory changes its time
		if fi, err := os.Stat(dir); err == nil {
			_ = os.Chtimes(upper+dir[len(src):], time.Time{}, fi.ModTime())
		}
	}
}

// makeWay makes one: its owner has the rights that the user has in the directory below.
func makeWay(dir, upper string) error {
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	mode := fi.Mode() & (0o077 | os.ModeSticky | os.ModeSetgid)
	for bit, how := range map[os.FileMode]uint32{0o400: unix.R_OK, 0o200: unix.W_OK, 0o100: unix.X_OK} {
		if unix.Access(dir, how) == nil {
			mode |= bit
		}
	}
	if err := os.Mkdir(upper, 0o700); err != nil {
		return err
	}
	return os.Chmod(upper, mode)
}

// copyForeignFiles fills the upper directory with the small files that the command may change but the overlay could not copy.
func (b *builder) copyForeignFiles(src, upper string) {
	if fi, err := os.Stat(src); err != nil || fi.Mode()&os.ModeSticky != 0 || !writable(src) {
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
		if err != nil || !fi.Mode().IsRegular() || !isForeign(path, fi) || unix.Access(path, unix.W_OK) != nil {
			continue
		}
		if fi.Size() > maxCopyBytes || b.copied+fi.Size() > maxForeignCopy {
			left++
			continue
		}
		target := filepath.Join(upper, e.Name())
		if data, err := os.ReadFile(path); err == nil && os.WriteFile(target, data, 0o600) == nil {
			_ = os.Chmod(target, fi.Mode().Perm())
			_ = os.Chtimes(target, time.Time{}, fi.ModTime())
			b.copied += fi.Size()
		}
	}
	if left > 0 {
		b.note("%s: %d large files of another user or group can be read and removed, not changed", src, left)
	}
}

// checkWays says of the directories that the command needs whether what can be written to outside can be here.
func (b *builder) checkWays(dirs []string) {
	for _, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_ = unix.Close(fd)
		} else if errors.Is(err, unix.EOVERFLOW) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EINVAL) {
			b.note("nothing can be written in %s: %v", dir, err)
		}
	}
}
