package probe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/estimator/probe/sandbox"
	"github.com/gresize/gresize/estimator/trace"
)

// Limits on what is taken over from a report directory, which a user's processes wrote.
const (
	maxReportFiles      = 4096
	maxReportFileBytes  = 64 << 20
	maxReportTotalBytes = 256 << 20
)

var reportName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}\.(json|jsonl|bin|json\.gz)$`)

// collect copies the regular files with known names from one directory to
// another, a new one. Links and pipes are passed over, so that nothing outside
// the directory can be reached through it and nothing can make the reader wait.
func collect(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return fmt.Errorf("probe: collect reports: %w", err)
	}
	dir, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("probe: collect reports: %w", err)
	}
	defer dir.Close()
	left := int64(maxReportTotalBytes)
	for files := 0; files < maxReportFiles; {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			if files++; files > maxReportFiles || !reportName.MatchString(name) {
				continue
			}
			n, err := copyRegular(int(dir.Fd()), name, filepath.Join(to, name), min(left, maxReportFileBytes))
			if err != nil {
				return fmt.Errorf("probe: collect report %s: %w", name, err)
			}
			left -= n
		}
		if errors.Is(err, io.EOF) || len(names) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("probe: collect reports: %w", err)
		}
	}
	return nil
}

// compiledName is a program that XLA has compiled, see estimator/vgpu/native/pjrt_compiled.c.
var compiledName = regexp.MustCompile(`^compiled-[0-9a-f]{16}\.bin$`)

// compiled are the programs that XLA compiled in a run whose reports were collected, for the next run of the same command.
func compiled(reports string) []sandbox.File {
	entries, err := os.ReadDir(reports)
	if err != nil {
		return nil
	}
	var files []sandbox.File
	for _, e := range entries {
		if !compiledName.MatchString(e.Name()) {
			continue
		}
		if data, err := trace.ReadRegular(filepath.Join(reports, e.Name()), maxReportFileBytes); err == nil && len(data) > 0 {
			files = append(files, sandbox.File{Name: e.Name(), Data: data, Mode: 0o444})
		}
	}
	return files
}

// full says whether a directory has no room for another report.
func full(dir string) bool {
	const least = 64 << 10
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bsize > 0 && int64(st.Bavail) < least/st.Bsize
}

// copyRegular copies one file unless it is no regular file or too large.
func copyRegular(dir int, name, to string, limit int64) (int64, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, nil // a link, or gone, or not readable: not ours
	}
	in := os.NewFile(uintptr(fd), name)
	defer in.Close()
	fi, err := in.Stat()
	if err != nil || !fi.Mode().IsRegular() || fi.Size() > limit {
		return 0, nil
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, io.LimitReader(in, limit))
	return n, errors.Join(err, out.Close())
}
