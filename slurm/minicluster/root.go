package minicluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gresize/gresize/slurm/release"
)

// enterRoot is run in a mount namespace of its own and changes into another root: what is mounted here is seen by the cluster's processes alone
// and goes with the last of them. The users of this machine are those of the other root too, its name leads to loopback, and the cluster's folder
// has the same path there. Nothing is written to the root's own folders but empty ones.
const enterRoot = `
root=$1 dirs=$2 network=$3
shift 3
if [ "$network" = own ]; then
	# slurmdbd finds no address of its own where there is none but loopback's.
	chroot "$root" ip link set lo up
	chroot "$root" ip address add 10.255.255.1/32 dev lo
fi
mount --rbind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for at in tmp run var/tmp; do
	mount -t tmpfs -o mode=1777 tmpfs "$root/$at"
done
# Without shadow nobody can log in there, and a login is where --export=NONE and scrontab have their environment from.
for file in passwd group shadow; do
	mount --bind "/etc/$file" "$root/etc/$file"
done
[ -e "$root/etc/hosts" ] || : >"$root/etc/hosts"
mount --bind "${dirs%% *}/etc/hosts" "$root/etc/hosts"
if [ -e "${dirs%% *}/etc/job_submit.lua" ]; then # which 20.11 looks for in its own place alone
	mkdir -p "$root/etc/slurm"
	mount --bind "${dirs%% *}/etc" "$root/etc/slurm"
fi
for dir in $dirs; do
	mkdir -p "$root$dir"
	mount --rbind "$dir" "$root$dir"
done
cd "$root"
pivot_root . .
umount -l .
exec "$@"
`

// hosts is the other root's /etc/hosts: slurmd looks up the name of its machine, which may be nowhere but in this machine's own services.
func hosts() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("minicluster: %w", err)
	}
	return "127.0.0.1 localhost " + name + "\n", nil
}

// inNewRoot is the command line that makes the cluster's mount namespace and runs a program in it.
func (c *Cluster) inNewRoot(program string, args []string) []string {
	line, network := []string{"unshare", "--mount", "--propagation", "private"}, "shared"
	if c.opts.Accounting {
		line, network = append(line, "--net"), "own"
	}
	line = append(line, "--", "/bin/sh", "-euc", enterRoot, "enter-root", c.opts.Root, strings.Join(append([]string{c.dir}, c.opts.Show...), " "), network, program)
	return append(line, args...)
}

// inRoot is the command line that runs a program in the mount namespace of the cluster, in a folder and as a user (nil: root).
// Each part of it starts the next one in its own place, so the process keeps its id.
func (c *Cluster) inRoot(as *account, dir, program string, args []string) ([]string, error) {
	if c.anchor == nil || c.anchor.exited() != nil {
		return nil, errors.New("minicluster: munged, which holds the other root, does not run")
	}
	namespaces := "/proc/" + strconv.Itoa(c.anchor.cmd.Process.Pid) + "/ns/"
	line := []string{"nsenter", "--mount=" + namespaces + "mnt"}
	if c.opts.Accounting {
		line = append(line, "--net="+namespaces+"net")
	}
	line = append(line, "--", "env", "--chdir="+dir)
	if as != nil && as.uid != 0 {
		line = append(line, as.become()...)
	}
	return append(append(line, program), args...), nil
}

// become is the beginning of a command line that root runs as the user.
func (a *account) become() []string {
	groups := "--clear-groups"
	if len(a.groups) > 0 {
		words := make([]string, len(a.groups))
		for i, g := range a.groups {
			words[i] = strconv.FormatUint(uint64(g), 10)
		}
		groups = "--groups=" + strings.Join(words, ",")
	}
	return []string{"setpriv", "--reuid=" + strconv.FormatUint(uint64(a.uid), 10), "--regid=" + strconv.FormatUint(uint64(a.gid), 10), groups}
}

// command is a process of the cluster: a daemon or a client, in its folder and as its user.
func (c *Cluster) command(ctx context.Context, as *account, dir, program string, args []string) (*exec.Cmd, error) {
	path, err := c.findProgram(program)
	if err != nil {
		return nil, err
	}
	if c.opts.Root == "" {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{}
		if as != nil && as.uid != 0 {
			cmd.SysProcAttr.Credential = as.credential()
		}
		return cmd, nil
	}
	line := c.inNewRoot(path, args)
	if c.anchor != nil {
		if line, err = c.inRoot(as, dir, path, args); err != nil {
			return nil, err
		}
	}
	first, err := findIn("", line[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, first, line[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd, nil
}

// Process is a program that runs as a user in a folder of the cluster's root, with the caller's environment unless he changes that. It is for programs
// that are no clients of Slurm.
func (c *Cluster) Process(asUser, dir, program string, args ...string) (*exec.Cmd, error) {
	who, err := lookUp(asUser)
	if err != nil {
		return nil, err
	}
	return c.command(context.Background(), &who, dir, program, args)
}

// readVersion asks the Slurm of the cluster which release it is.
func readVersion(ctx context.Context, root, slurmctld string) (release.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, slurmctld, "-V")
	if root != "" {
		// Looked up here, where the path is not that of the other root.
		cmd.Path, cmd.Err = slurmctld, nil
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: root}, "/"
	}
	out, err := cmd.Output()
	if err != nil {
		return release.Version{}, fmt.Errorf("minicluster: %s -V: %w", slurmctld, err)
	}
	return release.Parse(string(out))
}
