package contract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of what a plugin may write in its life.
const (
	// floodBytes of output end the plugin.
	floodBytes = 8 << 20
	// keptBytes of the beginning and of the end are kept for the record: a crash of Go says why at first, other programs at last.
	keptBytes = 1 << 10
)

// Limits of the process that are the same for every plugin.
const (
	maxOpenFiles  = 256
	maxFileBytes  = 256 << 20
	drainDuration = 100 * time.Millisecond
)

// process is a plugin's process group, as go-plugin's Runner. Its own runner hands on standard input, reads without limit, and
// leaves children and, when the host is killed, the plugin itself behind.
type process struct {
	command Command
	cmd     *exec.Cmd
	dir     string
	output  output
	// reads are the host's ends of the plugin's standard output and error, and of its starter's words; writes are the other ends.
	reads, writes [3]*os.File
	// missing is what the kernel could not take from the plugin; to be read after Start.
	missing []string
	done    chan struct{}
	err     error // how it ended; to be read after done
	mu      sync.Mutex
	group   int // 0: not started, or gone and reaped
	killed  bool
}

func newProcess(command Command) *process {
	p := &process{command: command, done: make(chan struct{})}
	p.output.flood = p.kill
	return p
}

// prepare makes the command: env is what go-plugin tells the plugin, dir the plugin's own folder.
func (p *process) prepare(env []string, dir string) error {
	if !filepath.IsAbs(p.command.Path) {
		return fmt.Errorf("%q is no absolute path", p.command.Path)
	}
	if Starter() {
		return errors.New("this program starts plugins and does not begin them: its main has to call StartPlugin")
	}
	for i := range p.reads {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeFiles()
			return err
		}
		p.reads[i], p.writes[i] = r, w
	}
	p.dir = dir
	p.cmd = exec.Command("/proc/self/exe", append([]string{p.command.Path}, p.command.Args...)...)
	p.cmd.Dir = dir
	p.cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + dir, "TMPDIR=" + dir}, p.command.Env...)
	told, err := json.Marshal(rules{Reads: reading(p.command), Owns: dir})
	if err != nil {
		p.closeFiles()
		return err
	}
	p.cmd.Env = append(p.cmd.Env, append(env, starterVariable+"="+string(told))...)
	p.cmd.Stdout, p.cmd.Stderr = p.writes[0], p.writes[1]
	p.cmd.ExtraFiles = []*os.File{p.writes[2]} // wordsFile
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return nil
}

func (p *process) closeFiles() {
	for _, f := range append(p.reads[:], p.writes[:]...) {
		if f != nil {
			_ = f.Close() // a second close is no harm
		}
	}
}

// Start starts the process. The kernel kills it when the thread that started it ends, so that thread is kept until the process has ended.
func (p *process) Start(context.Context) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.fork()
		if err != nil {
			started <- err
			return
		}
		go func() {
			var err error
			if p.missing, err = heard(p.reads[2], p.command.Path); err != nil {
				p.kill()
			}
			started <- err
		}()
		p.reap()
	}()
	return <-started
}

func (p *process) fork() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		p.closeFiles()
		close(p.done)
		return errors.New("the time to start is over")
	}
	// What a library opened without the flag stays with the host as well.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		p.closeFiles()
		p.err = err
		close(p.done)
		return err
	}
	p.group = p.cmd.Process.Pid
	for _, w := range p.writes {
		_ = w.Close()
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_DATA: uint64(p.command.MemoryBytes), unix.RLIMIT_NOFILE: maxOpenFiles, unix.RLIMIT_FSIZE: maxFileBytes, unix.RLIMIT_CORE: 0,
	} {
		// A process that is gone already has no limits; its end is seen elsewhere.
		_ = unix.Prlimit(p.group, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil)
	}
	return nil
}

// reap waits for the process and ends what it left. The group is killed before the process is reaped: until then its number is its own.
func (p *process) reap() {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, p.group, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.group, syscall.SIGKILL)
	p.group = 0
	p.mu.Unlock()
	p.err = p.cmd.Wait()
	close(p.done)
	// A child that left the group may hold the pipes; the host does not wait for it.
	time.AfterFunc(drainDuration, p.closeFiles)
}

// kill ends the process and its group.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
	if p.group != 0 {
		_ = syscall.Kill(-p.group, syscall.SIGKILL)
	}
}

// Wait waits for the end of the process.
func (p *process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Kill ends the process at once.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// Stdout is where the plugin says where it listens.
func (p *process) Stdout() io.ReadCloser { return &counted{p.reads[0], &p.output, true} }

// Stderr is what the plugin writes beside the contract. go-plugin reads it to its end and has no use for it.
func (p *process) Stderr() io.ReadCloser { return &counted{p.reads[1], &p.output, false} }

// Name is the program.
func (p *process) Name() string { return p.command.Path }

// ID is the process number.
func (p *process) ID() string {
	if p.cmd == nil || p.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

// Diagnose has nothing to add to what lastWords says.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost lets a plugin listen in its own folder only: the host connects to no address of a plugin's choice.
func (p *process) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" || filepath.Dir(address) != p.dir {
		return "", "", fmt.Errorf("it listens at %.80q %.200q and not in its folder", network, address)
	}
	// A link would lead to another's socket.
	if info, err := os.Lstat(address); err != nil || info.Mode().Type() != os.ModeSocket {
		return "", "", fmt.Errorf("it says that it listens at %.200q, which is no socket", address)
	}
	return network, address, nil
}

// HostToPlugin changes nothing: both see the same files.
func (p *process) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// epitaph says how the process ended.
func (p *process) epitaph() string {
	select {
	case <-p.done:
		if p.err == nil {
			return "exit status 0"
		}
		return p.err.Error()
	case <-time.After(drainDuration):
		return "the connection is lost"
	}
}

// lastWords is the end of its output, as an end of an error's text.
func (p *process) lastWords() string {
	if text := strings.TrimSpace(p.output.kept()); text != "" {
		return fmt.Sprintf("; it wrote %q", text)
	}
	return ""
}

// output counts and forgets what a plugin writes, all but the beginning and the end.
type output struct {
	mu    sync.Mutex
	first []byte
	last  []byte
	total int64
	flood func()
}

// Write never fails: what is too much ends the plugin instead.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	o.total += int64(len(data))
	head := min(len(data), keptBytes-len(o.first))
	o.first = append(o.first, data[:head]...)
	rest := data[max(head, len(data)-keptBytes):]
	o.last = append(o.last[max(0, min(len(o.last), len(o.last)+len(rest)-keptBytes)):], rest...)
	over := o.total > floodBytes
	o.mu.Unlock()
	if over {
		o.flood()
	}
	return len(data), nil
}

func (o *output) flooded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total > floodBytes
}

func (o *output) kept() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	gap := ""
	if o.total > int64(len(o.first)+len(o.last)) {
		gap = " ... "
	}
	return strings.ToValidUTF8(string(o.first)+gap+string(o.last), "?")
}

// counted is one stream of a plugin on its way through output.
type counted struct {
	io.ReadCloser
	output *output
	// handshake: the first line is go-plugin's own and is no output.
	handshake bool
}

func (c *counted) Read(data []byte) (int, error) {
	n, err := c.ReadCloser.Read(data)
	text := data[:n]
	if c.handshake && n > 0 {
		c.handshake = false
		if i := strings.IndexByte(string(text), '\n'); i >= 0 && strings.Count(string(text[:i]), "|") >= 4 {
			text = text[i+1:]
		}
	}
	_, _ = c.output.Write(text)
	return n, err
}
