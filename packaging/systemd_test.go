package packaging

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// bootScript makes the clean root the root of a mount namespace of its own and becomes its init. It shares the machine's network alone.
const bootScript = `
root=$2/root
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
	touch "$root/dev/$node"
	mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/shm" "$root/dev/pts"
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i container=test /lib/systemd/systemd --unit=multi-user.target
`

// booted is a clean root in which systemd runs.
type booted struct {
	*cleanRoot
	init string
}

// boot starts systemd in a cgroup of its own, and ends it and all below it with the test.
func boot(t *testing.T, r *cleanRoot) *booted {
	t.Helper()
	mount := strings.TrimSpace(output(t, "sh", "-c", "awk '$3 == \"cgroup2\" { print $2; exit }' /proc/mounts"))
	group := filepath.Join(mount, "gresize-packages-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatalf("systemd needs a cgroup of its own: %v", err)
	}
	cmd := exec.Command("sh", "-euc", `echo $$ >"$1/cgroup.procs"; shift
		exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --propagation private -- sh -euc "$@"`,
		"sh", group, bootScript, "sh", r.lower, r.dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0o600)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		output(t, "sh", "-c", `for try in 1 2 3 4 5 6 7 8 9 10; do find "$1" -depth -type d -exec rmdir {} + 2>/dev/null; test -d "$1" || exit 0; sleep 0.5; done; exit 1`, "sh", group)
	})
	b := &booted{cleanRoot: r}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		children, _ := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(cmd.Process.Pid)).Output()
		b.init = strings.TrimSpace(string(children))
		if out, err := b.in("systemctl is-system-running"); b.init != "" && (err == nil || strings.Contains(out, "degraded")) {
			return b
		} else if time.Now().After(deadline) {
			t.Fatalf("systemd does not come up: %s\n%s", out, log.Bytes())
		}
	}
}

// in runs a shell command line beside the booted system's processes.
func (b *booted) in(line string) (string, error) {
	out, err := exec.Command("nsenter", "--target", b.init, "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--root", "--wd", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "sh", "-euc", line).CombinedOutput()
	return string(out), err
}

func (b *booted) must(line string) string {
	b.t.Helper()
	out, err := b.in(line)
	if err != nil {
		journal, _ := b.in("journalctl --no-pager -u gresized -u gresize-launch -u slurmctld | tail -n 40")
		b.t.Fatalf("%s: %v\n%s\n%s", line, err, out, journal)
	}
	return out
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// TestUnderSystemd goes docs/install.md from the packages to the purge under a real systemd, with a real slurmctld: the units run with all that they
// close, a reload of a broken file is refused, an upgrade starts again what ran, and nothing runs after the purge.
func TestUnderSystemd(t *testing.T) {
	if !nightly {
		t.Skip("run by make nightly: over a minute, and writes to the machine's cgroups: make nightly runs it")
	}
	b := boot(t, newCleanRoot(t, twoVersions(t)))
	b.must("apt-get install --yes --no-install-recommends /packages/gresize_" + older + "-1_*.deb /packages/gresize-slurm-plugin-*_" + older + "-1_*.deb")
	if out, err := b.in("systemctl is-enabled gresized gresize-launch"); err == nil || strings.Count(out, "disabled") != 2 {
		t.Errorf("a fresh installation: %s", out)
	}
	page := freePort(t)
	b.must(fmt.Sprintf(`cat >/etc/slurm/slurm.conf <<END
ClusterName=tiny
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=%d
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SelectType=select/cons_tres
GresTypes=gpu
JobSubmitPlugins=gresize
NodeName=gpu1 NodeAddr=127.0.0.1 Gres=gpu:1 RealMemory=8000 CPUs=4
PartitionName=gpu Nodes=gpu1 Default=YES
END
sed -i '/^.probe.$/,/^.jobs.$/s/^#listen = .*/listen = "127.0.0.1:%d"/; /^.web.$/,/^.slurm.$/s/^#listen = .*/listen = "127.0.0.1:%d"/' /etc/gresize/gresize.toml
gresize slurm check`, freePort(t), freePort(t), page))
	b.must("systemctl restart slurmctld && for try in $(seq 30); do scontrol ping | grep -q UP && break; sleep 1; done; scontrol ping | grep -q UP")
	b.must("systemctl enable --now gresize-launch gresized")
	b.must("systemctl is-active gresize-launch gresized slurmctld")

	// The plugin tells the daemon, the daemon asks the launcher, and the launcher submits as the owner.
	b.must("useradd --create-home --uid 1500 alice && cd /home/alice && setpriv --reuid=1500 --regid=1500 --clear-groups sbatch --gres=gpu:1 --time=5 --wrap=true")
	b.must("for try in $(seq 30); do squeue --noheader --user alice --format %j | grep -q gresize-probe && exit 0; sleep 1; done; exit 1")
	b.must(`gresize log --user alice | grep -q gpu:1 && gresize top | grep -q '1 open: 1 probing'`)
	// The page shows it, and a decision is a line of the journal with fields.
	b.must(fmt.Sprintf(`bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; printf "GET /?user=alice HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3; grep -q "<bdi>alice</bdi>" <&3'`, page))
	b.must("cd /home/alice && setpriv --reuid=1500 --regid=1500 --clear-groups sbatch --gres=gpu:1 --comment=gresize:off --wrap=true")
	b.must(`for try in $(seq 30); do journalctl -u gresized -o json MESSAGE_ID=466289e08f3340e6957af3e7af03aac3 GRESIZE_VERDICT=leave_alone GRESIZE_UID=1500 | grep -q '"GRESIZE_CODE":"opt_out"' && exit 0; sleep 1; done; exit 1`)

	b.must("systemctl reload gresized")
	if out, err := b.in("echo 'mod = 1' >>/etc/gresize/gresize.toml; systemctl reload gresized"); err == nil {
		t.Errorf("a broken file was taken: %s", out)
	}
	b.must("sed -i '$d' /etc/gresize/gresize.toml; systemctl is-active gresized; journalctl -u gresized --no-pager | grep -q 'did you mean mode'")

	const pid = "systemctl show --property MainPID gresized"
	before := b.must(pid)
	b.must("dpkg --force-confold --install /packages/gresize_" + newer + "-1_*.deb && systemctl is-active gresized gresize-launch")
	after := b.must(pid)
	if before == after {
		t.Errorf("the upgrade left the old daemon running: %s", after)
	}
	if out, err := b.in("dpkg --force-confold --install /packages/gresize_" + older + "-1_*.deb"); err == nil || b.must(pid) != after {
		t.Errorf("a downgrade over a log: %s", out)
	}

	// The packages go while a job is held, before anybody touched slurm.conf: the request stays as it was, and the hold ends by itself.
	b.must(`sed -i -e 's/^mode = .*/mode = "enforce"/' -e 's/^#hold = .*/hold = "20s"/' /etc/gresize/gresize.toml && printf '\n[[target]]\nfits = "40GiB"\nconstraint = "gpu40"\n' >>/etc/gresize/gresize.toml && systemctl reload gresized`)
	held := strings.TrimSpace(b.must("cd /home/alice && setpriv --reuid=1500 --regid=1500 --clear-groups sbatch --parsable --gres=gpu:1 --time=5 --wrap=true"))
	job := func() string { return b.must("scontrol --oneliner show job " + held) }
	// Its reason may be that no node is there; what counts is from when on it may start.
	eligible := func(id string) string {
		return strings.TrimSpace(b.must(`at=$(scontrol --oneliner show job ` + id + ` | sed 's/.* EligibleTime=\([^ ]*\).*/\1/'); test "$(date -d "$at" +%s)" -gt "$(date +%s)" && echo later || echo now`))
	}
	if record := job(); !strings.Contains(record, "gresize:v1:") || eligible(held) != "later" {
		t.Errorf("the job is not held: %s", record)
	}
	b.must("apt-get remove --yes gresize 'gresize-slurm-plugin-*'")
	if out, err := b.in("systemctl is-active gresized gresize-launch"); err == nil {
		t.Errorf("after the removal: %s", out)
	}
	b.must("systemctl is-active slurmctld && test -e /var/lib/gresize/decisions.db")
	for deadline := time.Now().Add(time.Minute); eligible(held) == "later" && time.Now().Before(deadline); time.Sleep(time.Second) {
	}
	if record := job(); !strings.Contains(record, "JobState=PENDING") || !strings.Contains(record, "TresPerNode=gres:gpu:1") || strings.Contains(record, "Reason=JobHeld") || eligible(held) != "now" {
		t.Errorf("after its hold: %s", record)
	}
	next := strings.TrimSpace(b.must("cd /home/alice && setpriv --reuid=1500 --regid=1500 --clear-groups sbatch --parsable --gres=gpu:1 --time=5 --wrap=true"))
	if record := b.must("scontrol --oneliner show job " + next); strings.Contains(record, "gresize:v1:") || eligible(next) != "now" {
		t.Errorf("a submission after the removal was touched: %s", record)
	}

	b.must("sed -i /JobSubmitPlugins/d /etc/slurm/slurm.conf && systemctl restart slurmctld && apt-get purge --yes gresize")
	if out, err := b.in("systemctl is-active gresized gresize-launch"); err == nil {
		t.Errorf("after the purge: %s", out)
	}
	b.must(`! test -e /etc/gresize && ! test -e /var/lib/gresize && ! test -e /run/gresize && test -z "$(find /etc/systemd -name 'gresize*')" && ! grep -l '^gresize' /proc/[0-9]*/comm`)
}
