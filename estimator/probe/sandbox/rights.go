package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where users may make no user namespace, the program gresize-sandbox makes the others for them, with rights that an administrator gave to its file, and lends them to the
// stage that builds the view. They are the machine's own rights there, and the stage reads what a user says. So it has none of them in force but during the calls that
// need them: every file is looked up, read and made with the rights of the user alone.

// lent says that the rights of this process are the machine's.
var lent bool

// Rights that calls need.
var (
	forMounts   = []int{unix.CAP_SYS_ADMIN}
	forNetwork  = []int{unix.CAP_NET_ADMIN}
	forOwners   = []int{unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_FSETID}
	forBounds   = []int{unix.CAP_SETPCAP}
	forOverlays = []int{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN, unix.CAP_FSETID, unix.CAP_MKNOD}
)

// LentRights are what the file gresize-sandbox must have: forOverlays are kept by overlays for what is theirs alone, since their working directory has no
// permission bits, copies keep their owner, and before Linux 5.8 what marks a removed file is a device.
func LentRights() []uintptr {
	return []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN, unix.CAP_FSETID, unix.CAP_MKNOD}
}

// checkRights finds out whose the rights of this process are, and puts those that are lent out of force.
func checkRights() error {
	if lent = os.Getuid() != 0 && mapsEveryone(); !lent {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	return inForce(nil)
}

// inForce has these of the permitted rights in force on this thread, and no other.
func inForce(rights []int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective, data[1].Effective = 0, 0
	for _, right := range rights {
		data[right/32].Effective |= 1 << (right % 32)
	}
	return unix.Capset(&header, &data[0])
}

// using does something with rights in force.
func using(rights []int, do func() error) error {
	if !lent {
		return do()
	}
	if err := inForce(rights); err != nil {
		return err
	}
	err := do()
	return errors.Join(err, inForce(nil))
}

func mount(source, target, kind string, flags uintptr, options string) error {
	return using(forMounts, func() error { return unix.Mount(source, target, kind, flags, options) })
}

func unmount(target string) error {
	return using(forMounts, func() error { return unix.Unmount(target, unix.MNT_DETACH) })
}

// mountOverlay mounts one over src. With lent rights the way to src is gone with the user's own, and it must be the place that was looked at: what lies below other mounts
// was hidden from him.
func mountOverlay(src, dst, options string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if !lent {
		return unix.Mount("overlay", dst, "overlay", flags, "lowerdir="+escapeOption(src)+options)
	}
	fd, err := unix.Open(src, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	name := "/proc/self/fd/" + strconv.Itoa(fd)
	if at, err := os.Readlink(name); err != nil || filepath.IsAbs(src) && at != src {
		return errors.Join(err, syscall.ESTALE)
	}
	return using(forOverlays, func() error { return unix.Mount("overlay", dst, "overlay", flags, "lowerdir="+name+options) })
}

// knownPermissions are file systems on which whoever may do something is told by modes, owners and POSIX lists, or by a server. An overlay with lent rights asks about
// nothing else, so over others there is none.
var knownPermissions = []int64{
	unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC,
	unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1, unix.ISOFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC,
	0x0bd00bd0, 0x19830326, 0x2fc12fc1, // Lustre, BeeGFS, ZFS
}

// posixList is the attribute with a POSIX list.
const posixList = "system.posix_acl_access"

// likeBelow gives the upper directory of an overlay, whose owner, mode and list are those of the overlay's own top, what the directory below it has: with lent rights
// nothing else keeps the user out.
func likeBelow(src, upper string) error {
	var below unix.Stat_t
	var about unix.Statfs_t
	if err := errors.Join(unix.Lstat(src, &below), unix.Statfs(src, &about)); err != nil {
		return err
	}
	if !slices.Contains(knownPermissions, int64(about.Type)) {
		return syscall.EOPNOTSUPP
	}
	list := make([]byte, 64<<10)
	n, err := unix.Getxattr(src, posixList, list)
	if err == nil {
		err = unix.Setxattr(upper, posixList, list[:n], 0)
	} else if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		err = unix.Chmod(upper, below.Mode&0o7777)
	}
	if err != nil {
		return err
	}
	return using(forOwners, func() error {
		return errors.Join(unix.Lchown(upper, int(below.Uid), int(below.Gid)), unix.Chmod(upper, below.Mode&0o7777))
	})
}

// enterView makes the private file system the working directory. The folder that it is mounted on is the user's, who could put another one in its place meanwhile;
// below it he can change nothing any more.
func enterView() error {
	var below, inside unix.Stat_t
	if err := unix.Stat(".", &below); err != nil {
		return err
	}
	fd, err := unix.Open(viewDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var about unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &inside), unix.Fstatfs(fd, &about)); err != nil {
		return err
	}
	if about.Type != unix.TMPFS_MAGIC || inside.Dev == below.Dev {
		return syscall.ESTALE
	}
	return unix.Fchdir(fd)
}

// tasksElsewhere counts the tasks of this user, whom a limit on tasks counts wherever they run, unless he is alone in a user namespace.
func tasksElsewhere() int64 {
	if !lent {
		return 0
	}
	var sum int64
	found, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		return 0
	}
	for _, dir := range found {
		var st unix.Stat_t
		status, err := os.ReadFile(dir + "/status")
		if err == nil && unix.Stat(dir, &st) == nil && strings.Contains(string(status), "\nUid:\t"+strconv.Itoa(os.Getuid())+"\t") {
			sum++
		}
	}
	return sum
}
