// Package minicluster runs a real Slurm on one machine: munged, slurmctld as an unprivileged user, and one slurmd for
// each node, all on loopback and in one folder, without systemd and without cgroups. The demo and the tests submit jobs
// to it as a second unprivileged user. Its GPU nodes have device files that lead nowhere and, when the caller gives them
// one, a virtual GPU that a task prolog puts under each job.
//
// It needs root, Debian's Slurm packages and the two users; tools/setup installs and creates them. Another release of
// Slurm comes from a folder with the Debian that has it (Options.Root).
package minicluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gresize/gresize/slurm/release"
)

// Options say what the cluster is made of. Default gives the usual ones.
type Options struct {
	// Dir is the folder of the cluster, readable by everyone up to the root. Empty: a new one in the folder for
	// temporary files, which Stop removes.
	Dir   string
	Nodes []Node
	// Root is a folder with another Debian and its Slurm, as tools/setup makes it (see RootDir). Empty: the Slurm of this machine, or what ReleaseVariable names.
	// Every process of the cluster then runs with that folder as its root.
	Root string
	// Show are folders that keep their path under Root; what is not shown there the cluster's processes do not see.
	Show []string
	// Plugin is a job_submit_NAME.so to load, or empty. It is copied.
	Plugin string
	// Lua is a job_submit.lua for Slurm's own plugin job_submit/lua, or empty. It is copied, and called before Plugin.
	Lua string
	// PluginConf is given to slurmctld as GRESIZE_PLUGIN_CONF when it is not empty.
	PluginConf string
	// Backup runs a second slurmctld, the backup of the first, as if on another host; both have the folder of the state. BackupPluginConf is its PluginConf, where that is another.
	Backup           bool
	BackupPluginConf string
	// SlurmUser is the account of slurmctld, DefaultSlurmUser when empty.
	SlurmUser string
	// VGPUDir holds the libraries of the virtual GPU, or is empty. It is copied, and so are the programs (nvidia-smi) in
	// the folder bin beside it when there is one; jobs with a GPU find these first.
	VGPUDir string
	// UserEnv are NAME=value lines of the users' login environment, so of every job; a later PATH replaces the usual one.
	UserEnv []string
	// Epilog is a program that every node runs as root after each job, or empty. It is not copied, and may be made after Start.
	Epilog string
	// Settings are further lines of slurm.conf, by their key; they take the place of the usual ones.
	Settings map[string]string
	// SlurmAuth has Slurm authenticate by a key of its own, without munge, which Slurm can from 23.11 on.
	SlurmAuth bool
	// Configless has the nodes ask slurmctld for its configuration, of which they have no file. It needs a Root.
	Configless bool
	// Cgroup2 keeps jobs in cgroups of version 2, within the memory that they asked for. It needs a machine on which all cgroups are of version 2 (tools/slurmroot/in-vm), and Slurm 22.05.
	Cgroup2 bool
	// GPUPlugin is a gpu_generic.so in the place of Slurm's own, or empty. It is copied.
	GPUPlugin string
	// Accounting runs slurmdbd with a MariaDB of the cluster's own, an account and limits that are enforced. It needs a Root that has them, and
	// gives the cluster a network of its own, which only its processes see.
	Accounting bool
	// Log gets a line for each step of starting and stopping, when it is not nil.
	Log io.Writer
}

// Node is one slurmd.
type Node struct {
	Name string
	// CPUs and RealMemoryMiB are what Slurm believes; the machine need not have them.
	CPUs          int
	RealMemoryMiB int
	// GPUModel names the GPU profile. It is for the caller, who makes GPUProfile and GPUEnv of it.
	GPUModel string
	// GPUType is the type in Slurm's gres, as in gpu:a100:1.
	GPUType string
	GPUs    int
	// Shards is the number on the whole node, split evenly over its GPUs. Slurm has none before 22.05: there they are left out.
	Shards int
	// MPS is the number of percent of MPS on the whole node, split evenly over its GPUs.
	MPS int
	// Counted are resources of the node that are only counted, e.g. vram:80.
	Counted  []string
	Features []string
	// GPUProfile is the text of the virtual GPU's profile. The cluster writes it to a file that jobs can read and
	// gives them its path as GRESIZE_VGPU_PROFILE.
	GPUProfile []byte
	// GPUEnv are further NAME=value lines for every job that is given a GPU of this node.
	GPUEnv []string
}

// Cluster is a running Slurm. Its methods may be called from several goroutines.
type Cluster struct {
	opts           Options
	dir            string
	ownsDir        bool
	lock           *os.File
	ports          *portBlock
	controllerPort int
	databasePort   int
	nodePorts      []int
	systemPlugins  string
	slurmUser      account
	version        release.Version
	// confName is that of its slurm.conf in dir; empty: the cluster's own.
	confName string
	// anchor is the process whose mount namespace has the other root, when there is one.
	anchor *daemon
	// hasVGPUPrograms tells that share/vgpu-bin is there.
	hasVGPUPrograms bool

	mu         sync.Mutex
	controller *daemon
	backup     *daemon
	others     []*daemon
	stopped    bool
}

// startTimeout bounds the wait for all nodes to be idle. It takes two seconds on an idle machine, and more than a minute on an emulated one whose host is busy.
const startTimeout = 5 * time.Minute

// dirPattern names the folders that Start makes by itself.
const dirPattern = "gresize-mc-"

// Start brings the cluster up and returns when every node is idle. The caller must call Stop.
// What a killed process left running from an earlier cluster of ours is cleared away first.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("minicluster: needs root, to run slurmd and to submit jobs as other users")
	}
	if opts.SlurmUser == "" {
		opts.SlurmUser = DefaultSlurmUser
	}
	if err := checkNodes(opts.Nodes); err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts}
	var err error
	if c.slurmUser, err = lookUp(opts.SlurmUser); err != nil {
		return nil, err
	}
	if c.opts.Root == "" {
		c.opts.Root = defaultRoot()
	}
	if c.opts.Root != "" {
		if c.opts.Root, err = filepath.EvalSymlinks(c.opts.Root); err != nil {
			return nil, fmt.Errorf("minicluster: no such root: %w (tools/setup slurm-RELEASE makes it)", err)
		}
		for _, dir := range c.opts.Show {
			if !safeInPath.MatchString(dir) {
				return nil, fmt.Errorf("minicluster: folder %q cannot be shown in another root: letters, digits and _./+- only", dir)
			}
		}
	}
	var slurmctld string
	for _, program := range []string{"munged", "slurmd", "slurmctld"} {
		if slurmctld, err = c.findProgram(program); err != nil {
			return nil, err
		}
	}
	if c.version, err = readVersion(ctx, c.opts.Root, slurmctld); err != nil {
		return nil, err
	}
	if c.systemPlugins, err = findPluginDir(c.opts.Root); err != nil {
		return nil, err
	}
	if err := errors.Join(c.checkAccounting(), c.checkVariant()); err != nil {
		return nil, err
	}
	if err := c.openDir(); err != nil {
		return nil, err
	}
	if err := c.bringUp(ctx); err != nil {
		logs := c.Logs(25)
		c.Stop()
		return nil, fmt.Errorf("%w\n%s", err, logs)
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context) error {
	var err error
	if c.ports, err = reservePorts(c.dir, c.ownsDir); err != nil {
		return err
	}
	if c.controllerPort, err = c.ports.take(); err != nil {
		return err
	}
	if c.databasePort, err = c.ports.take(); err != nil {
		return err
	}
	for range c.opts.Nodes {
		port, err := c.ports.take()
		if err != nil {
			return err
		}
		c.nodePorts = append(c.nodePorts, port)
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	begin := time.Now()
	munged, err := c.startDaemon("munged", nil, nil, "munged", "--foreground", "--force", "--num-threads=2",
		"--key-file="+c.path("etc/munge.key"), "--socket="+c.path("run/munge/socket"),
		"--pid-file="+c.path("run/munge/pid"), "--seed-file="+c.path("run/munge/seed"))
	if err != nil {
		return err
	}
	c.others = append(c.others, munged)
	if c.opts.Root != "" {
		c.anchor = munged
	}
	if err := waitFor(ctx, startTimeout, func() (bool, error) {
		_, err := os.Stat(c.path("run/munge/socket"))
		return err == nil, munged.exited()
	}); err != nil {
		return fmt.Errorf("minicluster: munged made no socket: %w", err)
	}
	if c.opts.Accounting {
		if err := c.startDatabase(ctx); err != nil {
			return err
		}
	}
	if err := c.StartController(); err != nil {
		return err
	}
	if err := c.placeSocket(ctx); err != nil {
		return err
	}
	slurmd, err := c.findProgram("slurmd")
	if err != nil {
		return err
	}
	for _, n := range c.opts.Nodes {
		conf := []string{"-f", c.conf()}
		if c.opts.Configless {
			conf = []string{"--conf-server", "127.0.0.1:" + strconv.Itoa(c.controllerPort)}
		}
		d, err := c.startDaemon("slurmd-"+n.Name, nil, nil, "env", append([]string{"--unset=SLURM_CONF", slurmd, "-D", "-N", n.Name}, conf...)...)
		if err != nil {
			return err
		}
		c.others = append(c.others, d)
		if err := c.waitForKiosk(ctx, n.Name, d); err != nil {
			return err
		}
	}
	if err := c.waitIdle(ctx); err != nil {
		return err
	}
	// The backup starts when the primary is in charge: of two that start at once, the backup may take over first.
	if c.opts.Backup {
		if err := c.startController(&c.backup, 1); err != nil {
			return err
		}
	}
	c.say("%d nodes idle after %.1f s, configuration %s", len(c.opts.Nodes), time.Since(begin).Seconds(), c.conf())
	return nil
}

// openDir makes or takes over the folder and marks it as ours while this process lives.
func (c *Cluster) openDir() error {
	sweep()
	c.dir = c.opts.Dir
	if c.dir == "" {
		dir, err := os.MkdirTemp("", dirPattern)
		if err != nil {
			return fmt.Errorf("minicluster: %w", err)
		}
		c.dir, c.ownsDir = dir, true
	}
	var err error
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	// Links are resolved because processes are later found by the paths that they hold open.
	if c.dir, err = filepath.EvalSymlinks(c.dir); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	if !safeInPath.MatchString(c.dir) || len(c.dir) > maxDirBytes {
		return fmt.Errorf("minicluster: folder %q: at most %d bytes of letters, digits and _./+- (Slurm's configuration and the paths of sockets)", c.dir, maxDirBytes)
	}
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	if err := othersCanEnter(c.dir); err != nil {
		return err
	}
	lock, err := lockDir(c.dir)
	if err != nil {
		return err
	}
	c.lock = lock
	killAll(c.dir)
	return nil
}

// maxDirBytes leaves room for the longest socket below the folder; the kernel allows 107 bytes.
const maxDirBytes = 70

// subfolders of a cluster's folder; removed and made anew by every Start.
var subfolders = []string{"etc", "run", "run/munge", "run/slurmctld", backupRunFolder, "log", "state", "spool", "dev", "bin", "plugin", "plugin/first", "gpu", "share", "home", "home/physics", "db"}

func (c *Cluster) writeFiles() error {
	for _, sub := range subfolders {
		if !strings.Contains(sub, "/") {
			if err := os.RemoveAll(c.path(sub)); err != nil {
				return fmt.Errorf("minicluster: %w", err)
			}
		}
		if err := mkdir(c.path(sub)); err != nil {
			return err
		}
	}
	for _, sub := range []string{"state", "log", "run/slurmctld", backupRunFolder} {
		if err := os.Chown(c.path(sub), int(c.slurmUser.uid), int(c.slurmUser.gid)); err != nil {
			return fmt.Errorf("minicluster: %w", err)
		}
	}
	if c.opts.Accounting {
		if err := c.databaseFolders(); err != nil {
			return err
		}
	}
	if c.opts.SlurmAuth {
		if err := c.slurmKey(); err != nil {
			return err
		}
	}
	key := make([]byte, 128)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	for _, n := range c.opts.Nodes {
		for _, dir := range []string{c.path("spool/" + n.Name), c.path("dev/" + n.Name)} {
			if err := mkdir(dir); err != nil {
				return err
			}
		}
		for i := range n.GPUs {
			// The device of /dev/null: Slurm only wants a device node to be there.
			device := c.devicePath(n.Name, i)
			if err := syscall.Mknod(device, syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
				return fmt.Errorf("minicluster: device file %s: %w", device, err)
			}
		}
		if len(n.GPUProfile) > 0 {
			if err := writeFile(c.profilePath(n.Name), n.GPUProfile, 0o644); err != nil {
				return err
			}
		}
	}
	if c.opts.Plugin != "" {
		base := filepath.Base(c.opts.Plugin)
		if !strings.HasPrefix(base, "job_submit_") || !strings.HasSuffix(base, ".so") {
			return fmt.Errorf("minicluster: plugin %s is not called job_submit_NAME.so", c.opts.Plugin)
		}
		if err := copyTree(c.opts.Plugin, c.PluginPath()); err != nil {
			return err
		}
	}
	if c.opts.GPUPlugin != "" {
		if err := copyTree(c.opts.GPUPlugin, c.path("plugin/first/gpu_generic.so")); err != nil {
			return err
		}
	}
	if c.opts.Lua != "" {
		if err := copyTree(c.opts.Lua, c.path("etc/job_submit.lua")); err != nil {
			return err
		}
	}
	if c.opts.VGPUDir != "" {
		if err := copyTree(c.opts.VGPUDir, c.path("share/vgpu")); err != nil {
			return err
		}
		programs := filepath.Join(filepath.Dir(filepath.Clean(c.opts.VGPUDir)), "bin")
		if info, err := os.Stat(programs); err == nil && info.IsDir() {
			if err := copyTree(programs, c.path("share/vgpu-bin")); err != nil {
				return err
			}
			c.hasVGPUPrograms = true
		}
	}
	type file struct {
		name, text string
		mode       os.FileMode
	}
	files := []file{
		{"etc/munge.key", string(key), 0o400},
		{"etc/slurm.conf", c.slurmConf(), 0o644},
		{"etc/gres.conf", c.gresConf(), 0o644},
		{"bin/task_prolog", c.taskProlog(), 0o755},
	}
	if c.opts.Backup || c.opts.Root != "" {
		text, err := hosts()
		if err != nil {
			return err
		}
		if c.opts.Backup {
			text += controllerHostsLines()
		}
		files = append(files, file{"etc/hosts", text, 0o644})
	}
	if text := c.cgroupConf(); text != "" {
		files = append(files, file{"etc/cgroup.conf", text, 0o644})
	}
	for _, f := range files {
		if err := writeFile(c.path(f.name), []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return nil
}

// StartController starts slurmctld, as SlurmUser. Start has done it once; this is for after KillController.
func (c *Cluster) StartController() error { return c.startController(&c.controller, 0) }

// KillController ends slurmctld with SIGKILL, as a crash would.
func (c *Cluster) KillController() error { return c.killController(&c.controller) }

// RestartController ends slurmctld in order, which saves its state, starts it again and waits until all nodes answer.
func (c *Cluster) RestartController(ctx context.Context) error {
	if d := c.current(&c.controller); d != nil && d.exited() == nil {
		d.signalAndWait(syscall.SIGTERM, controllerGrace)
	}
	if err := c.StartController(); err != nil {
		return err
	}
	return c.waitUp(ctx)
}

// ControllerPID is the process id of slurmctld, 0 when it is not running.
func (c *Cluster) ControllerPID() int { return c.pidOf(&c.controller) }

// stopGrace is how long a daemon has to go by itself; controllerGrace lets slurmctld write its state.
const (
	stopGrace       = 3 * time.Second
	controllerGrace = 15 * time.Second
)

// Stop ends every job and every daemon and, when Start chose the folder, removes it. It may be called again.
func (c *Cluster) Stop() {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	c.stopped = true
	daemons := append([]*daemon{}, c.others...)
	for _, d := range []*daemon{c.controller, c.backup} {
		if d != nil {
			daemons = append(daemons, d)
		}
	}
	c.mu.Unlock()

	// Jobs go first: while slurmd lives it reaps them, and nothing of them is restarted.
	killAll(c.dir)
	for _, d := range daemons {
		d.signalAndWait(syscall.SIGKILL, stopGrace)
	}
	if c.ports != nil {
		c.ports.release()
	}
	if c.ownsDir && os.Getenv("GRESIZE_MINICLUSTER_KEEP") == "" {
		if err := os.RemoveAll(c.dir); err != nil {
			c.say("%v", err)
		}
	}
	if c.lock != nil {
		c.lock.Close()
	}
	c.say("stopped")
}

// Dir is the cluster's folder.
func (c *Cluster) Dir() string { return c.dir }

// Version is the release of Slurm that runs.
func (c *Cluster) Version() release.Version { return c.version }

// Conf is the path of slurm.conf.
func (c *Cluster) Conf() string { return c.conf() }

// MungeSocket is the path of munged's socket.
func (c *Cluster) MungeSocket() string { return c.path("run/munge/socket") }

// Env are the NAME=value lines that make Slurm's commands talk to this cluster.
func (c *Cluster) Env() []string { return []string{"SLURM_CONF=" + c.conf()} }

func (c *Cluster) conf() string            { return c.path(cmp.Or(c.confName, "etc/slurm.conf")) }
func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) say(format string, args ...any) {
	if c.opts.Log != nil {
		fmt.Fprintf(c.opts.Log, "minicluster: "+format+"\n", args...)
	}
}

// waitIdle waits until every node is idle, which a fresh cluster becomes.
func (c *Cluster) waitIdle(ctx context.Context) error {
	return c.waitNodes(ctx, func(state string) bool { return state == "idle" })
}

// waitUp waits until every node answers, whatever it is doing.
func (c *Cluster) waitUp(ctx context.Context) error {
	return c.waitNodes(ctx, func(state string) bool {
		return state == "idle" || state == "mix" || state == "alloc" || state == "comp"
	})
}

func (c *Cluster) waitNodes(ctx context.Context, good func(string) bool) error {
	last := ""
	err := waitFor(ctx, startTimeout, func() (bool, error) {
		if d := c.current(&c.controller); d.exited() != nil {
			return false, fmt.Errorf("slurmctld: %w", d.exited())
		}
		for _, d := range c.others {
			if err := d.exited(); err != nil {
				return false, fmt.Errorf("%s: %w", d.name, err)
			}
		}
		// Without an answer sinfo would try for a minute, in which we would not see that a daemon has died.
		short, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		out, err := c.Run(short, "root", "sinfo", "--noheader", "--Node", "--format=%N %t")
		if err != nil {
			last = err.Error()
			return false, nil
		}
		last = out
		states := map[string]string{}
		for line := range strings.Lines(out) {
			if name, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				states[name] = state
			}
		}
		for _, n := range c.opts.Nodes {
			if !good(states[n.Name]) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("minicluster: the nodes did not come up: %w; sinfo says: %s", err, last)
	}
	return nil
}

// waitFor calls ready until it says yes, fails, or the time is over.
func waitFor(ctx context.Context, limit time.Duration, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

// answerTimeout bounds one question while we poll: without slurmctld its commands try for MessageTimeout.
const (
	pollEvery     = 100 * time.Millisecond
	answerTimeout = 10 * time.Second
)

// account is a local user.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
}

func lookUp(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, fmt.Errorf("minicluster: user %s: %w (tools/setup creates it)", name, err)
	}
	a := account{name: name, home: u.HomeDir}
	ids, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("minicluster: groups of %s: %w", name, err)
	}
	for i, text := range append([]string{u.Uid, u.Gid}, ids...) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("minicluster: user %s: id %q: %w", name, text, err)
		}
		switch i {
		case 0:
			a.uid = uint32(id)
		case 1:
			a.gid = uint32(id)
		default:
			a.groups = append(a.groups, uint32(id))
		}
	}
	return a, nil
}

func (a account) credential() *syscall.Credential {
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: a.groups}
}

// searchPath is the PATH of daemons, of Slurm's commands and so of jobs.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// findProgram looks a program of the cluster up; the path is that in its root.
func (c *Cluster) findProgram(name string) (string, error) { return findIn(c.opts.Root, name) }

// findIn looks a program up in searchPath and not in the caller's PATH, which often lacks the sbin folders.
func findIn(root, name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(filepath.Join(root, path)); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("minicluster: %s: %w in %s (tools/setup installs Slurm and munge)", name, exec.ErrNotFound, searchPath)
}

// PluginPath is where the copy of Options.Plugin lies.
func (c *Cluster) PluginPath() string { return c.path("plugin/" + filepath.Base(c.opts.Plugin)) }

// findPluginDir finds where Debian keeps Slurm's own plugins; the path is that in the root.
func findPluginDir(root string) (string, error) {
	for _, pattern := range []string{"/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib/slurm-wlm", "/usr/lib/slurm", "/usr/lib64/slurm"} {
		found, err := filepath.Glob(filepath.Join(root, pattern, "auth_munge.so"))
		if err == nil && len(found) > 0 {
			return strings.TrimPrefix(filepath.Dir(found[0]), filepath.Clean(root)), nil
		}
	}
	return "", errors.New("minicluster: Slurm's plugins are not in /usr/lib (tools/setup installs them)")
}
