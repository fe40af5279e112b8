// Package inputs owns the list of what a run wanted to know of files: their
// content, whether they are there, and which names a folder has. It is made
// after the run, and tells later whether any of it has changed. It knows files
// and nothing of what they mean.
package inputs

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Schema names the JSON form of List.
const Schema = "gresize.inputs/2"

// Limits of a list. A run that read more has none.
const (
	MaxFiles = 20000
	// MaxPackedBytes is the size of a list, packed.
	MaxPackedBytes   = 1 << 20
	maxUnpackedBytes = 16 << 20
	maxPathBytes     = 4096
	// wholeBytes is the largest file of which the whole content counts; of larger ones it is the size, the time of change and both ends.
	wholeBytes = 64 << 20
	endBytes   = 1 << 20
	// mostNames is how many names a folder may have whose names were read.
	mostNames = 100_000
)

// Seen is what a run wanted to know, as absolute paths.
type Seen struct {
	// Read are files whose content was read; Asked are those of which it was asked whether they are there, or what they are.
	Read, Asked []string
	// Listed are folders whose names were read.
	Listed []string
}

// List is what a run wanted to know, by folder.
type List struct {
	Schema  string   `json:"schema"`
	Folders []Folder `json:"folders"`
}

// Folder is a number of files in one folder and one digest for all of it.
type Folder struct {
	Path string `json:"path"`
	// Names are files whose content counts, Asked those of which only counts what they are.
	Names []string `json:"names,omitempty"`
	Asked []string `json:"asked,omitempty"`
	// Listed says that the names in the folder count, all of them.
	Listed bool   `json:"listed,omitempty"`
	Digest string `json:"digest"`
}

// Files is how many files and folders a list has.
func (l *List) Files() (n int) {
	for _, f := range l.Folders {
		n += len(f.Names) + len(f.Asked)
		if f.Listed {
			n++
		}
	}
	return n
}

// notFiles are folders of the kernel and of the sandbox.
var notFiles = []string{"/proc/", "/sys/", "/dev/", "/.gresize/"}

// compiled is where Python keeps compiled modules, NAME.cpython-311.pyc for NAME.py. It looks at no more than time and size of the source then.
var compiled = regexp.MustCompile(`^(.*/)__pycache__/([^/]+?)\.[a-z]+-[0-9]+(?:\.opt-[0-9])?\.pyc$`)

// Make lists what a run saw, after the run, which began at a time. An error says why there can be no list.
func Make(ctx context.Context, seen Seen, began time.Time) (*List, error) {
	type names struct {
		read, asked map[string]bool
		listed      bool
	}
	byFolder := map[string]*names{}
	count := 0
	in := func(folder string) *names {
		if byFolder[folder] == nil {
			byFolder[folder] = &names{read: map[string]bool{}, asked: map[string]bool{}}
		}
		return byFolder[folder]
	}
	for _, p := range seen.Read {
		if p = source(p); !counts(p) {
			continue
		}
		folder, name := path.Split(p)
		if n := in(folder); !n.read[name] {
			n.read[name] = true
			count++
		}
	}
	for _, p := range seen.Asked {
		if p = source(p); !counts(p) || p == "/" {
			continue
		}
		folder, name := path.Split(p)
		if n := in(folder); !n.read[name] && !n.asked[name] {
			n.asked[name] = true
			count++
		}
	}
	for _, p := range seen.Listed {
		if p = path.Clean(p); !counts(p + "/") {
			continue
		}
		if n := in(strings.TrimSuffix(p, "/") + "/"); !n.listed {
			n.listed = true
			count++
		}
	}
	if count > MaxFiles {
		return nil, fmt.Errorf("more than %d files were read or asked about", MaxFiles)
	}
	list := &List{Schema: Schema}
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		n := byFolder[folder]
		f := Folder{Path: folder, Names: slices.Sorted(maps.Keys(n.read)), Asked: slices.Sorted(maps.Keys(n.asked)), Listed: n.listed}
		var latest time.Time
		var err error
		if f.Digest, latest, err = f.digest(ctx); err != nil {
			return nil, err
		}
		if latest.After(began) {
			return nil, fmt.Errorf("a file in %s was changed during the run", folder)
		}
		list.Folders = append(list.Folders, f)
	}
	return list, nil
}

// source is what a path stands for: of a compiled module, which may not be there yet or be written by the job, it is what that was made from.
func source(p string) string {
	if m := compiled.FindStringSubmatch(p); m != nil {
		p = m[1] + m[2] + ".py"
	}
	return path.Clean(p)
}

// counts says whether a path is one of the site's and not of the kernel's or the sandbox's.
func counts(p string) bool {
	return path.IsAbs(p) && len(p) <= maxPathBytes && !slices.ContainsFunc(notFiles, func(prefix string) bool { return strings.HasPrefix(p, prefix) || p+"/" == prefix })
}

// Changed returns a folder in which a file is no longer what it was; empty: nothing has changed.
func (l *List) Changed(ctx context.Context) (folder string, err error) {
	for _, f := range l.Folders {
		now, _, err := f.digest(ctx)
		if err != nil {
			return "", err
		}
		if now != f.Digest {
			return f.Path, nil
		}
	}
	return "", nil
}

// digest is over what each file is, by name, and the latest change of any.
func (f *Folder) digest(ctx context.Context) (digest string, latest time.Time, err error) {
	sum := sha256.New()
	for _, name := range f.Names {
		if err := ctx.Err(); err != nil {
			return "", latest, err
		}
		fmt.Fprintf(sum, "%d %s\n", len(name), name)
		changed, err := add(sum, f.Path+name)
		if err != nil {
			return "", latest, err
		}
		if changed.After(latest) {
			latest = changed
		}
	}
	for _, name := range f.Asked {
		if err := ctx.Err(); err != nil {
			return "", latest, err
		}
		fmt.Fprintf(sum, "asked %d %s\n", len(name), name)
		if changed := ask(sum, f.Path+name); changed.After(latest) {
			latest = changed
		}
	}
	if f.Listed {
		changed, err := names(sum, f.Path)
		if err != nil {
			return "", latest, err
		}
		if changed.After(latest) {
			latest = changed
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), latest, nil
}

// add adds what a path is now: the content of a regular file, or that there is none, or what it is instead. It waits for nobody.
func add(sum io.Writer, name string) (changed time.Time, err error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		fmt.Fprintf(sum, "none: %v\n", err)
		return time.Time{}, nil
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return time.Time{}, fmt.Errorf("inputs: %w", err)
	}
	if !info.Mode().IsRegular() {
		fmt.Fprintf(sum, "no file %s\n", info.Mode().Type())
		return time.Time{}, nil
	}
	fmt.Fprintf(sum, "file %d\n", info.Size())
	if info.Size() <= wholeBytes {
		_, err = io.Copy(sum, io.LimitReader(file, wholeBytes+1))
	} else {
		err = errors.Join(binary.Write(sum, binary.BigEndian, info.ModTime().UnixNano()), copyPart(sum, file, 0), copyPart(sum, file, info.Size()-endBytes))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("inputs: %w", err)
	}
	// Copying tools set the time of the last change of the content back; that of the inode they cannot.
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix()), nil
	}
	return info.ModTime(), nil
}

// ask adds what a question about a path would bring to light: that there is none, what it is, of a file its size and the time of its change, and where a link leads.
// The time of a folder is that of its names, which count where they were read.
func ask(sum io.Writer, name string) (changed time.Time) {
	if target, err := os.Readlink(name); err == nil {
		fmt.Fprintf(sum, "link %d %s\n", len(target), target)
	}
	info, err := os.Stat(name)
	if err != nil {
		fmt.Fprintf(sum, "none: %v\n", errors.Unwrap(err))
		return time.Time{}
	}
	fmt.Fprintf(sum, "is %s %o\n", info.Mode().Type(), info.Mode().Perm())
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || !ok {
		return time.Time{}
	}
	fmt.Fprintf(sum, "%d bytes of %d\n", info.Size(), info.ModTime().UnixNano())
	return time.Unix(st.Ctim.Unix())
}

// names adds the names that a folder has, and what each of them is.
func names(sum io.Writer, folder string) (changed time.Time, err error) {
	dir, err := os.Open(folder)
	if err != nil {
		fmt.Fprintf(sum, "no folder: %v\n", errors.Unwrap(err))
		return time.Time{}, nil
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return time.Time{}, fmt.Errorf("inputs: %w", err)
	}
	if !info.IsDir() {
		fmt.Fprintf(sum, "no folder but %s\n", info.Mode().Type())
		return time.Time{}, nil
	}
	entries, err := dir.ReadDir(mostNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return time.Time{}, fmt.Errorf("inputs: %w", err)
	}
	if len(entries) > mostNames {
		return time.Time{}, fmt.Errorf("inputs: %s has more than %d names", folder, mostNames)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		fmt.Fprintf(sum, "name %d %s %s\n", len(e.Name()), e.Name(), e.Type())
	}
	return info.ModTime(), nil
}

func copyPart(to io.Writer, file *os.File, at int64) error {
	_, err := io.Copy(to, io.NewSectionReader(file, at, endBytes))
	return err
}

// Pack makes the form in which a list travels.
func (l *List) Pack() ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(z).Encode(l), z.Close()); err != nil {
		return nil, fmt.Errorf("pack inputs: %w", err)
	}
	if packed.Len() > MaxPackedBytes {
		return nil, fmt.Errorf("pack inputs: %d bytes, at most %d", packed.Len(), MaxPackedBytes)
	}
	return packed.Bytes(), nil
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Unpack reads a list as a stranger's work.
func Unpack(packed []byte) (*List, error) {
	if len(packed) > MaxPackedBytes {
		return nil, fmt.Errorf("inputs: %d bytes, at most %d", len(packed), MaxPackedBytes)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxUnpackedBytes+1))
	if err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	if len(text) > maxUnpackedBytes {
		return nil, fmt.Errorf("inputs: more than %d bytes", maxUnpackedBytes)
	}
	l := new(List)
	if err := json.Unmarshal(text, l); err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	if l.Schema != Schema {
		return nil, fmt.Errorf("inputs: schema: %q, want %q", l.Schema, Schema)
	}
	if n := l.Files(); n == 0 || n > MaxFiles || len(l.Folders) > MaxFiles {
		return nil, fmt.Errorf("inputs: %d files, want 1 to %d", n, MaxFiles)
	}
	for i, f := range l.Folders {
		if !filepath.IsAbs(f.Path) || !strings.HasSuffix(f.Path, "/") || len(f.Path) > maxPathBytes || strings.ContainsRune(f.Path, 0) || !digestForm.MatchString(f.Digest) {
			return nil, fmt.Errorf("inputs: folders[%d]: no folder with a digest", i)
		}
		for _, name := range slices.Concat(f.Names, f.Asked) {
			if name == "" || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
				return nil, fmt.Errorf("inputs: folders[%d]: %.40q is no name", i, name)
			}
		}
	}
	return l, nil
}
