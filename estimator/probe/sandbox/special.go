package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// devices are all that a program finds in /dev, where the machine has them: those that keep nothing and lead nowhere. A read-only mount does not keep anybody from
// writing to a device, be it a disk, another terminal of the user or a card. There is no fuse: who waits for a file system that a program serves and does not answer
// cannot be killed, and would outlive the sandbox.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// settings are the parts of /proc that belong to the machine. Their owner, root, needs no capability to change them.
var settings = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "asound", "driver", "latency_stats", "timer_list", "kcore", "kmsg", "keys"}

const devBytes = 1 << 20

// buildDev makes a /dev with harmless devices, terminals of its own and an empty /dev/shm.
func (b *builder) buildDev(dev string) error {
	if err := tmpfs(dev, devBytes, "0755"); err != nil {
		return step("mount /dev", err)
	}
	for _, name := range devices {
		// #nosec G306 -- what is bound over it has this mode
		if err := os.WriteFile(dev+"/"+name, nil, 0o666); err != nil {
			return step("make /dev/"+name, err)
		}
		if err := mount("/dev/"+name, dev+"/"+name, "", unix.MS_BIND, ""); err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				b.note("/dev/%s is missing: %v", name, err)
			}
			_ = os.Remove(dev + "/" + name) // a file in its place would be worse than none
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(target, dev+"/"+name); err != nil {
			return step("make /dev/"+name, err)
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(dev+"/"+name, 0o755); err != nil {
			return step("make /dev/"+name, err)
		}
	}
	if err := mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"); err != nil {
		b.note("no terminals can be made: %v", err)
	}
	if err := tmpfs(dev+"/shm", b.policy.SharedMemoryBytes, "1777"); err != nil {
		return step("mount /dev/shm", err)
	}
	return step("make /dev read-only", mount("", dev, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""))
}

// closeProc shows the machine's parts of /proc read-only. It is done for root alone: to others they are closed anyway, and
// with them covered no program inside could make namespaces with a /proc of its own.
func closeProc(proc string) {
	for _, name := range settings {
		path := proc + "/" + name
		if err := bindReadOnly(path, path); err != nil && !errors.Is(err, os.ErrNotExist) {
			_ = mount("/dev/null", path, "", unix.MS_BIND, "")
		}
	}
}
