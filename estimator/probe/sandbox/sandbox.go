// Package sandbox runs one command so that it can change nothing outside: in
// user, mount, process, network, IPC and host-name namespaces made by the
// user's own process, over a private copy-on-write view of the file system.
// No right grows: the command has the user's own number, no capability and no
// way to gain one. The package knows nothing of GPUs or of estimates.
//
// A program that uses it calls Main first of all: the sandbox is set up by the
// same executable, started again.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gresize/gresize/estimator/probe/hostmem"
	"github.com/gresize/gresize/estimator/probe/private"
	"golang.org/x/sys/unix"
)

// Where the sandbox keeps its own things, seen from inside.
const (
	InsideDir = "/.gresize"
	// FilesDir holds the files of Spec.Files, read-only.
	FilesDir = InsideDir + "/files"
	// ReportDir is the one directory whose content is handed out again.
	ReportDir = InsideDir + "/reports"
	// ShimDir stands first in PATH.
	ShimDir = InsideDir + "/shims"

	exePath = InsideDir + "/exe"
)

// Limits of one sandbox, used where Policy has a zero.
const (
	DefaultScratchBytes = int64(2) << 30
	DefaultReportBytes  = int64(256) << 20
	defaultProcesses    = int64(1024)
	// tasksPerProcess: libraries start a thread for each CPU of a large node.
	tasksPerProcess = 4

	maxConfigBytes  = 64 << 20
	maxMessageBytes = 32 << 10
	setupTimeout    = 20 * time.Second
)

// Policy says how much the command may write. Writes go to memory of the node,
// or on older kernels to the temporary directory.
type Policy struct {
	// ScratchBytes limits what the command changes in the file system.
	ScratchBytes int64 `json:"scratch_bytes"`
	// ReportBytes limits what it leaves in ReportDir.
	ReportBytes int64 `json:"report_bytes"`
	// SharedMemoryBytes limits /dev/shm; 0: HostMemoryBytes, of which it is a part.
	SharedMemoryBytes int64 `json:"shared_memory_bytes"`
	// HostMemoryBytes ends the command when all its processes together hold more; 0: nine tenths of what the machine has free at the start.
	HostMemoryBytes int64 `json:"host_memory_bytes"`
	// Processes is how many processes there may be at once, and a quarter of how many processes and threads.
	Processes int64 `json:"processes"`
	// DiskScratch keeps the changes on the disk under TemporaryDir even where memory would do.
	DiskScratch bool `json:"disk_scratch,omitempty"`
	// Copies does without overlays even where the kernel has them, as kernels before 5.11 make it necessary.
	Copies bool `json:"copies,omitempty"`
	// WithoutShims leaves srun, sbatch, mail and their like as they are.
	WithoutShims bool `json:"without_shims,omitempty"`
	// RecordOpens has every file noted that the command opens, runs or asks about; see Process.Seen.
	RecordOpens bool `json:"record_opens,omitempty"`
	// TemporaryDir is where the mount point is made; default private.TemporaryDir().
	TemporaryDir string `json:"-"`
}

// File is a file that the command finds in FilesDir.
type File struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"`
}

// Spec is one command to run.
type Spec struct {
	Argv []string
	// Env is the whole environment of the command; nil means none.
	Env []string
	// Dir is the working directory; it must exist inside.
	Dir string
	// Files appear in FilesDir.
	Files []File
	// Input is the command's standard input; none when empty.
	Input []byte
	// Output gets what the command writes to its standard output and error.
	Output io.Writer
	Policy Policy
	// Writable are directories, beside its own, in which the command will make files.
	Writable []string
	// Restart, when given, is asked when the command is about to change something in a directory that it may write to and that cannot be written to in this sandbox, but
	// could be in one that has it in Writable. If it says yes the command is ended, see Exit.Missing.
	Restart func(dir string) bool
}

// Bound names what a command was ended for.
type Bound string

// The bounds that end a command. Others, like the size of what it writes to memory, only make its calls fail.
const (
	BoundDisk       Bound = "disk"
	BoundHostMemory Bound = "host memory"
	BoundProcesses  Bound = "processes"
)

// Exit is how the command ended.
type Exit struct {
	// Code is the exit status; 128 + the signal when one ended it, as a shell says it.
	Code int
	// Signal is the number of the signal, or 0.
	Signal int
	// Killed says that the sandbox was ended from outside: by the context, at a bound, or by a fault of its own.
	Killed bool
	// Bound is the bound that the command met and was ended for, or empty; Notes tells the figures.
	Bound Bound
	// TooLarge names the first file that the command would have changed and that could not be copied for it.
	TooLarge string
	// Failed is how the sandbox's own process ended, where neither the end of the command, nor a bound, nor the caller ended it.
	Failed string
	// Missing is the directory for which the command was ended, at the word of Spec.Restart.
	Missing string
	// HostPeakBytes is the most that all processes together would have needed on a node with the GPU, see hostmem.Use.
	HostPeakBytes int64
	// Limits are the limits on resources that the command was under.
	Limits hostmem.Limits
	// Setup is the time from Start to the start of the command.
	Setup time.Duration
	// ByHelper says that gresize-sandbox made the namespaces, for the user may not.
	ByHelper bool
	// Lacks are parts of the kernel that were done without.
	Lacks []string
	// Notes say where the view of the file system is not the usual one.
	Notes []string
}

// UnavailableError says that this machine does not let the user make a sandbox.
type UnavailableError struct {
	Op  string
	Err error
}

func (e *UnavailableError) Error() string {
	text := fmt.Sprintf("no sandbox: %s: %v", e.Op, e.Err)
	if setting := e.Setting(); setting != "" {
		text += " (" + setting + ")"
	}
	return text
}

// Setting is the one thing to change on this machine, or empty where that cannot be told.
func (e *UnavailableError) Setting() string { return blocked(e.Op, e.Err) }

func (e *UnavailableError) Unwrap() error { return e.Err }

// message is what the inner stages tell the starting process.
type message struct {
	Kind   string         `json:"kind"` // ready, failed, memory, bound, exit
	Op     string         `json:"op,omitempty"`
	Errno  int            `json:"errno,omitempty"`
	Text   string         `json:"text,omitempty"`
	Code   int            `json:"code,omitempty"`
	Signal int            `json:"signal,omitempty"`
	Bytes  int64          `json:"bytes,omitempty"`
	Notes  []string       `json:"notes,omitempty"`
	Disk   bool           `json:"disk,omitempty"`
	Lacks  []string       `json:"lacks,omitempty"`
	Limits hostmem.Limits `json:"limits,omitzero"`
}

// Process is a running sandbox.
type Process struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	dir     *private.Dir
	base    string
	scratch int64
	started time.Time
	reports *os.File
	opens   *openLog
	record  bool
	restart func(dir string) bool
	// byHelper says that the namespaces were not made by the user.
	byHelper bool
	// refusedBefore is how often the group of processes had refused one more when the command began.
	refusedBefore int64

	// ended says that the caller or the context has ended the command.
	ended atomic.Bool

	mu      sync.Mutex
	exit    Exit
	exited  bool
	failure error
	ready   chan struct{}
	readyMu sync.Once
	drained chan struct{}
	waited  chan error
}

// Start sets the sandbox up and runs the command in it. When it returns
// without an error the command is running; when the context ends, everything
// inside is killed. The error is an *UnavailableError when no sandbox can be had.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	if len(spec.Argv) == 0 {
		return nil, errors.New("sandbox: no command")
	}
	p, err := start(ctx, spec, "")
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && (unavailable.Op == opNamespaces || unavailable.Op == opPrivate) && os.Getuid() != 0 {
		if by := helper(); by != "" {
			return start(ctx, spec, by)
		}
	}
	return p, err
}

// start makes the sandbox with a user namespace of its own, or with the helper's rights where one is named.
func start(ctx context.Context, spec Spec, by string) (*Process, error) {
	p := &Process{started: time.Now(), byHelper: by != "", ready: make(chan struct{}), drained: make(chan struct{}), waited: make(chan error, 1), record: spec.Policy.RecordOpens, restart: spec.Restart, refusedBefore: forksRefused()}
	dir, err := private.Make(spec.Policy.TemporaryDir, "gresize-sandbox.")
	if err != nil {
		return nil, &UnavailableError{Op: opMountPoint, Err: err}
	}
	p.dir = dir
	base := dir.Path
	if base, err = filepath.Abs(base); err == nil {
		base, err = filepath.EvalSymlinks(base)
	}
	if err != nil {
		p.cleanUp()
		return nil, &UnavailableError{Op: "find the mount point", Err: err}
	}
	p.base = base
	if err := p.launch(ctx, spec, by); err != nil {
		p.cleanUp()
		return nil, err
	}
	select {
	case <-p.ready:
	case <-p.drained:
	case <-ctx.Done():
	case <-time.After(setupTimeout):
		_ = p.cmd.Process.Kill()
	}
	p.mu.Lock()
	failure, isReady := p.failure, p.reports != nil
	p.mu.Unlock()
	if isReady && failure == nil {
		return p, nil
	}
	_ = p.cmd.Process.Kill()
	<-p.waited
	<-p.drained
	p.cleanUp()
	if failure == nil {
		failure = errors.Join(errors.New("sandbox: set-up did not finish"), ctx.Err())
	}
	return nil, failure
}

func (p *Process) launch(ctx context.Context, spec Spec, by string) error {
	cfg := config{Argv: spec.Argv, Env: spec.Env, Dir: spec.Dir, Files: spec.Files, Policy: spec.Policy, Base: p.base, Writable: spec.Writable, Passwd: passwdLine(), Network: lookAtNetwork(ctx, spec.Env)}
	cfg.Policy.fillIn()
	p.scratch = cfg.Policy.ScratchBytes
	for _, kv := range spec.Env {
		if key, value, _ := strings.Cut(kv, "="); key == "HOME" || key == "TMPDIR" {
			cfg.Writable = append(cfg.Writable, value)
		}
	}
	for _, dir := range append([]string{spec.Dir}, cfg.Writable...) {
		_, _ = os.Stat(dir) // wakes an automounter while it can still mount
	}
	data, err := cfg.encode()
	if err != nil {
		return fmt.Errorf("sandbox: encode configuration: %w", err)
	}
	if len(data) > maxConfigBytes {
		return fmt.Errorf("sandbox: command, environment and files are %d bytes, at most %d", len(data), maxConfigBytes)
	}
	configFile, err := memoryFile(data)
	if err != nil {
		return &UnavailableError{Op: "memfd_create", Err: err}
	}
	defer configFile.Close()
	var input *os.File
	if len(spec.Input) > 0 {
		if input, err = memoryFile(spec.Input); err != nil {
			return &UnavailableError{Op: "memfd_create", Err: err}
		}
		defer input.Close()
		if err := sealed(input); err != nil {
			return &UnavailableError{Op: "seal the standard input", Err: err}
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &UnavailableError{Op: "socketpair", Err: err}
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	ours := os.NewFile(uintptr(pair[0]), "control")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return fmt.Errorf("sandbox: control socket: %w", err)
	}
	p.control = conn.(*net.UnixConn)

	begun := make(chan error, 1)
	go func() {
		// The parent-death signal follows the thread, so the thread must live as long as the sandbox.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.startStage(ctx, by, input, spec.Output, configFile, theirs)
		begun <- err
		if err == nil {
			p.waited <- p.cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		close(p.drained)
		return &UnavailableError{Op: opNamespaces, Err: err}
	}
	go p.listen()
	return nil
}

// startStage starts the set-up stage. Root maps every number so that files of
// others keep their owners; anyone else can map but himself.
func (p *Process) startStage(ctx context.Context, by string, input *os.File, output io.Writer, configFile, control *os.File) error {
	uid, gid := os.Geteuid(), os.Getegid()
	everyone := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}
	attempts := [][2][]syscall.SysProcIDMap{{
		{{ContainerID: uid, HostID: uid, Size: 1}}, {{ContainerID: gid, HostID: gid, Size: 1}},
	}}
	if uid == 0 {
		attempts = append([][2][]syscall.SysProcIDMap{{everyone, everyone}}, attempts...)
	}
	program := "/proc/self/exe"
	if by != "" {
		program = by
		attempts = attempts[:1]
	}
	var err error
	for _, ids := range attempts {
		cmd := exec.CommandContext(ctx, program)
		cmd.Args = []string{argSetup}
		cmd.Env = []string{}
		cmd.Dir = "/"
		if input != nil {
			cmd.Stdin = input
		}
		cmd.Stdout, cmd.Stderr = output, output
		cmd.ExtraFiles = []*os.File{configFile, control} // become 3 and 4
		cmd.Cancel = func() error {
			p.ended.Store(true)
			return cmd.Process.Kill()
		}
		cmd.WaitDelay = 2 * time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | namespaces,
			UidMappings: ids[0],
			GidMappings: ids[1],
			Setsid:      true,
			Pdeathsig:   syscall.SIGKILL,
		}
		if by != "" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		} else if uid != 0 {
			// Root has all capabilities of the new namespace by itself. The overlay works with the rights of
			// the stage that mounts it, and its working directory has no permission bits: hence the three on
			// files, which reach only files of this user. The last is for the namespace's own bounds.
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP,
				unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_CHOWN, unix.CAP_SYS_RESOURCE}
		}
		if err = cmd.Start(); err == nil {
			p.cmd = cmd
			return nil
		}
	}
	return err
}

// listen takes the messages of the inner stages until they are gone.
func (p *Process) listen() {
	defer close(p.drained)
	buf, oob := make([]byte, maxMessageBytes), make([]byte, 256)
	for {
		n, oobn, _, _, err := p.control.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		received := receivedFile(oob[:oobn])
		var m message
		if json.Unmarshal(buf[:n], &m) != nil {
			if received != nil {
				received.Close()
			}
			continue
		}
		p.take(m, received)
	}
}

func (p *Process) take(m message, received *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Kind == "ready" && p.reports == nil && received != nil:
		p.reports, received = received, nil
		p.exit.Setup = time.Since(p.started)
		p.exit.Notes, p.exit.Lacks, p.exit.ByHelper = m.Notes, m.Lacks, p.byHelper
		if m.Disk {
			go p.watchDisk()
		}
		p.readyMu.Do(func() { close(p.ready) })
	case m.Kind == "opens" && p.opens == nil && received != nil:
		p.opens = &openLog{record: p.record, paths: map[string]use{}, done: make(chan struct{}), judge: judge{began: p.started, known: map[inode]bool{}, missing: p.missing, tooLarge: p.noteTooLarge}}
		go p.opens.follow(received)
		received = nil
	case m.Kind == "failed" && !p.exited:
		var err error = syscall.Errno(m.Errno)
		if m.Errno == 0 {
			err = errors.New(m.Text)
		}
		p.failure = &UnavailableError{Op: m.Op, Err: err}
	case m.Kind == "memory":
		p.exit.HostPeakBytes = max(p.exit.HostPeakBytes, m.Bytes)
	case m.Kind == "bound" && !p.exited:
		p.meet(Bound(m.Op), m.Text)
	case m.Kind == "exit" && !p.exited:
		p.exited = true
		p.exit.Code, p.exit.Signal, p.exit.Limits = m.Code, m.Signal, m.Limits
		p.exit.HostPeakBytes = max(p.exit.HostPeakBytes, m.Bytes)
	}
	if received != nil {
		received.Close()
	}
}

// meet notes the bound that the command is ended for. The caller holds mu.
func (p *Process) meet(bound Bound, what string) {
	p.exit.Bound = bound
	p.exit.Notes = append(p.exit.Notes, what+": the command was ended")
}

// missing is asked of a directory in which the command is about to change something, and cannot.
func (p *Process) missing(dir string) bool {
	if p.restart != nil && p.restart(dir) {
		p.mu.Lock()
		p.exit.Missing = dir
		p.mu.Unlock()
		p.Kill()
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.exit.Notes) < maxNotes {
		p.exit.Notes = append(p.exit.Notes, dir+" cannot be written to in the sandbox: it was not found before the start")
	}
	return false
}

func (p *Process) noteTooLarge(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exit.TooLarge == "" {
		p.exit.TooLarge = what
		p.exit.Notes = append(p.exit.Notes, what)
	}
}

// Wait waits for the end of the command and of everything that it started.
// Reports can be read until Close.
func (p *Process) Wait() Exit {
	<-p.waited
	<-p.drained
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.exited {
		p.exit.Killed = true
		p.exit.Code, p.exit.Signal = 128+int(syscall.SIGKILL), int(syscall.SIGKILL)
		if !p.ended.Load() && p.exit.Bound == "" {
			p.exit.Failed = p.cmd.ProcessState.String()
		}
	}
	if refused := forksRefused() - p.refusedBefore; p.exit.Code != 0 && p.exit.Bound == "" && refused > 0 {
		p.exit.Killed, p.exit.Bound = true, BoundProcesses
		p.exit.Notes = append(p.exit.Notes, fmt.Sprintf("the group of processes of this job or session (cgroup) refused %d times to let one more start, for its pids.max: the command failed", refused))
	}
	return p.exit
}

// Kill ends everything inside at once.
func (p *Process) Kill() {
	p.ended.Store(true)
	_ = p.cmd.Process.Kill()
}

// ReportPath is ReportDir seen from outside, readable while the command runs
// and until Close. Its content was written by the command: a stranger's.
func (p *Process) ReportPath() string { return fmt.Sprintf("/proc/self/fd/%d", p.reports.Fd()) }

// Close frees what the sandbox holds. Call it after Wait.
func (p *Process) Close() error {
	var err error
	if p.reports != nil {
		err = p.reports.Close()
	}
	p.cleanUp()
	return err
}

func (p *Process) cleanUp() {
	if p.control != nil {
		_ = p.control.Close()
	}
	p.dir.Remove()
}

// bound keeps what takes the machine's memory within bounds where the rights are not the user's own.
func (p *Policy) bound() {
	p.fillIn()
	if lent {
		p.ScratchBytes, p.ReportBytes = min(p.ScratchBytes, DefaultScratchBytes), min(p.ReportBytes, DefaultReportBytes)
		p.SharedMemoryBytes = min(p.SharedMemoryBytes, freeHostMemory())
		p.Processes = min(p.Processes, 1<<20)
	}
}

func (p *Policy) fillIn() {
	for _, v := range []struct {
		field *int64
		value int64
	}{{&p.ScratchBytes, DefaultScratchBytes}, {&p.ReportBytes, DefaultReportBytes}, {&p.Processes, defaultProcesses}, {&p.HostMemoryBytes, freeHostMemory()}} {
		if *v.field <= 0 {
			*v.field = v.value
		}
	}
	if p.SharedMemoryBytes <= 0 {
		p.SharedMemoryBytes = p.HostMemoryBytes
	}
}

// freeHostMemory is nine tenths of the memory that the machine can give now, or no bound where it does not say.
func freeHostMemory() int64 {
	if free := hostmem.Available(); free > 0 {
		return free / 10 * 9
	}
	return math.MaxInt64
}

func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("gresize-sandbox", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "configuration")
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sealed takes a file of memory back to its start and keeps the command from writing to it, or making it larger.
func sealed(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	return err
}

func receivedFile(oob []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var file *os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			if file == nil {
				file = os.NewFile(uintptr(fd), "reports")
			} else {
				_ = unix.Close(fd)
			}
		}
	}
	return file
}
