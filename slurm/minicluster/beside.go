package minicluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Beside is the same cluster as another machine sees it on which another release of Slurm is installed, as in the middle of an upgrade: its commands and the processes started through it are
// those of the root, with a slurm.conf that names that release's plugins. It ends with the cluster.
func (c *Cluster) Beside(ctx context.Context, root string) (*Cluster, error) {
	if c.opts.Accounting {
		return nil, fmt.Errorf("minicluster: the network of a cluster with accounting is its own: no other machine is in it")
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fmt.Errorf("minicluster: no such root: %w (tools/setup slurm-RELEASE makes it)", err)
	}
	other := &Cluster{opts: c.opts, dir: c.dir, controllerPort: c.controllerPort, nodePorts: c.nodePorts, slurmUser: c.slurmUser, hasVGPUPrograms: c.hasVGPUPrograms}
	other.opts.Root = root
	controller, err := other.findProgram("slurmctld")
	if err != nil {
		return nil, err
	}
	if other.version, err = readVersion(ctx, root, controller); err != nil {
		return nil, err
	}
	if other.systemPlugins, err = findPluginDir(root); err != nil {
		return nil, err
	}
	other.confName = "etc/slurm-" + other.version.String() + ".conf"
	if err := writeFile(other.conf(), []byte(other.slurmConf()), 0o644); err != nil {
		return nil, err
	}
	anchor, err := other.startDaemon("beside-"+other.version.String(), nil, nil, "sleep", "infinity")
	if err != nil {
		return nil, err
	}
	other.anchor = anchor
	c.mu.Lock()
	c.others = append(c.others, anchor)
	c.mu.Unlock()
	// The process is there before its root is.
	return other, waitFor(ctx, startTimeout, func() (bool, error) {
		out, err := other.Run(ctx, "root", "squeue", "--version")
		return err == nil && strings.Contains(out, other.version.String()), anchor.exited()
	})
}
