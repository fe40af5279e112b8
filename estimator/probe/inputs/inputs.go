// Package inputs owns the list of the files that a run read: it is made after
// the run, and tells later whether any of them has changed. It knows files and
// nothing of what they mean.
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
const Schema = "gresize.inputs/1"

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
)

// List is what a run read, by folder.
type List struct {
	Schema  string   `json:"schema"`
	Folders []Folder `json:"folders"`
}

// Folder is a number of files in one folder and one digest for all of them.
type Folder struct {
	Path   string   `json:"path"`
	Names  []string `json:"names"`
	Digest string   `json:"digest"`
}

// Files is how many files a list has.
func (l *List) Files() (n int) {
	for _, f := range l.Folders {
		n += len(f.Names)
	}
	return n
}

// notFiles are folders of the kernel and of the sandbox.
var notFiles = []string{"/proc/", "/sys/", "/dev/", "/.gresize/"}

// compiled is where Python keeps compiled modules, NAME.cpython-311.pyc for NAME.py. It looks at no more than time and size of the source then.
var compiled = regexp.MustCompile(`^(.*/)__pycache__/([^/]+?)\.[a-z]+-[0-9]+(?:\.opt-[0-9])?\.pyc$`)

// Make lists the paths that a run read, after the run, which began at a time. An error says why there can be no list.
func Make(ctx context.Context, paths []string, began time.Time) (*List, error) {
	byFolder := map[string]map[string]bool{}
	count := 0
	for _, p := range paths {
		if m := compiled.FindStringSubmatch(p); m != nil {
			// The compiled form may not be there yet, or be written by the job; what it was made from decides.
			p = m[1] + m[2] + ".py"
		}
		p = path.Clean(p)
		if !path.IsAbs(p) || len(p) > maxPathBytes || slices.ContainsFunc(notFiles, func(prefix string) bool { return strings.HasPrefix(p, prefix) }) {
			continue
		}
		folder, name := path.Split(p)
		if byFolder[folder] == nil {
			byFolder[folder] = map[string]bool{}
		}
		if !byFolder[folder][name] {
			byFolder[folder][name] = true
			count++
		}
		if count > MaxFiles {
			return nil, fmt.Errorf("more than %d files were read", MaxFiles)
		}
	}
	list := &List{Schema: Schema}
	for _, folder := range slices.Sorted(maps.Keys(byFolder)) {
		f := Folder{Path: folder, Names: slices.Sorted(maps.Keys(byFolder[folder]))}
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
		for _, name := range f.Names {
			if name == "" || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
				return nil, fmt.Errorf("inputs: folders[%d]: %.40q is no name", i, name)
			}
		}
	}
	return l, nil
}
