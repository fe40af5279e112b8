package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gresize/gresize/daemon/peer"
	"github.com/gresize/gresize/internal/account"
)

// The names of the variables that a probe finds in its environment.
const (
	KeyVariable = "GRESIZE_PROBE_KEY"
	URLVariable = "GRESIZE_PROBE_URL"
	// JobPrefix stands before the name of each variable of the job's own environment. So none of them acts before the sandbox stands: not on sbatch, which
	// reads SBATCH_ and SLURM_ variables, its libraries and the site's filters, and not on the shell and the loader that start the probe, which takes it off again.
	JobPrefix = "GRESIZE_JOB_"
)

// own is the environment of sbatch and of the shell that starts the probe, beside the two variables above.
var own = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}

// IsOwn says whether a variable that a probe finds in its environment was put there for sbatch and the shell.
func IsOwn(variable string) bool {
	return slices.Contains(own, variable) || strings.HasPrefix(variable, confVariable+"=")
}

const confVariable = "SLURM_CONF"

// Bounds on the work of the privileged half.
const (
	maxAtOnce      = 16
	requestTimeout = 5 * time.Second
	maxErrorBytes  = 1024
)

// Config is what the administrator fixed. Nothing of it can come from a request.
type Config struct {
	// Sbatch, SlurmConf and Probe are absolute paths; the files belong to root and nobody else writes them.
	Sbatch    string
	SlurmConf string
	Probe     string
	// AllowedUIDs may ask, beside root: SlurmUser.
	AllowedUIDs []uint32
	// MinUID is the smallest user id for which a probe is submitted; 0 never is.
	MinUID uint32
	// Users are where the owners of jobs are looked up; the zero value is this machine.
	Users account.System
	// Timeout bounds one sbatch.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Server is the privileged half.
type Server struct {
	config Config
	slots  chan struct{}
	wait   sync.WaitGroup
}

var safePath = regexp.MustCompile(`^/[A-Za-z0-9_./+-]+$`)

// NewServer checks what it will run: a program that root runs for others must not be one that others can change.
func NewServer(config Config) (*Server, error) {
	if config.Users.Getent == "" {
		config.Users.Getent = account.Getent
	}
	for _, path := range []string{config.Sbatch, config.Probe, config.Users.Getent} {
		if err := secure(path); err != nil {
			return nil, err
		}
	}
	if config.SlurmConf != "" && !safePath.MatchString(config.SlurmConf) {
		return nil, fmt.Errorf("slurm.conf path %q: only letters, digits and _./+- are used", config.SlurmConf)
	}
	if config.MinUID == 0 {
		return nil, errors.New("the smallest user id must be at least 1: no probe ever runs as root")
	}
	return &Server{config: config, slots: make(chan struct{}, maxAtOnce)}, nil
}

// secure refuses a program that somebody other than root could change, in itself or in a folder above it.
func secure(path string) error {
	if !safePath.MatchString(path) || filepath.Clean(path) != path {
		return fmt.Errorf("program path %q: only clean paths of letters, digits and _./+- are used", path)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("program: %w", err)
	}
	for p := resolved; ; p = filepath.Dir(p) {
		info, err := os.Lstat(p)
		if err != nil {
			return fmt.Errorf("program: %w", err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		sticky := info.IsDir() && info.Mode()&os.ModeSticky != 0
		switch {
		case !ok || stat.Uid != 0:
			return fmt.Errorf("program %s: %s does not belong to root; use chown root", path, p)
		case info.Mode().Perm()&0o022 != 0 && !sticky:
			return fmt.Errorf("program %s: %s can be changed by others (mode %04o); use chmod go-w", path, p, info.Mode().Perm())
		case p == resolved && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0):
			return fmt.Errorf("program %s: not an executable file", path)
		}
		if p == "/" {
			return nil
		}
	}
}

// Serve answers until the listener is closed.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	defer s.wait.Wait()
	for {
		connection, err := listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			time.Sleep(50 * time.Millisecond)
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		select {
		case s.slots <- struct{}{}:
		default:
			connection.Close()
			continue
		}
		s.wait.Go(func() {
			defer func() { <-s.slots }()
			defer connection.Close()
			s.serve(ctx, connection)
		})
	}
}

func (s *Server) serve(ctx context.Context, connection *net.UnixConn) {
	who, err := peer.Of(connection)
	if err != nil || who.Uid != 0 && !slices.Contains(s.config.AllowedUIDs, who.Uid) {
		s.config.Logger.Warn("peer refused", "uid", who.Uid, "error", err)
		return
	}
	if err := connection.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	var request Request
	reply := Reply{}
	if err := read(connection, &request, maxRequestBytes); err != nil {
		reply.Error = "request: " + err.Error()
	} else {
		reply = s.submit(ctx, request)
	}
	if err := connection.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	if err := write(connection, &reply, maxReplyBytes); err != nil {
		s.config.Logger.Warn("reply not sent", "probe", request.Name, "error", err)
	}
}

// submit runs the one command. It logs who asked for what, never the environment or the key.
func (s *Server) submit(ctx context.Context, r Request) Reply {
	logger := s.config.Logger.With("probe", r.Name, "uid", r.UID)
	if err := r.Validate(); err != nil {
		logger.Warn("request refused", "error", err)
		return Reply{Error: "request: " + err.Error()}
	}
	credential, err := s.credential(ctx, r)
	if err != nil {
		logger.Warn("request refused", "error", err)
		return Reply{Error: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	command := exec.CommandContext(ctx, s.config.Sbatch, arguments(r)...)
	command.Dir = "/"
	command.Env = s.environment(r)
	command.Stdin = strings.NewReader("#!/bin/sh\nexec " + s.config.Probe + " run\n")
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &limited{to: &stdout}, &limited{to: &stderr}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		logger.Error("sbatch not started", "error", err)
		return Reply{Error: fmt.Sprintf("start sbatch: %v", err)}
	}
	if err := command.Wait(); err != nil {
		logger.Warn("sbatch failed", "error", err, "stderr", stderr.String())
		return Reply{Error: fmt.Sprintf("sbatch: %v: %s", err, strings.TrimSpace(stderr.String())), Unsure: ctx.Err() != nil}
	}
	id, _, _ := strings.Cut(strings.TrimSpace(stdout.String()), ";")
	number, err := strconv.ParseUint(id, 10, 32)
	if err != nil || number == 0 {
		return Reply{Error: fmt.Sprintf("sbatch printed %.80q, which is no job id", id), Unsure: true}
	}
	logger.Info("probe submitted", "slurm_job_id", number)
	return Reply{JobID: uint32(number)}
}

// arguments is all that a request can say to sbatch. No --gres=none: Slurm 20.11 refuses it, and nothing in sbatch's environment asks for a resource. Every value was checked by Validate and none is a text for a shell.
func arguments(r Request) []string {
	argv := []string{
		"--parsable", "--export=ALL", "--job-name=" + r.Name, "--chdir=" + r.WorkDir, "--output=/dev/null", "--error=/dev/null",
		"--no-requeue", "--nodes=1", "--ntasks=1", "--cpus-per-task=" + strconv.Itoa(r.CPUs), "--mem=" + strconv.Itoa(r.MemoryMiB) + "M",
		"--time=" + strconv.Itoa(r.TimeLimitMinutes),
	}
	for _, option := range []struct{ name, value string }{{"--partition=", r.Partition}, {"--account=", r.Account}, {"--qos=", r.QOS}} {
		if option.value != "" {
			argv = append(argv, option.name+option.value)
		}
	}
	return argv
}

// environment is that of sbatch, which --export=ALL hands on to the probe on every release: 23.11 has no --export-file, and 26.05 ignores it.
// Of the job's own environment it has all but what an enclosing job or an earlier sbatch left in it, under names that mean nothing to any program.
func (s *Server) environment(r Request) []string {
	environment := append(slices.Clone(own), KeyVariable+"="+r.Key, URLVariable+"="+r.URL)
	if s.config.SlurmConf != "" {
		environment = append(environment, confVariable+"="+s.config.SlurmConf)
	}
	for _, v := range r.Environment {
		name, _, _ := strings.Cut(string(v), "=")
		if !slices.ContainsFunc([]string{"SLURM_", "SBATCH_", "SRUN_", JobPrefix}, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) && name != KeyVariable && name != URLVariable {
			environment = append(environment, JobPrefix+string(v))
		}
	}
	return environment
}

// nobodies are numbers that stand for no one person: nobody of this kernel and of NFS, and what setuid takes for "leave it".
var nobodies = []uint32{65534, 65535, 1<<32 - 2, 1<<32 - 1}

// credential is the user that the probe runs as: never root, never a system account, in a group that is the user's own. SlurmUser asks, and is nobody whose
// jobs are probed: what runs as it can change every job of the cluster.
func (s *Server) credential(ctx context.Context, r Request) (*syscall.Credential, error) {
	switch {
	case r.UID < s.config.MinUID:
		return nil, fmt.Errorf("no probe is submitted for user id %d: the smallest allowed is %d (-min-uid)", r.UID, s.config.MinUID)
	case slices.Contains(s.config.AllowedUIDs, r.UID):
		return nil, fmt.Errorf("no probe is submitted for user id %d: it is SlurmUser", r.UID)
	case slices.Contains(nobodies, r.UID):
		return nil, fmt.Errorf("no probe is submitted for user id %d: it stands for nobody", r.UID)
	}
	_, groups, err := s.config.Users.Member(ctx, r.UID)
	if err != nil {
		return nil, fmt.Errorf("look up user %d: %w", r.UID, err)
	}
	if !slices.Contains(groups, r.GID) {
		return nil, fmt.Errorf("user %d is not in group %d", r.UID, r.GID)
	}
	return &syscall.Credential{Uid: r.UID, Gid: r.GID, Groups: groups}, nil
}

// limited keeps the beginning of what a program prints.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxErrorBytes - l.to.Len(); room > 0 {
		l.to.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
