package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/internal/account"
)

// Names under which the executable is started again.
const (
	argSetup = "gresize-sandbox-setup"
	argInit  = "gresize-sandbox-init"
)

const (
	configFD        = 3
	controlFD       = 4
	exitSetupFailed = 125
	leastPIDs       = 1024 // the kernel keeps the first 300 and wants some for each processor
)

// Main takes over when this process is a stage of a sandbox or one of its
// shims, and returns otherwise. Call it before anything else in main.
func Main() {
	switch os.Args[0] {
	case argSetup:
		runtime.LockOSThread()
		os.Exit(setUp())
	case argInit:
		os.Exit(initMain())
	}
	if name, ok := shimName(); ok {
		os.Exit(runShim(name, os.Args[1:]))
	}
}

// stepError names the step of the set-up that failed.
type stepError struct {
	op  string
	err error
}

func (e *stepError) Error() string { return e.op + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func step(op string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{op, err}
}

// setUp is the first inner stage: alone in its namespaces, with the rights to
// mount in them. It builds the view, gives up every right and becomes init.
func setUp() int {
	if err := closeFrom(controlFD + 1); err != nil {
		return report(step("close descriptors", err))
	}
	if err := checkRights(); err != nil {
		return report(step("read its own rights", err))
	}
	cfg, err := readConfig()
	if err != nil {
		return report(step("read the configuration", err))
	}
	cfg.Policy.bound()
	elsewhere := tasksElsewhere()
	_ = using(forMounts, func() error { boundPIDs(tasksPerProcess*cfg.Policy.Processes + ownThreads); return nil })
	b := &builder{base: cfg.Base, policy: cfg.Policy}
	reports, err := b.build(cfg)
	if err != nil {
		return report(err)
	}
	if b.uncovered > 1 {
		b.note("%d more places are empty: %v", b.uncovered-1, errOverlays)
	}
	if err := send(message{Kind: "ready", Notes: b.notes, Disk: b.disk, Lacks: lacking(b)}, reports); err != nil {
		return exitSetupFailed
	}
	if err := reports.Close(); err != nil {
		return report(step("close the report directory", err))
	}
	if err := using(forBounds, dropRights); err != nil {
		return report(step("give up capabilities", err))
	}
	_, _ = unix.KeyctlJoinSessionKeyring("") // the caller's own may hold keys; a kernel without keys has none to hide
	if err := filterCalls(lent); err != nil {
		return report(step("filter system calls", err))
	}
	for _, fd := range []int{configFD, controlFD} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return report(step("keep descriptors", err))
		}
	}
	// Without a listener the run is as good, and only its files are not known.
	if listener, err := watchCalls(cfg.Policy.RecordOpens); err == nil {
		if send(message{Kind: "opens"}, listener) != nil || listener.Close() != nil {
			return exitSetupFailed
		}
	}
	return report(step("become init", syscall.Exec(exePath, []string{argInit, strconv.FormatInt(elsewhere, 10)}, []string{})))
}

// boundPIDs bounds the numbers of processes and threads in this process namespace, for root too, whom no limit on tasks holds. Before Linux 6.14 the setting is the
// whole machine's, and is left alone.
func boundPIDs(most int64) {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); n != 2 || major < 6 || major == 6 && minor < 14 {
		return
	}
	_ = os.WriteFile("/proc/sys/kernel/pid_max", strconv.AppendInt(nil, max(most, leastPIDs), 10), 0)
}

// boundNamespace bounds what the kernel counts for a user wherever he is, for this user namespace and all below it.
func boundNamespace(settings string) error {
	// The rest of what the kernel gives a user is left to his other programs on this machine.
	_ = os.WriteFile(settings+"/max_inotify_instances", []byte("64"), 0)
	// The owner of a group of processes could kill and freeze all of it through a file system of groups, and who has a namespace of groups can mount one.
	return os.WriteFile(settings+"/max_cgroup_namespaces", []byte("0"), 0)
}

func readConfig() (*config, error) {
	var st unix.Stat_t
	if err := unix.Fstat(configFD, &st); err != nil {
		return nil, err
	}
	if st.Size > maxConfigBytes {
		return nil, errors.New("configuration is too large")
	}
	data := make([]byte, st.Size)
	if _, err := io.ReadFull(io.NewSectionReader(preader(configFD), 0, st.Size), data); err != nil {
		return nil, err
	}
	return decodeConfig(data)
}

// preader reads a descriptor by position, so that two stages can read it.
type preader int

func (fd preader) ReadAt(p []byte, off int64) (int, error) { return unix.Pread(int(fd), p, off) }

func send(m message, file *os.File) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxMessageBytes {
		m.Notes = []string{fmt.Sprintf("%d notes left out", len(m.Notes))}
		if data, err = json.Marshal(m); err != nil {
			return err
		}
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	return unix.Sendmsg(controlFD, data, rights, nil, unix.MSG_NOSIGNAL)
}

func report(err error) int {
	m := message{Kind: "failed", Op: "set up", Text: err.Error()}
	var s *stepError
	if errors.As(err, &s) {
		m.Op = s.op
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		m.Errno = int(errno)
	}
	_ = send(m, nil)
	return exitSetupFailed
}

// dropRights leaves this thread, and so what it executes, without any
// capability in its own namespace and without a way to gain one.
func dropRights() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	for c := uintptr(0); c <= 63; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			if errors.Is(err, unix.EINVAL) {
				break // one above the last capability of this kernel
			}
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return unix.Capset(&header, &none[0])
}

// passwdLine is the caller's own entry, for machines where names come from a
// service that cannot be reached from inside.
func passwdLine() string {
	u, err := account.ByID(uint32(os.Geteuid()))
	if err != nil {
		// Nobody knows the name here; what the session says of itself does no harm.
		u = account.User{Name: os.Getenv("USER"), Home: os.Getenv("HOME"), UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}
	if u.Name == "" || strings.ContainsAny(u.Name+u.Home, ":\n") {
		return ""
	}
	return fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", u.Name, u.UID, u.GID, u.Home)
}

// provide changes a file of the system's: change gets what is in it. The file belongs to root, so that another takes its place.
func provide(root, path string, change func([]byte) []byte) error {
	at := filepath.Join(root, path)
	before, err := os.ReadFile(at)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	after := change(before)
	if bytes.Equal(after, before) {
		return nil
	}
	beside := at + ".gresize"
	// #nosec G306 -- everybody reads these
	if err = os.WriteFile(beside, after, 0o644); err == nil {
		if err = os.Rename(beside, at); err == nil {
			return nil
		}
		_ = os.Remove(beside)
	}
	// A place that is read-only has it from another.
	other := filepath.Join(root, InsideDir, filepath.Base(path))
	// #nosec G306 -- everybody reads these
	if err := os.WriteFile(other, after, 0o644); err != nil {
		return err
	}
	return bindReadOnly(other, at)
}

// withPasswd adds the line when there is no entry for this number.
func withPasswd(text []byte, line string) []byte {
	if line == "" || bytes.Contains(text, []byte(":x:"+strconv.Itoa(os.Geteuid())+":")) {
		return text
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return append(text, line...)
}
