package nodecheck

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mount is one line of mountinfo.
type mount struct {
	root, point, kind string
	options           []string
}

const maxMountinfoBytes = 4 << 20

// readMounts lists what is mounted; nothing where it cannot be read, for it only makes messages clearer.
func readMounts() []mount {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	return parseMounts(io.LimitReader(f, maxMountinfoBytes))
}

func parseMounts(r io.Reader) []mount {
	var mounts []mount
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 64<<10)
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		dash := slices.Index(fields, "-")
		if dash < 6 || dash+3 >= len(fields) {
			continue
		}
		options := append(strings.Split(fields[5], ","), strings.Split(fields[dash+3], ",")...)
		mounts = append(mounts, mount{fields[3], fields[4], fields[dash+1], options})
	}
	return mounts
}

// find is the mount at a point, of several the last.
func find(mounts []mount, point string) *mount {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].point == point {
			return &mounts[i]
		}
	}
	return nil
}

// kindOf is the type of the file system on which a path lies.
func kindOf(mounts []mount, path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for ; ; path = filepath.Dir(path) {
		if m := find(mounts, path); m != nil {
			return m.kind
		}
		if path == "/" || path == "." {
			return "unknown file system"
		}
	}
}
