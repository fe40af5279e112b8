package sandbox

import (
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// nastyPlaces are scripts for the places and the ways that need a preparation of their own: BARE, over which no overlay can be made, a second file system below it,
// and programs that bring a view of their own.
var nastyPlaces = []nastyScript{
	{name: "writes where no overlay can be", overlay: true, script: `echo evil > "$BARE/best.pt"; rm -rf "$BARE"/*; chmod 777 "$BARE/lock"; touch "$BARE/new"; ln "$BARE/best.pt" mine; cat "$BARE/best.pt"`, want: []string{"the best weights"}},
	{name: "a socket where no overlay can be", script: `python3 -c '
import os, socket
bare = os.environ["BARE"]
for path in (bare + "/socket", bare + "/deep/er/socket", bare + "/later/socket", os.environ["ON_TMPFS"]):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(socket.AF_UNIX, kind); s.settimeout(2)
        try: s.connect(path); print("reached", path)
        except OSError: print("refused")'`, want: []string{strings.Repeat("refused\n", 8)}},
	{name: "a pipe where no overlay can be", overlay: true, script: `timeout 1 sh -c 'echo evil > "$BARE/fifo"'; timeout 1 sh -c 'echo evil >> "$BARE/deep/er/fifo"'; timeout 20 python3 -c '
import os
try: f = os.open(os.environ["BARE"] + "/fifo", os.O_RDWR | os.O_NONBLOCK); os.write(f, b"evil"); print("written")
except OSError: print("refused")'`, want: []string{"refused"}},
	{name: "what covers a socket is taken away", script: `umount "$BARE/socket" 2>&1; rm -f "$BARE/socket" 2>&1; unshare -Urm sh -c 'umount "$BARE/socket"; umount -l "$BARE"; mount -o remount,bind,rw "$BARE"; echo evil > "$BARE/best.pt"' 2>&1; python3 -c '
import os, socket
s = socket.socket(socket.AF_UNIX)
try: s.connect(os.environ["BARE"] + "/socket"); print("reached")
except OSError: print("refused")'`, want: []string{"refused"}},
	{name: "a lock where no overlay can be", overlay: true, script: `exec 9<"$BARE/lock"; flock -n 9 && echo locked; setsid sleep 300 & echo left`, want: []string{"locked", "left"}},
	{name: "a lease on a file", script: `python3 -c '
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = os.open("best.pt", os.O_RDONLY)
try: fcntl.fcntl(f, 1024, fcntl.F_RDLCK); print("leased", flush=True)
except OSError as e: print("not leased", e, flush=True)
if os.fork() == 0: os.setsid(); signal.pause()'; echo tried`, want: []string{"tried"}},
	{name: "an agent for keys and a bus", script: `python3 -c '
import os, socket
for name in ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"):
    path = os.environ[name].split("=")[-1].replace("unix://", "")
    s = socket.socket(socket.AF_UNIX); s.settimeout(2)
    try: s.connect(path); print("reached", name)
    except OSError: print("refused")'`, want: []string{"refused\nrefused\nrefused\n"}},
	{name: "memory in files without a name", script: `python3 -c '
import os
held = []
while True:
    f = os.memfd_create("evil"); held.append(f)
    for _ in range(8): os.write(f, bytes(4 << 20))'`, bound: BoundHostMemory},
	{name: "memory that nobody has mapped", script: `python3 -c '
import ctypes
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p; libc.shmdt.argtypes = [ctypes.c_void_p]
while True:
    at = libc.shmat(libc.shmget(0, 32 << 20, 0o1600), None, 0)
    ctypes.memset(at, 1, 32 << 20); libc.shmdt(at)'`, bound: BoundHostMemory},
	{name: "a file by its handle", script: `python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0")
f = libc.open_by_handle_at(os.open("/", os.O_RDONLY), handle, 0); print(f, ctypes.get_errno() in (1, 22, 116))'`, want: []string{"-1 True"}},
	{name: "the sandbox's own program", script: `for f in /.gresize/exe /proc/1/exe /proc/1/cwd/x /.gresize/shims/sbatch; do ( echo evil > $f ) 2>/dev/null && echo wrote $f; done; python3 -c '
import os
for name in ("user", "mnt", "net", "pid", "ipc"):
    try: os.open("/proc/1/ns/" + name, os.O_RDONLY); print("opened", name)
    except OSError: print("refused")'`, want: []string{strings.Repeat("refused\n", 5)}},
	{name: "keys pressed on the terminal", script: `python3 -c '
import fcntl, os
for path in ("/dev/tty", "/dev/stdin", "/proc/self/fd/0"):
    try: fcntl.ioctl(os.open(path, os.O_RDWR), 0x5412, b"x"); print("pressed", path)
    except OSError: print("refused")'`, want: []string{"refused\nrefused\nrefused\n"}},
	{name: "a higher priority", script: `nice -n -20 sh -c 'nice' 2>&1; chrt -f 50 true 2>&1; ionice -c 1 -n 0 true 2>&1; python3 -c '
import os
try: os.setpriority(os.PRIO_USER, os.getuid(), -20); print("raised")
except OSError: print("refused")'`, want: []string{"refused"}},
	{name: "a container as apptainer makes one", script: `unshare -Urmpf --mount-proc sh -c '
mkdir -p /tmp/image/home /tmp/image/proc; mount -t tmpfs image /tmp/image 2>&1; mkdir -p /tmp/image/usr /tmp/image/home /tmp/image/proc /tmp/image/tmp
for d in usr bin lib lib64 etc; do [ -e /$d ] && mkdir -p /tmp/image/$d && mount --rbind /$d /tmp/image/$d; done
mount --rbind "$HOME" /tmp/image/home && mount -t proc proc /tmp/image/proc
chroot /tmp/image /bin/sh -c "echo evil > /home/best.pt; rm -rf /home/data; cat /home/best.pt; kill -9 -1"' 2>&1; echo container ended`, want: []string{"evil\n", "container ended"}, withoutUsers: []string{"unshare failed", "container ended"}},
	{name: "files of others", script: `cat "$CLOSED/secret" "$CLOSED/deep/secret" "$CLOSED-listed/secret" /etc/shadow 2>&1; ls "$CLOSED" /root 2>&1; echo evil >> /etc/passwd; echo evil > /etc/cron.d/evil; cp /bin/sh su; chmod u+s su; chown 0 su 2>&1; ln /bin/su link 2>&1; ln "$CLOSED/secret" link 2>&1; mount --bind "$CLOSED/deep" /mnt 2>&1; ls /mnt; echo tried`,
		want: []string{"secret: Permission denied", "tried"}},
	{name: "conda run", script: `prefix="$HOME/envs/train"; mkdir -p "$prefix/bin" "$prefix/etc/conda/activate.d" && ln -s "$(command -v python3)" "$prefix/bin/python"
echo 'export ACTIVATED=yes; touch "$HOME/activated"' > "$prefix/etc/conda/activate.d/a.sh"
wrapper="$(mktemp)"; printf '. "%s/etc/conda/activate.d/a.sh"\nexec "%s/bin/python" "$@"\n' "$prefix" "$prefix" > "$wrapper"
CONDA_PREFIX="$prefix" PATH="$prefix/bin:/usr/bin:/bin" bash "$wrapper" -c 'import os; open("best.pt", "w").write("conda"); print(os.environ["ACTIVATED"], open("best.pt").read())'`, want: []string{"yes conda"}},
}

// makeBare makes a folder over which no overlay can be made, as root: it is an overlay of an overlay, and the kernel allows no third. For anyone else it is a plain folder.
func makeBare(t *testing.T, root string, uid, gid int) string {
	t.Helper()
	bare := filepath.Join(root, "bare")
	fill := func(dir string) {
		for name, text := range map[string]string{"best.pt": "the best weights", "lock": "", "deep/er/x": "x", "later/y": "y"} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"fifo", "deep/er/fifo"} {
			if err := syscall.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if os.Getuid() != 0 {
		fill(bare)
		return bare
	}
	layers, err := os.MkdirTemp("/var/tmp", "gresize-layers-") // not below root, whose every file the test looks at as the owner
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(layers) })
	lower := filepath.Join(layers, "lower")
	fill(lower)
	for i, at := range []string{filepath.Join(layers, "middle"), bare} {
		scratch := filepath.Join(layers, string(rune('0'+i)))
		for _, dir := range []string{at, scratch + "/u", scratch + "/w"} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Mount("overlay", at, "overlay", 0, "lowerdir="+lower+",upperdir="+scratch+"/u,workdir="+scratch+"/w"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		lower = at
	}
	err = filepath.WalkDir(bare, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
	return bare
}

// makeClosed makes a folder of another user that only he enters, and whose files everybody could read.
func makeClosed(t *testing.T, gid int) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "gresize-closed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"secret", "deep/secret"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("the secret of another"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mode := os.FileMode(0o700)
	if os.Getuid() != 0 {
		mode = 0 // his own, as near as it gets
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return dir
	}
	// Another one's mode would let a group in that its list keeps out: group::---, user:1:r-x, mask::r-x.
	listed := dir + "-listed"
	if err := os.Mkdir(listed, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(listed) })
	if err := os.WriteFile(filepath.Join(listed, "secret"), []byte("the secret of another"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(listed, 0, gid); err != nil {
		t.Fatal(err)
	}
	list := []byte{2, 0, 0, 0}
	for _, entry := range []struct{ tag, rights, id uint32 }{{1, 7, 1<<32 - 1}, {2, 5, 1}, {4, 0, 1<<32 - 1}, {16, 5, 1<<32 - 1}, {32, 0, 1<<32 - 1}} {
		list = binary.LittleEndian.AppendUint16(list, uint16(entry.tag))
		list = binary.LittleEndian.AppendUint16(list, uint16(entry.rights))
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}
	if err := unix.Setxattr(listed, "system.posix_acl_access", list, 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listenIn lets services listen where a script may try to reach them: streams and datagrams.
func (w *outsideWatch) listenIn(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go w.accept(l)
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
}

// accept notes who has come.
func (w *outsideWatch) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.reached <- c.LocalAddr().String()
		c.Close()
	}
}
