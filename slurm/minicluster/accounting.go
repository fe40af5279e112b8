package minicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Account is the account of every user of a cluster with accounting; SlurmUser is no member of it.
const Account = "research"

// databaseName is what slurmdbd calls its database.
const databaseName = "slurm_acct_db"

// accountingPrograms are what a cluster with accounting needs beside the others.
var accountingPrograms = []string{"mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacctmgr", "ip"}

// checkAccounting tells what is missing before a daemon dies of it.
func (c *Cluster) checkAccounting() error {
	if !c.opts.Accounting {
		return nil
	}
	if c.opts.Root == "" {
		// slurmdbd listens on every address of its machine; in a root of its own it gets a network of its own.
		return errors.New("minicluster: accounting needs a root with slurmdbd and MariaDB (tools/setup slurm-24.11)")
	}
	for _, program := range accountingPrograms {
		if _, err := c.findProgram(program); err != nil {
			return err
		}
	}
	return nil
}

// startDatabase brings MariaDB and slurmdbd up, and makes the cluster, an account and its one user known to them.
func (c *Cluster) startDatabase(ctx context.Context) error {
	socket := c.path("run/db/socket")
	install, err := c.command(ctx, &c.slurmUser, c.path("db"), "mariadb-install-db", []string{
		"--no-defaults", "--datadir=" + c.path("db/data"), "--skip-test-db", "--auth-root-authentication-method=socket", "--auth-root-socket-user=" + c.slurmUser.name,
		"--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"})
	if err != nil {
		return err
	}
	install.Env = []string{"PATH=" + searchPath}
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("minicluster: mariadb-install-db: %w\n%s", err, out)
	}
	mariadb, err := c.startDaemon("mariadbd", &c.slurmUser, nil, "mariadbd", "--no-defaults", "--datadir="+c.path("db/data"), "--socket="+socket,
		"--skip-networking", "--innodb-buffer-pool-size=64M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0", "--pid-file="+c.path("run/db/pid"))
	if err != nil {
		return err
	}
	c.others = append(c.others, mariadb)
	if err := waitFor(ctx, startTimeout, func() (bool, error) {
		_, err := os.Stat(socket)
		return err == nil, mariadb.exited()
	}); err != nil {
		return fmt.Errorf("minicluster: MariaDB made no socket: %w", err)
	}
	// slurmdbd would make its database, but does not survive that with Debian 13's libmariadb 11.8.9: a connection that has once failed takes no answers.
	create, err := c.command(ctx, &c.slurmUser, c.path("db"), "mariadb", []string{"--no-defaults", "--socket=" + socket, "--execute=CREATE DATABASE " + databaseName})
	if err != nil {
		return err
	}
	if out, err := create.CombinedOutput(); err != nil {
		return fmt.Errorf("minicluster: mariadb: %w\n%s", err, out)
	}
	slurmdbd, err := c.startDaemon("slurmdbd", &c.slurmUser, []string{"MYSQL_UNIX_PORT=" + socket}, "slurmdbd", "-D")
	if err != nil {
		return err
	}
	c.others = append(c.others, slurmdbd)
	var last error
	if err := waitFor(ctx, startTimeout, func() (bool, error) {
		if err := slurmdbd.exited(); err != nil {
			return false, err
		}
		short, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		_, last = c.Run(short, "root", "sacctmgr", "--noheader", "show", "cluster")
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("minicluster: slurmdbd does not answer: %w: %w", err, last)
	}
	for _, line := range [][]string{
		{"add", "cluster", clusterName},
		{"add", "account", Account},
		{"add", "user", DefaultUser, "Account=" + Account},
	} {
		if _, err := c.Run(ctx, "root", "sacctmgr", append([]string{"-i"}, line...)...); err != nil {
			return fmt.Errorf("minicluster: %w", err)
		}
	}
	return nil
}

// Sacctmgr changes the accounting, for instance `modify user gresize-user set MaxTRESPerJob=gres/gpu:a100=0`, without a question.
func (c *Cluster) Sacctmgr(ctx context.Context, args ...string) (string, error) {
	return c.Run(ctx, "root", "sacctmgr", append([]string{"-i"}, args...)...)
}

// databaseFolders are made for SlurmUser, who runs both daemons.
func (c *Cluster) databaseFolders() error {
	for _, sub := range []string{"db", "run/db"} {
		if err := mkdir(c.path(sub)); err != nil {
			return err
		}
		if err := os.Chown(c.path(sub), int(c.slurmUser.uid), int(c.slurmUser.gid)); err != nil {
			return fmt.Errorf("minicluster: %w", err)
		}
	}
	// Before it is written: slurmdbd refuses one that others could read.
	path := c.path("etc/slurmdbd.conf")
	if err := writeFile(path, []byte(c.slurmdbdConf()), 0o600); err != nil {
		return err
	}
	if err := os.Chown(path, int(c.slurmUser.uid), int(c.slurmUser.gid)); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	return nil
}

func (c *Cluster) slurmdbdConf() string {
	var b strings.Builder
	for _, line := range [][2]string{
		{"AuthType", "auth/munge"},
		{"AuthInfo", "socket=" + c.path("run/munge/socket")},
		{"DbdHost", "localhost"},
		{"DbdAddr", "127.0.0.1"},
		{"DbdPort", strconv.Itoa(c.databasePort)},
		{"SlurmUser", c.slurmUser.name},
		{"StorageType", "accounting_storage/mysql"},
		{"StorageHost", "localhost"},
		{"StorageUser", c.slurmUser.name},
		{"StorageLoc", databaseName},
		{"LogFile", c.path("log/slurmdbd.log")},
		{"PidFile", c.path("run/db/slurmdbd.pid")},
		{"PluginDir", c.systemPlugins},
		{"DebugLevel", "verbose"},
	} {
		fmt.Fprintf(&b, "%s=%s\n", line[0], line[1])
	}
	return b.String()
}

// accountedResources are what limits can be put on, each type of GPU by itself. Slurm adds gres/gpumem by itself where gres.conf detects GPUs by NVML.
func (c *Cluster) accountedResources() string {
	words := []string{"gres/gpu"}
	seen := map[string]bool{}
	for _, n := range c.opts.Nodes {
		if n.GPUType != "" && !seen[n.GPUType] {
			seen[n.GPUType] = true
			words = append(words, "gres/gpu:"+n.GPUType)
		}
	}
	for _, name := range c.gresTypes()[1:] {
		words = append(words, "gres/"+name)
	}
	if c.opts.GPUPlugin != "" {
		words = append(words, "gres/gpumem")
	}
	return strings.Join(words, ",")
}

// BuildGPUPlugin compiles, into a folder, the gpu_generic.so for Options.GPUPlugin that has slurmstepd sample what a process says it holds, in GRESIZE_TEST_GPUMEM
// (bytes). source is the folder gpumem of this package.
func BuildGPUPlugin(ctx context.Context, root, source, dir string) (string, error) {
	path := filepath.Join(dir, "gpu_generic.so")
	cc := exec.CommandContext(ctx, "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-I"+filepath.Join(root, "usr", "include"),
		"-o", path, filepath.Join(source, "gpu_generic.c"))
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("minicluster: cc: %w\n%s", err, out)
	}
	return path, nil
}

// AccountedJob waits until the accounting has the end of a job, which slurmctld sends in its own time.
func (c *Cluster) AccountedJob(ctx context.Context, id string, limit time.Duration) error {
	last := ""
	err := waitFor(ctx, limit, func() (bool, error) {
		short, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		out, err := c.Run(short, "root", "sacct", "--noheader", "--parsable2", "--allocations", "--jobs="+id, "--format=State,End")
		last = strings.TrimSpace(out)
		state, end, _ := strings.Cut(last, "|")
		word, _, _ := strings.Cut(state, " ")
		return err == nil && finalStates[word] && end != "Unknown", nil
	})
	if err != nil {
		return fmt.Errorf("minicluster: the accounting does not have the end of job %s but %q: %w", id, last, err)
	}
	return nil
}
