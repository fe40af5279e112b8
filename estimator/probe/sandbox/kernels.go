package sandbox

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What kernels before 5.12 lack, and what is done there instead: close_range with its flag (5.11), mount_setattr (5.12). A site's filter of system calls may answer
// EPERM in their place. Overlays of users (5.11) are in copies.go.

// missing says that the kernel, or a filter before it, has not the call or the flag that was wanted of it.
func missing(err error) bool {
	return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM)
}

// closeFrom has all descriptors from the first on closed at the next exec.
func closeFrom(first int) error {
	err := unix.CloseRange(uint(first), ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if !missing(err) {
		return err
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < first {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil && !errors.Is(err, unix.EBADF) {
			return err
		}
	}
	return nil
}

// lacking lists what this kernel lacks.
func lacking(b *builder) []string {
	var lacks []string
	if missing(unix.CloseRange(^uint(0), ^uint(0), unix.CLOSE_RANGE_CLOEXEC)) {
		lacks = append(lacks, "close_range")
	}
	if missing(using(forMounts, func() error { return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{}) })) {
		lacks = append(lacks, "mount_setattr")
	}
	if b.copies {
		lacks = append(lacks, "overlays of users")
	}
	return lacks
}

func bindReadOnly(src, dst string) error {
	if err := mount(src, dst, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	err := using(forMounts, func() error { return unix.MountSetattr(unix.AT_FDCWD, dst, unix.AT_RECURSIVE, &attr) })
	if missing(err) {
		err = closeEach(dst)
	}
	if err != nil {
		_ = unmount(dst) // rather nothing than something that can be written to
	}
	return err
}

// closeEach makes read-only, one by one, what is mounted at a place and below it. What the user cannot get to stays as it is: nor can the command.
func closeEach(place string) error {
	fd, err := unix.Open(place, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := closeOne(place); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer f.Close()
	mounts, err := parseMountinfo(io.LimitReader(f, maxMountinfoLen))
	if err != nil {
		return err
	}
	for point := range mounts {
		if strings.HasPrefix(point, at+"/") {
			if err := closeOne(point); err != nil && !errors.Is(err, unix.EACCES) {
				return err
			}
		}
	}
	return nil
}

// closeOne makes one mount read-only. What the user himself may not take away must be asked for again; the ways of keeping times are kept by themselves.
func closeOne(point string) error {
	var about unix.Statfs_t
	if err := unix.Statfs(point, &about); err != nil {
		return err
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	if about.Flags&unix.ST_NOEXEC != 0 {
		flags |= unix.MS_NOEXEC
	}
	return mount("", point, "", flags, "")
}
