package minicluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gresize/gresize/slurm/release"
)

// lockName is held with flock while a cluster's process lives. The kernel drops it when that process dies, however it dies.
const lockName = "owner.lock"

// lockDir takes the lock of a folder. A lock file appears under its name only when it is held already: one that can be
// locked was left by a dead process.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	if lock, err := lockLeft(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return lock, err
	}
	lock, err := os.CreateTemp(dir, lockName+".*")
	if err != nil {
		return nil, fmt.Errorf("minicluster: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("minicluster: lock of %s: %w", dir, err)
	}
	// Link fails where another Start was faster, which a rename would not.
	err = os.Link(lock.Name(), path)
	os.Remove(lock.Name())
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("minicluster: a cluster is starting in %s: %w", dir, err)
	}
	return lock, nil
}

// lockLeft takes a lock file that is there, unless its process lives.
func lockLeft(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("minicluster: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("minicluster: a cluster is running in %s", filepath.Dir(path))
	}
	return lock, nil
}

// othersCanEnter checks that SlurmUser and the users of jobs can reach the folder.
func othersCanEnter(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("minicluster: %w", err)
		}
		if info.Mode().Perm()&0o005 == 0 || info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("minicluster: %s in the path of %s is closed to other users; leave Options.Dir empty or choose a folder that all can enter", at, dir)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func mkdir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	// The caller's umask must not close it to the other users.
	if err := os.Chmod(path, 0o755); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	return nil
}

func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, data, mode); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	return nil
}

// Install copies a file or a folder to where every user of the cluster can read it, and returns its path there. A
// checkout below /root cannot be read by jobs.
func (c *Cluster) Install(source string) (string, error) {
	target := c.path(filepath.Join("share", filepath.Base(source)))
	if err := copyTree(source, target); err != nil {
		return "", err
	}
	return target, nil
}

// copyTree copies a file or a folder, readable by all. Links inside it are followed when they lead to plain files.
func copyTree(source, target string) error {
	root, err := filepath.EvalSymlinks(source)
	if err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := target + strings.TrimPrefix(path, root)
		if entry.IsDir() {
			return mkdir(to)
		}
		return copyFile(path, to)
	})
	if err != nil {
		return fmt.Errorf("minicluster: copying %s: %w", source, err)
	}
	return nil
}

func copyFile(source, target string) (err error) {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a plain file", source)
	}
	// A program that is being run cannot be written over, but it can be replaced.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if info.Mode()&0o111 != 0 {
		// A process that is forked while a program is open for writing has it open, too, until its own exec, and so long nobody can run it.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
	}
	out, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Chmod(0o644 | info.Mode().Perm()&0o111)
}

// checkVariant tells what the cluster cannot be.
func (c *Cluster) checkVariant() error {
	switch {
	case c.opts.SlurmAuth && !release.AuthSlurm.In(c.version):
		return fmt.Errorf("minicluster: Slurm %s knows munge only", c.version)
	case c.opts.Configless && c.opts.Root == "":
		return errors.New("minicluster: nodes without a configuration look for munge in its usual place, which is this machine's own: they need a root")
	}
	return nil
}

// mungePlace is where Slurm looks for munge before it has a configuration.
const mungePlace = "/run/munge/munge.socket.2"

// placeSocket takes the socket of munge away where Slurm is to do without, and shows it in its usual place to those who have no configuration yet.
func (c *Cluster) placeSocket(ctx context.Context) error {
	if c.opts.SlurmAuth {
		if err := os.Remove(c.path("run/munge/socket")); err != nil {
			return fmt.Errorf("minicluster: %w", err)
		}
		return nil
	}
	if !c.opts.Configless {
		return nil
	}
	link, err := c.command(ctx, nil, "/", "sh", []string{"-c", "mkdir " + filepath.Dir(mungePlace) + " && ln -s " + c.path("run/munge/socket") + " " + mungePlace})
	if err != nil {
		return err
	}
	if out, err := link.CombinedOutput(); err != nil {
		return fmt.Errorf("minicluster: %w: %s", err, out)
	}
	return nil
}

// waitForKiosk waits for a slurmd that authenticates without munge: each takes away the socket of the one before, and two that do so at the same moment end each other.
func (c *Cluster) waitForKiosk(ctx context.Context, node string, slurmd *daemon) error {
	if !c.opts.SlurmAuth {
		return nil
	}
	return waitFor(ctx, startTimeout, func() (bool, error) {
		log, err := os.ReadFile(c.path("log/slurmd-" + node + ".log"))
		return err == nil && strings.Contains(string(log), "slurmd started"), slurmd.exited()
	})
}

// SlurmKey is the path of the key by which Slurm authenticates without munge; empty: it does with munge.
func (c *Cluster) SlurmKey() string {
	if !c.opts.SlurmAuth {
		return ""
	}
	return c.path("etc/slurm.key")
}

// slurmKey makes the key by which Slurm authenticates without munge.
func (c *Cluster) slurmKey() error {
	key := make([]byte, 1024)
	if _, err := rand.Read(key); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	path := c.SlurmKey()
	if err := writeFile(path, key, 0o600); err != nil {
		return err
	}
	if err := os.Chown(path, int(c.slurmUser.uid), int(c.slurmUser.gid)); err != nil {
		return fmt.Errorf("minicluster: %w", err)
	}
	return nil
}
