package minicluster

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// The hosts of a cluster with two controllers: a slurmctld knows by the name of its machine which of the two it is, and each listens on its own loopback address.
var controllerHosts = [2]struct{ name, address string }{{"gresize-ctl1", "127.0.0.1"}, {"gresize-ctl2", "127.0.0.2"}}

// onHost gives a slurmctld the name of its host, the addresses of both, and a folder of its own for the file with its process id, by which a starting slurmctld ends the one before it.
const onHost = `
name=$1 hosts=$2 own=$3 common=$4
shift 4
hostname "$name"
mount --bind "$hosts" /etc/hosts
mount --bind "$own" "$common"
exec "$@"
`

// controllerLines are the controllers in slurm.conf.
func (c *Cluster) controllerLines() string {
	if !c.opts.Backup {
		return "SlurmctldHost=localhost(127.0.0.1)\n"
	}
	var b strings.Builder
	for _, host := range controllerHosts {
		fmt.Fprintf(&b, "SlurmctldHost=%s(%s)\n", host.name, host.address)
	}
	return b.String()
}

// controllerHostsLines are what both controllers find in /etc/hosts.
func controllerHostsLines() string {
	var b strings.Builder
	for _, host := range controllerHosts {
		fmt.Fprintf(&b, "%s %s\n", host.address, host.name)
	}
	return b.String()
}

// backupRunFolder is where the backup's process id lies.
const backupRunFolder = "run/slurmctld-backup"

// startOn starts slurmctld as that of a host: 0 the primary, 1 the backup.
func (c *Cluster) startOn(host int) (*daemon, error) {
	name, conf, own := "slurmctld", c.opts.PluginConf, "run/slurmctld"
	if host == 1 {
		name, conf, own = "slurmctld-backup", cmp.Or(c.opts.BackupPluginConf, conf), backupRunFolder
	}
	var env []string
	if conf != "" {
		env = append(env, "GRESIZE_PLUGIN_CONF="+conf)
	}
	program, args := "slurmctld", []string{"-D", "-f", c.conf()}
	if !c.opts.Backup {
		return c.startDaemon(name, &c.slurmUser, env, program, args...)
	}
	path, err := c.findProgram(program)
	if err != nil {
		return nil, err
	}
	line := append([]string{"--uts", "--mount", "--propagation", "private", "--", "/bin/sh", "-euc", onHost, "on-host",
		controllerHosts[host].name, c.path("etc/hosts"), c.path(own), c.path("run/slurmctld")}, c.slurmUser.become()...)
	return c.startDaemon(name, nil, env, "unshare", append(append(line, path), args...)...)
}

// BackupPID is the process id of the backup slurmctld, 0 when it is not running.
func (c *Cluster) BackupPID() int { return c.pidOf(&c.backup) }

// startController starts the slurmctld of a host in its place, which must be free.
func (c *Cluster) startController(place **daemon, host int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errors.New("minicluster: stopped")
	}
	if *place != nil && (*place).exited() == nil {
		return errors.New("minicluster: slurmctld is running")
	}
	d, err := c.startOn(host)
	if err != nil {
		return err
	}
	*place = d
	return nil
}

func (c *Cluster) killController(place **daemon) error {
	d := c.current(place)
	if d == nil || d.exited() != nil {
		return errors.New("minicluster: slurmctld is not running")
	}
	d.signalAndWait(syscall.SIGKILL, stopGrace)
	return nil
}

func (c *Cluster) pidOf(place **daemon) int {
	d := c.current(place)
	if d == nil || d.exited() != nil {
		return 0
	}
	return d.cmd.Process.Pid
}

func (c *Cluster) current(place **daemon) *daemon {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *place
}
