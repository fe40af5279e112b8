package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// HelperName is the program that makes namespaces for those who may make no user namespace. It lies beside gresize-probe, and an administrator gives it its rights, or none.
const HelperName = "gresize-sandbox"

const opLend = "make namespaces by " + HelperName

// namespaces are those of a sandbox, beside the user's own.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS

// helper finds it, where it has rights to lend; otherwise it is empty.
func helper() string {
	places := []string{"/usr/libexec/gresize"}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		places = append([]string{filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "../libexec"), filepath.Join(filepath.Dir(exe), "../libexec/gresize")}, places...)
	}
	for _, dir := range places {
		path := filepath.Join(dir, HelperName)
		if _, err := unix.Getxattr(path, "security.capability", nil); err == nil {
			return path
		}
	}
	return ""
}

// Lend is all of gresize-sandbox: it makes the namespaces, starts the stage in them that builds the view, and lends it the rights for that. Whoever calls it chooses its
// environment, its arguments and its descriptors; none of them is looked at. What becomes of the stage is between it and the caller.
func Lend(stage string) int {
	runtime.LockOSThread() // rights and the signal at the parent's death are this thread's
	os.Clearenv()
	cmd, err := lend(stage)
	if err != nil {
		return report(step(opLend, err))
	}
	err = cmd.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) && status.Exited() {
		return status.ExitCode()
	}
	if err != nil {
		return exitSetupFailed
	}
	return 0
}

func lend(stage string) (*exec.Cmd, error) {
	if os.Getuid() == 0 || os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return nil, errors.New("it serves ordinary users only")
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return nil, err
	}
	if err := trusted(stage); err != nil {
		return nil, err
	}
	rights := LentRights()
	if !slices.Contains(rights, unix.CAP_SYS_ADMIN) || !hasRights(rights) {
		return nil, fmt.Errorf("the file has not its rights, or was started without them (a nosuid mount, no_new_privs): %w", syscall.EPERM)
	}
	cmd := &exec.Cmd{
		Path: stage, Args: []string{argSetup}, Env: []string{}, Dir: "/", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		ExtraFiles:  []*os.File{os.NewFile(configFD, "configuration"), os.NewFile(controlFD, "control")},
		SysProcAttr: &syscall.SysProcAttr{Cloneflags: namespaces, AmbientCaps: rights, Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for _, f := range cmd.ExtraFiles {
		_ = f.Close() // whoever waits for the stage's end waits for that of its descriptors
	}
	return cmd, dropRights()
}

// hasRights says that this thread may use them.
func hasRights(rights []uintptr) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	for _, right := range rights {
		if data[right/32].Effective&(1<<(right%32)) == 0 {
			return false
		}
	}
	return true
}

// trusted refuses a program that somebody other than root could change, in itself or in a folder above it.
func trusted(program string) error {
	if !filepath.IsAbs(program) || filepath.Clean(program) != program {
		return fmt.Errorf("%s is no clean path", program)
	}
	for path := program; ; path = filepath.Dir(path) {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		kind, sticky := st.Mode&unix.S_IFMT, st.Mode&unix.S_ISVTX != 0
		switch {
		case st.Uid != 0:
			return fmt.Errorf("%s does not belong to root", path)
		case path == program && kind != unix.S_IFREG, path != program && kind != unix.S_IFDIR:
			return fmt.Errorf("%s is a link or no program", path)
		case st.Mode&0o022 != 0 && (path == program || !sticky):
			return fmt.Errorf("%s can be changed by others", path)
		}
		if path == "/" {
			return nil
		}
	}
}
