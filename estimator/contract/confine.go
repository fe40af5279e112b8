package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/gresize/gresize/estimator/probe/seccomp"
	"golang.org/x/sys/unix"
)

// A plugin is begun by a second process of the host's own program, which gives up its rights and becomes the plugin: from the thread that starts it nothing could be
// taken without the plugin being of one kind with that thread.

// starterVariable makes a program the starter of a plugin: the rules are its value.
const starterVariable = "GRESIZE_PLUGIN_STARTER"

// wordsFile is the descriptor on which the starter says what it could not do. It is closed when the plugin's program begins.
const wordsFile = 3

// rules are what the starter of a plugin is told.
type rules struct {
	Reads []string // files, and folders with all in them
	Owns  string   // the plugin's folder
}

// words are what it says.
type words struct {
	Missing []string // what the kernel could not take
	Fault   string   // why the program did not begin
}

// Starter says whether this process was started to begin a plugin.
func Starter() bool { return os.Getenv(starterVariable) != "" }

// StartPlugin gives up the rights that a plugin has no need of and becomes the plugin. It returns the exit status where it cannot.
func StartPlugin() int {
	runtime.LockOSThread() // the thread that becomes the plugin is the one that gives up its rights
	unix.CloseOnExec(wordsFile)
	var said words
	var r rules
	err := json.Unmarshal([]byte(os.Getenv(starterVariable)), &r)
	if err == nil && len(os.Args) < 2 {
		err = errors.New("no program is named")
	}
	if err == nil {
		said.Missing = confine(r)
		environment := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, starterVariable+"=") })
		text, _ := json.Marshal(said) // strings alone
		_, _ = unix.Write(wordsFile, append(text, '\n'))
		err = unix.Exec(os.Args[1], os.Args[1:], environment)
	}
	said.Fault = err.Error()
	text, _ := json.Marshal(said) // strings alone
	_, _ = unix.Write(wordsFile, append(text, '\n'))
	return 1
}

// heard reads what the starter said, to its end.
func heard(f *os.File, path string) (missing []string, err error) {
	for d := json.NewDecoder(f); ; {
		var said words
		switch err := d.Decode(&said); {
		case errors.Is(err, io.EOF):
			return missing, nil
		case err != nil:
			return missing, fmt.Errorf("its starter: %w", err)
		case said.Fault == unix.EACCES.Error():
			return missing, fmt.Errorf("%s: %s: where its interpreter lies elsewhere, reads has to name that folder (docs/plugins.md)", path, said.Fault)
		case said.Fault != "":
			return missing, fmt.Errorf("%s: %s", path, said.Fault)
		}
		missing = said.Missing
	}
}

// readable is what any program needs of a machine, and what every user of it may read.
var readable = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/proc", "/sys"}

// devices may be written, too.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// hidden are folders in readable ones where keys lie that the user of gresized may read and others may not.
var hidden = []string{"/etc/gresize", "/etc/slurm", "/etc/slurm-llnl", "/etc/munge", "/opt/slurm/etc", "/usr/local/etc", "/usr/local/slurm/etc"}

// reading is what a plugin may read: what any program needs, its own program with what lies beside it, files that are named in its arguments, and what its command says besides.
func reading(command Command) []string {
	hides := append(slices.Clone(hidden), command.Hides...)
	if conf := os.Getenv("SLURM_CONF"); conf != "" {
		hides = append(hides, filepath.Dir(conf))
	}
	for _, path := range slices.Clone(hides) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			hides = append(hides, real)
		}
	}
	program := command.Path
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	own := filepath.Dir(program)
	if above := filepath.Dir(own); filepath.Base(own) == "bin" && above != "/" {
		own = above // an environment of Python, or an installation with its libraries
	}
	paths := []string{program}
	for _, folder := range slices.Concat(readable, []string{own}, command.Reads) {
		paths = append(paths, without(folder, hides)...)
	}
	for _, argument := range command.Args {
		if info, err := os.Stat(argument); err == nil && filepath.IsAbs(argument) && info.Mode().IsRegular() {
			paths = append(paths, argument)
		}
	}
	return paths
}

// without is a folder in pieces, of which none holds a hidden one.
func without(folder string, hides []string) []string {
	if slices.Contains(hides, folder) {
		return nil
	}
	if !slices.ContainsFunc(hides, func(path string) bool { return strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/") }) {
		return []string{folder}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var pieces []string
	for _, e := range entries {
		if e.Type() != os.ModeSymlink { // what a link leads to has a path of its own
			pieces = append(pieces, without(filepath.Join(folder, e.Name()), hides)...)
		}
	}
	return pieces
}

// Rights in Landlock's words: of its first version, and those that later ones added.
const (
	firstRights = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	fileRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// confine takes rights from this thread and what it becomes, for ever: it may read what belongs to the machine and is no secret, write its own folder alone, connect to
// nobody and touch no process but its own. Its user number stays that of the host, and is worth little now. What the kernel cannot take is named and left.
func confine(r rules) (missing []string) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return []string{"no_new_privs: " + err.Error()}
	}
	if err := dropCapabilities(); err != nil {
		missing = append(missing, "capabilities: "+err.Error())
	}
	if err := restrictFiles(r); err != nil {
		missing = append(missing, "Landlock: "+err.Error())
	}
	if architecture, known := seccomp.Native(); !known {
		missing = append(missing, "seccomp: not on "+runtime.GOARCH)
	} else if err := seccomp.InstallHere(denials(architecture)); err != nil {
		missing = append(missing, "seccomp: "+err.Error())
	}
	return missing
}

// dropCapabilities takes those that there are. Without new privileges they do not come back with a program, to root neither. gresized's unit has none, and forbids the call.
func dropCapabilities() error {
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var now, none [2]unix.CapUserData
	if err := unix.Capget(header, &now[0]); err == nil && now == none {
		return nil
	}
	return unix.Capset(header, &none[0])
}

// restrictFiles puts the thread into a domain of Landlock. It shuts it off from other processes, too: from their memory and environment, and, since Linux 6.12, from signals to them.
func restrictFiles(r rules) error {
	version := landlockVersion()
	if version == 0 {
		return unix.ENOSYS
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: firstRights}
	if version >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if version >= 5 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	domain, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	defer unix.Close(int(domain))
	for _, path := range r.Reads {
		_ = allowBelow(int(domain), path, readRights&attr.Handled_access_fs) // what is not there is not missed
	}
	for _, path := range devices {
		_ = allowBelow(int(domain), path, fileRights&attr.Handled_access_fs&^unix.LANDLOCK_ACCESS_FS_EXECUTE)
	}
	if err := allowBelow(int(domain), r.Owns, attr.Handled_access_fs); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, domain, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// landlockVersion is 0 where the kernel has none.
func landlockVersion() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// allowBelow adds a rule for a file, or for a folder and all in it.
func allowBelow(domain int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(domain), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// denied are calls that reach other processes, or parts of the kernel that no estimator has a use for.
var denied = []uint32{
	unix.SYS_CONNECT, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMCTL, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// otherCalls are the numbers of another calling convention of the same machine.
const otherCalls = 0x4000_0000

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// denials is the filter. All calls that it does not name are as before, since a plugin may be written in any language.
func denials(architecture uint32) []unix.SockFilter {
	program := append(seccomp.Begin(architecture, unix.EPERM), seccomp.Unless(unix.BPF_JGE, otherCalls, 1), seccomp.Answer(unix.ENOSYS))
	for _, number := range denied {
		program = append(program, seccomp.Unless(unix.BPF_JEQ, number, 1), seccomp.Answer(unix.EPERM))
	}
	return append(program,
		// Sockets of files alone: it listens at one.
		seccomp.Unless(unix.BPF_JEQ, unix.SYS_SOCKET, 4), seccomp.Load(seccomp.FirstArg), seccomp.Unless(unix.BPF_JEQ, unix.AF_UNIX, 1), seccomp.Allow(), seccomp.Answer(unix.EAFNOSUPPORT),
		// The limits of others: its own it may lower.
		seccomp.Unless(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 4), seccomp.Load(seccomp.FirstArg), seccomp.Unless(unix.BPF_JEQ, 0, 1), seccomp.Allow(), seccomp.Answer(unix.EPERM),
		// No new namespaces. The flags of clone3 cannot be looked at; every C library goes on with clone.
		seccomp.Unless(unix.BPF_JEQ, unix.SYS_CLONE, 4), seccomp.Load(seccomp.FirstArg), seccomp.Unless(unix.BPF_JSET, namespaces, 1), seccomp.Answer(unix.EPERM), seccomp.Allow(),
		seccomp.Unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1), seccomp.Answer(unix.ENOSYS),
		seccomp.Allow())
}
