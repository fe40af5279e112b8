package minicluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is a process of the cluster that this process started.
type daemon struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed after err is set
	err  error
}

// startDaemon runs a program in the foreground, with nothing of our environment, and its output in a file of the log folder.
func (c *Cluster) startDaemon(name string, as *account, env []string, program string, args ...string) (*daemon, error) {
	cmd, err := c.command(context.Background(), as, c.path("log"), program, args)
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(c.path("log/"+name+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("minicluster: %w", err)
	}
	defer out.Close()
	cmd.Env = append([]string{"PATH=" + searchPath, "LANG=C.UTF-8", "SLURM_CONF=" + c.conf()}, env...)
	cmd.Stdout, cmd.Stderr = out, out
	// A session of its own: a Ctrl-C at the terminal is for us, and we stop the daemons in order.
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("minicluster: %s: %w", name, err)
	}
	d := &daemon{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		d.err = cmd.Wait()
		if d.err == nil {
			d.err = errors.New("ended by itself")
		}
		close(d.done)
	}()
	return d, nil
}

// exited is nil while the daemon runs, and afterwards says how it ended.
func (d *daemon) exited() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// signalAndWait sends the signal and, when the daemon has not gone in time, kills it.
func (d *daemon) signalAndWait(signal syscall.Signal, grace time.Duration) {
	if d.exited() != nil {
		return
	}
	d.cmd.Process.Signal(signal)
	select {
	case <-d.done:
	case <-time.After(grace):
		d.cmd.Process.Kill()
		<-d.done
	}
}

// slurmPrograms are the programs that belong to a cluster when they hold a file of its folder open.
var slurmPrograms = map[string]bool{"munged": true, "slurmctld": true, "slurmscriptd": true, "slurmd": true, "slurmstepd": true, "slurmdbd": true, "mariadbd": true}

// process is what /proc says of one process.
type process struct {
	pid, parent, session int
	name                 string
	zombie               bool
}

// killAll ends every process of the cluster in dir: its daemons, its steps and what these started. It finds them by
// what they are, not by remembered ids, so that it works after a crash and never hits a process that got an old id.
func killAll(dir string) {
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		found := clusterProcesses(dir)
		if len(found) == 0 {
			return
		}
		for _, pid := range found {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// clusterProcesses lists the living processes of the cluster in dir.
func clusterProcesses(dir string) []int {
	all := allProcesses()
	ours := map[int]bool{}
	sessions := map[int]bool{}
	mark := func(p process) {
		ours[p.pid] = true
		if p.session > 1 {
			sessions[p.session] = true
		}
	}
	self, selfSession := os.Getpid(), 0
	for _, p := range all {
		if p.pid == self {
			selfSession = p.session
		}
	}
	for _, p := range all {
		if p.pid != self && p.session != selfSession && belongs(p, dir) {
			mark(p)
		}
	}
	// Children and the members of a job's session belong to it even when they have changed their environment.
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !ours[p.pid] && p.pid != self && p.session != selfSession && (ours[p.parent] || sessions[p.session]) {
				mark(p)
				grown = true
			}
		}
	}
	var pids []int
	for _, p := range all {
		if ours[p.pid] && !p.zombie {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// belongs tells whether the process by itself shows that it is of the cluster in dir.
func belongs(p process, dir string) bool {
	proc := filepath.Join("/proc", strconv.Itoa(p.pid))
	if slurmPrograms[p.name] {
		fds, err := os.ReadDir(filepath.Join(proc, "fd"))
		if err != nil {
			return false
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil && strings.HasPrefix(to, dir+"/") {
				return true
			}
		}
		return false
	}
	// A job. A shell of somebody who only looks at the cluster has no job id.
	env, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil {
		return false
	}
	env = append([]byte{0}, env...)
	return bytes.Contains(env, []byte("\x00SLURM_CONF="+dir+"/")) && bytes.Contains(env, []byte("\x00SLURM_JOB_ID="))
}

func allProcesses() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, string(stat)); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads a line of /proc/PID/stat. The name stands in brackets and may itself hold any character.
func parseStat(pid int, stat string) (process, bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(stat[end+1:])
	if len(fields) < 4 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	if err1 != nil || err2 != nil {
		return process{}, false
	}
	return process{
		pid: pid, parent: parent, session: session, name: stat[open+1 : end],
		zombie: fields[0] == "Z" || fields[0] == "X",
	}, true
}

// Logs is the end of every log of the cluster, for the message of a failed test.
func (c *Cluster) Logs(lines int) string {
	paths, err := filepath.Glob(c.path("log/*"))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, path := range paths {
		// Slurm's daemons write the same to both; before they have read their configuration only to the first.
		if log := strings.TrimSuffix(path, ".out") + ".log"; log != path+".log" && hasText(log) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil || len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		all := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&b, "--- %s\n%s\n", filepath.Base(path), strings.Join(all[max(0, len(all)-lines):], "\n"))
	}
	return b.String()
}

func hasText(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}
