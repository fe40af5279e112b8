// Package client runs scontrol, squeue, scancel and sacct as typed calls with a deadline and
// a fixed environment. It judges by exit codes, never by texts, and decides
// nothing: what to change is worked out by package request and by its caller.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gresize/gresize/slurm/release"
	"github.com/gresize/gresize/slurm/request"
)

// Limits on what is read from a command of Slurm.
const (
	// maxLineBytes is the longest line of scontrol on one job: names, comments and paths are bounded by Slurm far below it.
	maxLineBytes = 1 << 20
	// maxStderrBytes is how much of an error text is kept.
	maxStderrBytes = 4096
	// maxVersionBytes bounds the answer to --version.
	maxVersionBytes = 4096
	// maxPingBytes has room for a line on each of the controllers that Slurm can have.
	maxPingBytes = 64 << 10
)

// ErrNoJob says that the controller does not know the job (any more).
var ErrNoJob = errors.New("no such job")

// CommandError is a command of Slurm that ended with an exit code other than 0.
type CommandError struct {
	Command  string
	ExitCode int
	Stderr   string
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("%s: exit code %d: %s", e.Command, e.ExitCode, e.Stderr)
}

// Config says where the commands are.
type Config struct {
	// Scontrol is the path of scontrol; squeue and scancel are looked for beside it.
	Scontrol string
	// ConfPath is slurm.conf; empty means Slurm's own default.
	ConfPath string
	// Timeout bounds one command; 0 means 10 s.
	Timeout time.Duration
	// AccountingTimeout bounds one request to Slurm's accounting; 0 means the constant of that name.
	AccountingTimeout time.Duration
}

// Client calls the commands of one Slurm cluster.
type Client struct{ config Config }

// New makes a client; it starts nothing.
func New(config Config) *Client {
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.AccountingTimeout == 0 {
		config.AccountingTimeout = AccountingTimeout
	}
	return &Client{config: config}
}

// Version asks for the release of the installed commands.
func (c *Client) Version(ctx context.Context) (release.Version, error) {
	var text []byte
	err := c.run(ctx, c.config.Scontrol, []string{"--version"}, func(out io.Reader) error {
		var err error
		text, err = io.ReadAll(io.LimitReader(out, maxVersionBytes))
		return err
	})
	if err != nil {
		return release.Version{}, err
	}
	return release.Parse(string(text))
}

// Ping asks whether a controller answers. On 20.11 scontrol ends with 0 whether one does or not: there, what it prints of each of them has to tell.
func (c *Client) Ping(ctx context.Context) error {
	var text []byte
	err := c.run(ctx, c.config.Scontrol, []string{"ping"}, func(out io.Reader) (err error) {
		text, err = io.ReadAll(io.LimitReader(out, maxPingBytes))
		return errors.Join(err, discard(out))
	})
	if err == nil && bytes.Contains(text, []byte(" is DOWN\n")) && !bytes.Contains(text, []byte(" is UP\n")) {
		return fmt.Errorf("scontrol ping: %s", bytes.TrimSpace(text))
	}
	return err
}

// Start says when a changed job may begin.
type Start struct {
	// Keep leaves the begin time as it is.
	Keep bool
	// At is a begin time that the owner asked for; the zero time, or one that has passed, means now.
	At time.Time
}

// Update sends changes and the release in one request, in the name of the owner: the owner's limits
// stay in force, and the controller takes all of it or nothing.
func (c *Client) Update(ctx context.Context, owner, id uint32, set []request.Assignment, start Start) error {
	argv := []string{"--uid=" + strconv.FormatUint(uint64(owner), 10), "update", "JobId=" + strconv.FormatUint(uint64(id), 10)}
	for _, a := range set {
		argv = append(argv, a.Key+"="+a.Value)
	}
	switch {
	case start.Keep:
	case start.At.After(time.Now()):
		argv = append(argv, "StartTime="+start.At.UTC().Format(slurmTime))
	default:
		argv = append(argv, "StartTime=now")
	}
	return c.run(ctx, c.config.Scontrol, argv, discard)
}

// Cancel ends a job of this project, such as a probe that nobody waits for.
func (c *Client) Cancel(ctx context.Context, id uint32) error {
	return c.run(ctx, c.beside("scancel"), []string{strconv.FormatUint(uint64(id), 10)}, discard)
}

// Requeue puts a batch job that has ended back into the queue. Slurm keeps it back for two minutes by itself.
func (c *Client) Requeue(ctx context.Context, id uint32) error {
	return c.run(ctx, c.config.Scontrol, []string{"requeue", strconv.FormatUint(uint64(id), 10)}, discard)
}

// beside is a command that lies beside scontrol.
func (c *Client) beside(name string) string {
	return filepath.Join(filepath.Dir(c.config.Scontrol), name)
}

func discard(out io.Reader) error {
	_, err := io.Copy(io.Discard, out)
	return err
}

// run starts one command and hands its output to read. The environment is fixed: texts are English,
// times are UTC, and nothing of the daemon's own environment reaches the command.
func (c *Client) run(ctx context.Context, path string, argv []string, read func(io.Reader) error) error {
	return c.runWithin(ctx, c.config.Timeout, path, argv, read)
}

func (c *Client) runWithin(ctx context.Context, limit time.Duration, path string, argv []string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	command := exec.CommandContext(ctx, path, argv...)
	command.Env = []string{"LC_ALL=C", "TZ=UTC", "PATH=/usr/bin:/bin"}
	if c.config.ConfPath != "" {
		command.Env = append(command.Env, "SLURM_CONF="+c.config.ConfPath)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	var stderr limitedBuffer
	command.Stderr = &stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	readErr := read(out)
	if readErr != nil {
		cancel()
	}
	waitErr := command.Wait()
	name := filepath.Base(path)
	if readErr == nil && ctx.Err() != nil {
		return fmt.Errorf("%s: no answer within %s: %w", name, limit, ctx.Err())
	}
	var exit *exec.ExitError
	switch {
	case readErr != nil:
		return fmt.Errorf("read from %s: %w", name, readErr)
	case errors.As(waitErr, &exit):
		return &CommandError{Command: name, ExitCode: exit.ExitCode(), Stderr: strings.TrimSpace(stderr.String())}
	case waitErr != nil:
		return fmt.Errorf("run %s: %w", name, waitErr)
	}
	return nil
}

// limitedBuffer keeps the beginning of a text.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := maxStderrBytes - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
