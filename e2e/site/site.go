// Package site runs a whole gresize site on one machine: a real Slurm
// (slurm/minicluster) with virtual GPUs in its GPU nodes, the plugin in its
// slurmctld, gresized as SlurmUser and gresize-launch as root, all from the
// build folder. The demo and the end-to-end tests submit jobs to it. It needs
// root and what tools/setup installs.
package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/slurm/minicluster"
)

// baseDir holds the sites: every user can enter it, and the sandbox of a probe sees it as it is.
const baseDir = "/var/lib"

// startTimeout bounds the wait for a daemon of ours to answer, on a busy or an emulated machine, too.
const startTimeout = time.Minute

// Options say what the site is.
type Options struct {
	// Build is the build folder of this repository (bin, libexec, lib, plugin).
	Build string
	// Cluster is the topology; the zero value takes minicluster.Default.
	Cluster minicluster.Options
	// Mode is that of gresize.toml; empty: enforce.
	Mode string
	// Config is further text of gresize.toml, after what the site writes: whole tables.
	Config string
	// Hold is how long a job may wait for its probe; 0: 120 s.
	Hold time.Duration
	// ProbeBudget bounds the run of a script in its probe; 0: 60 s.
	ProbeBudget time.Duration
	// StateBytes, when not 0, is the size of the file system that holds the log and the spool, and nothing else.
	StateBytes int64
	// Beside is the root of another release of Slurm, which is installed where gresized runs; empty: that of the cluster.
	Beside string
	// Commands are shell scripts in place of commands of Slurm, by their names, for gresized.
	Commands map[string]string
	// DaemonEnv are further NAME=value entries for gresized.
	DaemonEnv []string
	Log       io.Writer
}

// Site is a running site.
type Site struct {
	Cluster *minicluster.Cluster
	opts    Options
	dir     string
	libexec string
	bin     string
	slurm   *user.User
	// host is the cluster as gresized sees it.
	host   *minicluster.Cluster
	daemon *process
	launch *process
	probes string
}

// Start brings everything up. The caller must call Stop.
func Start(ctx context.Context, opts Options) (_ *Site, err error) {
	if opts.Mode == "" {
		opts.Mode = "enforce"
	}
	if opts.Hold == 0 {
		opts.Hold = 2 * time.Minute
	}
	if opts.ProbeBudget == 0 {
		opts.ProbeBudget = min(time.Minute, opts.Hold)
	}
	if opts.Cluster.Nodes == nil {
		opts.Cluster = minicluster.Default()
	}
	if opts.Cluster.Nodes, err = withVirtualGPUs(opts.Cluster.Nodes); err != nil {
		return nil, err
	}
	s := &Site{opts: opts}
	if s.slurm, err = user.Lookup(minicluster.DefaultSlurmUser); err != nil {
		return nil, fmt.Errorf("site: %w (tools/setup slurm makes it)", err)
	}
	if s.dir, err = os.MkdirTemp(baseDir, "gresize-site-"); err != nil {
		return nil, fmt.Errorf("site: %w", err)
	}
	if err := s.bringUp(ctx); err != nil {
		err = fmt.Errorf("site: %w\n%s", err, s.Logs(20))
		s.Stop()
		return nil, err
	}
	return s, nil
}

// withVirtualGPUs writes the profile of each GPU node's model into the node.
func withVirtualGPUs(nodes []minicluster.Node) ([]minicluster.Node, error) {
	nodes = append([]minicluster.Node(nil), nodes...)
	for i := range nodes {
		if nodes[i].GPUs == 0 || nodes[i].GPUProfile != nil {
			continue
		}
		profile, err := gpu.Load(nodes[i].GPUModel)
		if err != nil {
			return nil, fmt.Errorf("site: node %s: %w", nodes[i].Name, err)
		}
		var native bytes.Buffer
		if err := profile.WriteNative(&native); err != nil {
			return nil, fmt.Errorf("site: node %s: %w", nodes[i].Name, err)
		}
		nodes[i].GPUProfile = native.Bytes()
	}
	return nodes, nil
}

func (s *Site) bringUp(ctx context.Context) error {
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	if err := s.makeFolders(); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("etc/plugin.conf"), []byte("socket = "+s.path("run/submit.sock")+"\ndeadline_ms = 250\ntell_cpu_jobs = yes\n"), 0o644); err != nil {
		return err
	}
	cluster := s.opts.Cluster
	cluster.Dir = s.path("slurm")
	if cluster.Plugin == "" {
		cluster.Plugin = filepath.Join(s.opts.Build, "plugin", "job_submit_gresize.so")
	}
	cluster.Show = append([]string{s.dir}, cluster.Show...)
	cluster.PluginConf = s.path("etc/plugin.conf")
	cluster.VGPUDir = filepath.Join(s.opts.Build, "lib", "vgpu")
	cluster.Log = s.opts.Log
	cluster.Epilog = s.path("etc/epilog")
	var err error
	if cluster.Nodes, err = s.withAccounting(cluster.Nodes); err != nil {
		return err
	}
	if s.Cluster, err = minicluster.Start(ctx, cluster); err != nil {
		return err
	}
	s.host = s.Cluster
	if s.opts.Beside != "" {
		if s.host, err = s.Cluster.Beside(ctx, s.opts.Beside); err != nil {
			return err
		}
	}
	if err := errors.Join(s.install(), s.writeCommands()); err != nil {
		return err
	}
	if s.probes, err = freeAddress(); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("etc/epilog"), []byte(s.epilog()), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("etc/gresize.toml"), []byte(s.config()), 0o644); err != nil {
		return err
	}
	if err := s.startLaunch(ctx); err != nil {
		return err
	}
	return s.StartDaemon(ctx)
}

func (s *Site) makeFolders() error {
	uid, gid, err := ids(s.slurm)
	if err != nil {
		return err
	}
	for _, folder := range []struct {
		name  string
		owned bool
	}{{"etc", false}, {"run", true}, {"run-root", false}, {"state", true}, {"log", true}} {
		if err := os.MkdirAll(s.path(folder.name), 0o755); err != nil {
			return err
		}
		if folder.owned {
			if err := os.Chown(s.path(folder.name), uid, gid); err != nil {
				return err
			}
		}
	}
	if s.opts.StateBytes == 0 {
		return nil
	}
	return syscall.Mount("none", s.path("state"), "tmpfs", 0, fmt.Sprintf("size=%d,uid=%d,gid=%d,mode=0755", s.opts.StateBytes, uid, gid))
}

// writeCommands puts the scripts beside each other; what is none of them is Slurm's own.
func (s *Site) writeCommands() error {
	if s.opts.Commands == nil {
		return nil
	}
	if err := os.Mkdir(s.path("commands"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"scontrol", "squeue", "scancel"} {
		text, ours := s.opts.Commands[name]
		if !ours {
			text = "exec " + name + " \"$@\"\n"
		}
		if err := os.WriteFile(s.path(filepath.Join("commands", name)), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// install copies our programs to where every node's user can run them.
func (s *Site) install() error {
	for _, part := range []struct {
		name string
		path *string
	}{{"bin", &s.bin}, {"libexec", &s.libexec}, {"lib", new(string)}} {
		installed, err := s.Cluster.Install(filepath.Join(s.opts.Build, part.name))
		if err != nil {
			return err
		}
		*part.path = installed
	}
	return nil
}

// MetricsPath is the socket on which gresized serves its counters.
func (s *Site) MetricsPath() string { return s.path("run/metrics.sock") }

// config is the site's gresize.toml: the features of the GPU nodes, smallest card first.
func (s *Site) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version = 1\nmode = %q\ndefault_profile = %q\n\n", s.opts.Mode, s.largestModel())
	fmt.Fprintf(&b, "[socket]\npath = %q\nallow_users = [%q]\n\n", s.path("run/submit.sock"), s.slurm.Username)
	fmt.Fprintf(&b, "[log]\npath = %q\nspool = %q\n\n", s.LogPath(), s.path("state/spool"))
	fmt.Fprintf(&b, "[metrics]\nlisten = %q\n\n", "unix:"+s.MetricsPath())
	fmt.Fprintf(&b, "[slurm]\nconf = %q\n", s.host.Conf())
	if s.opts.Commands != nil {
		fmt.Fprintf(&b, "scontrol = %q\n", s.path("commands/scontrol"))
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "[probe]\npartition = \"probe\"\nlisten = %q\nlaunch_socket = %q\nhold = %q\nbudget = %q\ntime_limit = \"5m\"\nmemory = \"3GiB\"\ncpus = 2\n\n",
		s.probes, s.path("run-root/launch.sock"), s.opts.Hold, s.opts.ProbeBudget)
	if key := s.Cluster.SlurmKey(); key != "" {
		fmt.Fprintf(&b, "[actuals]\nkey = %q\n", key)
	} else {
		fmt.Fprintf(&b, "[actuals]\nmunge_socket = %q\n", s.Cluster.MungeSocket())
	}
	if s.opts.Cluster.Accounting {
		b.WriteString("sacct_every = \"10s\"\n")
	}
	b.WriteString("\n")
	for _, node := range s.opts.Cluster.Nodes {
		for _, word := range gpuWords(node) {
			fmt.Fprintf(&b, "[gpu.%s]\nprofile = %q\n\n", word, node.GPUModel)
		}
	}
	for _, node := range s.opts.Cluster.Nodes {
		if node.GPUs == 0 || len(node.Features) == 0 {
			continue
		}
		profile, err := gpu.Load(node.GPUModel)
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, "[[target]]\nfits = \"%dMiB\"\nconstraint = %q\n\n", profile.Total.Bytes>>20, node.Features[0])
	}
	b.WriteString(s.opts.Config)
	return b.String()
}

func gpuWords(node minicluster.Node) []string {
	if node.GPUs == 0 {
		return nil
	}
	words := map[string]bool{}
	var ordered []string
	for _, word := range append([]string{node.GPUType}, node.Features...) {
		if word != "" && !words[word] {
			words[word] = true
			ordered = append(ordered, word)
		}
	}
	return ordered
}

// largestModel is the model of the last GPU node: topologies are written smallest card first.
func (s *Site) largestModel() string {
	model := ""
	for _, node := range s.opts.Cluster.Nodes {
		if node.GPUs > 0 {
			model = node.GPUModel
		}
	}
	return model
}

func (s *Site) startLaunch(ctx context.Context) error {
	socket := s.path("run-root/launch.sock")
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		return err
	}
	s.launch, err = s.startProcess("log/launch.log", "root", nil, filepath.Join(s.libexec, "gresize-launch"),
		"-socket", socket, "-slurm-user", s.slurm.Username, "-sbatch", sbatch, "-slurm-conf", s.host.Conf(), "-probe", filepath.Join(s.libexec, "gresize-probe"))
	if err != nil {
		return err
	}
	return s.launch.waitSocket(ctx, socket)
}

// StartDaemon starts gresized, after Start or after KillDaemon, and returns when its socket answers.
func (s *Site) StartDaemon(ctx context.Context) error {
	env := append(s.host.Env(), s.opts.DaemonEnv...)
	var err error
	if s.daemon, err = s.startProcess("log/gresized.log", s.slurm.Username, env, filepath.Join(s.bin, "gresized"), "-config", s.ConfigPath()); err != nil {
		return err
	}
	return s.daemon.waitSocket(ctx, s.path("run/submit.sock"))
}

// KillDaemon ends gresized as a crash would.
func (s *Site) KillDaemon() { s.daemon.kill() }

// ReloadDaemon tells gresized to read its configuration again.
func (s *Site) ReloadDaemon() error { return s.daemon.cmd.Process.Signal(syscall.SIGHUP) }

// DaemonLog is what gresized has written so far.
func (s *Site) DaemonLog() (string, error) {
	text, err := os.ReadFile(s.path("log/gresized.log"))
	return string(text), err
}

// SecondDaemon runs another gresized with the same configuration to its end, and returns what it wrote.
func (s *Site) SecondDaemon(ctx context.Context) (string, error) {
	uid, gid, err := ids(s.slurm)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "gresized"), "-config", s.ConfigPath())
	cmd.Dir, cmd.Env = "/", s.Cluster.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// DaemonCPU is the processor time that gresized and the commands that it has run have taken so far.
func (s *Site) DaemonCPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.daemon.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// What follows the name: state, and from the twelfth word on the ticks of the process and of its children, in user and kernel mode.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("site: /proc/PID/stat of gresized: %d words", len(fields))
	}
	var ticks time.Duration
	for _, word := range fields[11:15] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("site: /proc/PID/stat of gresized: %w", err)
		}
		ticks += time.Duration(n)
	}
	return ticks * (time.Second / 100), nil // Linux tells user space of 100 ticks a second on every machine
}

// DaemonPID is the process of gresized.
func (s *Site) DaemonPID() int { return s.daemon.cmd.Process.Pid }

// DaemonExited is closed when gresized has ended.
func (s *Site) DaemonExited() <-chan struct{} { return s.daemon.done }

// SetDaemonEnv changes what the next StartDaemon gives to gresized.
func (s *Site) SetDaemonEnv(env ...string) { s.opts.DaemonEnv = env }

// LogPath is the decision log.
func (s *Site) LogPath() string { return s.path("state/decisions.db") }

// ConfigPath is gresize.toml.
func (s *Site) ConfigPath() string { return s.path("etc/gresize.toml") }

// Program is where one of our programs was installed.
func (s *Site) Program(name string) string { return filepath.Join(s.bin, name) }

// Gresize runs the command-line tool and returns what it printed.
func (s *Site) Gresize(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, s.Program("gresize"), args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("gresize %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Stop ends everything that Start began and removes the site's folder.
func (s *Site) Stop() {
	for _, p := range []*process{s.daemon, s.launch} {
		if p != nil {
			p.stop()
		}
	}
	if s.Cluster != nil {
		s.Cluster.Stop()
	}
	if s.opts.StateBytes > 0 {
		_ = syscall.Unmount(s.path("state"), syscall.MNT_DETACH) // where it was not mounted, nothing is lost
	}
	if err := os.RemoveAll(s.dir); err != nil && s.opts.Log != nil {
		fmt.Fprintf(s.opts.Log, "site: %v\n", err)
	}
}

// Logs are the last lines of our daemons and of Slurm's.
func (s *Site) Logs(lines int) string {
	var b strings.Builder
	for _, name := range []string{"gresized.log", "launch.log", "epilog.log"} {
		data, err := os.ReadFile(s.path("log/" + name))
		if err != nil {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&b, "--- %s\n%s\n", name, strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	if s.Cluster != nil {
		b.WriteString(s.Cluster.Logs(lines))
	}
	return b.String()
}

func (s *Site) path(name string) string { return filepath.Join(s.dir, name) }

func ids(u *user.User) (uid, gid int, err error) {
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// process is one of our daemons.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// startProcess runs one of our daemons where the daemons of Slurm run.
func (s *Site) startProcess(logName, as string, env []string, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(s.path(logName), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd, err := s.host.Process(as, "/", program, args...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8"}, env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	p := &process{name: filepath.Base(program), cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) waitSocket(ctx context.Context, path string) error {
	deadline := time.Now().Add(startTimeout)
	for {
		if connection, err := net.DialTimeout("unix", path, time.Second); err == nil {
			return connection.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s has ended: %w", p.name, errors.Join(p.err, errors.New("see its log")))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer on %s", p.name, path)
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// Remove takes gresize away as the removal of its packages does: both daemons are stopped and every file that was installed goes, the plugin's too, which the
// running slurmctld has in memory. The log stays, and what the site has
// written itself: its configuration, and its Epilog, without which Slurm would drain a node.
func (s *Site) Remove() error {
	for _, p := range []*process{s.daemon, s.launch} {
		p.stop()
	}
	for _, path := range []string{s.bin, s.libexec, filepath.Join(filepath.Dir(s.bin), "lib"), s.path("run"), s.path("run-root"), s.Cluster.PluginPath()} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}
