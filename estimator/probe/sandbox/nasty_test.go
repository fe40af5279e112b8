package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// nastyScript is what a job might do to the world around it. Its output must hold want: the proof that it was tried, and how it ended inside.
type nastyScript struct {
	name, script string
	want         []string
	// bound is the bound at which the sandbox must end the script; cancel says that only the end of its time does.
	bound  Bound
	cancel bool
	// overlay says that the script is about a place beside the home over which no overlay can be made: where there are none at all, it is another one.
	overlay bool
	// withoutUsers is want, and no bound is met, where there are no user namespaces.
	withoutUsers []string
}

// nastyScripts run one after the other, each in a sandbox of its own. What they find: HOME with best.pt, .bashrc, a fifo, a lock and a repository; WORLD with services and a
// neighbour of the same user: NEIGHBOUR (process), PORT, SOCKET, ABSTRACT; the programs STATIC, PRELOAD and VSOCK of this test.
var nastyScripts = []nastyScript{
	// files
	{name: "rm -rf of the home", script: `rm -rf "$HOME"/* "$HOME"/.[a-z]*; ls -A "$HOME" | wc -l`, want: []string{"0\n"}},
	{name: "overwrite of the best checkpoint", script: `echo worse > best.pt; cat best.pt`, want: []string{"worse"}},
	{name: "truncation through a hard link", script: `ln best.pt mine && : > mine; wc -c < mine`, want: []string{"0\n"}},
	{name: "write through a shared mapping", script: `python3 -c '
import mmap
f = open("best.pt", "r+b"); m = mmap.mmap(f.fileno(), 0); m[:4] = b"evil"; m.flush(); print(open("best.pt", "rb").read(4))'`, want: []string{"b'evil'"}},
	{name: "reopening a read-only file for writing", script: `exec 5<best.pt; echo evil > /proc/self/fd/5; cat best.pt`, want: []string{"evil"}},
	{name: "a line in .bashrc", script: `echo 'touch pwned' >> ~/.bashrc; tail -n1 ~/.bashrc`, want: []string{"touch pwned"}},
	{name: "a key for ssh", script: `mkdir -p ~/.ssh && echo key > ~/.ssh/authorized_keys && cat ~/.ssh/authorized_keys`, want: []string{"key"}},
	{name: "modes, owners and times", script: `chmod -R 000 best.pt data; touch -d 2001-01-01 .bashrc; setfattr -n user.evil -v 1 lock; chgrp 0 lock 2>/dev/null; stat -c %a best.pt`, want: []string{"0\n"}},
	{name: "renaming of directories", script: `mv data other && mkdir data && echo x > data/x; ls data`, want: []string{"x\n"}},
	{name: "a symlink out of the project", script: `ln -sfn / root; echo evil > "root$HOME/best.pt"; rm -rf "root$HOME/data"; cat best.pt`, want: []string{"evil"}},
	{name: "a file of 100 GB", script: `fallocate -l 100G big 2>&1; truncate -s 100G sparse; head -c 1G /dev/zero > real; ls -l real`, want: []string{"real"}},
	{name: "twenty thousand files", script: `mkdir many; python3 -c '
n = 0
try:
    for n in range(20000): open("many/%d" % n, "w").close()
except OSError as e: print(e)
print("made", n > 1000)'`, want: []string{"made True"}},
	{name: "directories without a bottom", script: `i=0; while [ $i -lt 600 ]; do mkdir deep 2>/dev/null && cd deep || break; i=$((i+1)); done; echo $i`, want: []string{"600"}},
	{name: "a push to a repository", script: `git -c safe.directory='*' clone -q repo work 2>&1; cd work && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m evil && git push -q origin HEAD:evil 2>&1; git -c safe.directory='*' -C ../repo branch --list`, want: []string{"evil"}},
	{name: "rsync --delete over the results", script: `mkdir empty; cp -a data saved; rm -rf data; mv empty data; ls data | wc -l`, want: []string{"0\n"}},
	{name: "a write into somebody's fifo", script: `timeout 1 sh -c 'echo evil > fifo'; echo tried`, want: []string{"tried"}},
	{name: "a lock that is kept", script: `exec 9>>lock; flock -n 9 && echo locked; sleep 0.1 & `, want: []string{"locked"}},
	{name: "shared memory that is left", script: `echo x > /dev/shm/evil; ls /dev/shm`, want: []string{"evil"}},
	{name: "files in /tmp and /var/tmp", script: `touch /tmp/gresize-nasty /var/tmp/gresize-nasty; ls /tmp/gresize-nasty`, want: []string{"gresize-nasty"}},
	// the system
	{name: "bind mounts in a namespace of its own", script: `unshare -Urm sh -c 'umount -l "$HOME"; umount -l /; umount -R /tmp; mount --bind /proc/1/root /mnt; echo evil > "$HOME/best.pt"' 2>&1; echo tried`, want: []string{"tried"}},
	{name: "pivot_root", script: `unshare -Urm sh -c 'mkdir -p /tmp/r && mount -t tmpfs t /tmp/r && mkdir /tmp/r/o && pivot_root /tmp/r /tmp/r/o' 2>&1; echo tried`, want: []string{"tried"}},
	{name: "remounting for writing", script: `mount -o remount,rw / 2>&1; mount -o remount,rw /sys 2>&1; echo x > /sys/kernel/mm/ksm/run`, want: []string{"must be superuser", "Read-only file system"}},
	{name: "writes through /proc", script: `for f in /proc/1/mem /proc/1/root/etc/passwd /proc/1/oom_score_adj /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do ( echo x > $f ) 2>/dev/null && echo wrote $f; done; ls /proc/1/cwd/ /proc/1/fd 2>&1; echo tried`, want: []string{"tried"}},
	{name: "device files", script: `mknod sda b 8 0 2>&1; mknod mem c 1 1 2>&1; ls /dev/sda /dev/vda /dev/mem /dev/kmsg 2>&1; echo tried`, want: []string{"not permitted", "tried"}},
	{name: "setuid programs", script: `cp /bin/sh mysh; chmod u+s mysh; ./mysh -c 'id -u'; su -c id 2>&1 </dev/null; mount -t tmpfs t /mnt 2>&1; grep NoNewPrivs /proc/self/status`, want: []string{"NoNewPrivs:\t1"}},
	{name: "file capabilities", script: `cp /bin/sh capsh; setcap cap_sys_admin+ep capsh 2>&1; ./capsh -c 'grep CapEff /proc/self/status'`, want: []string{"CapEff:\t0000000000000000"}},
	{name: "other user numbers", script: `newuidmap $$ 0 0 1 2>&1; python3 -c '
import os
try: os.setuid(0 if os.getuid() else 1); print("became", os.getuid())
except OSError as e: print("refused")'`, want: []string{"refused"}},
	{name: "reboot, clock and host name", script: `python3 -c '
import ctypes; libc = ctypes.CDLL(None, use_errno=True); print("reboot", libc.reboot(0x1234567), ctypes.get_errno())'; date -s 2001-01-01 2>&1 | tail -n1; hostname evil 2>&1; ip link add evil type dummy 2>&1; echo tried`, want: []string{"reboot -1 1", "tried"}},
	{name: "keys of the kernel", script: `python3 -c '
import ctypes; libc = ctypes.CDLL(None, use_errno=True)
for ring in (-3, -4, -5): print(libc.syscall(248 if __import__("platform").machine() == "x86_64" else 217, b"user", b"gresize-evil", b"x", 1, ring), ctypes.get_errno())'`, want: []string{"-1 38\n-1 38\n-1 38\n"}},
	{name: "System V memory and queues", script: `ipcmk -M 4096; ipcmk -Q; ipcmk -S 2; ipcrm -a 2>&1; ipcs -m | grep -c 0x`, want: []string{"Shared memory id", "0\n"}},
	{name: "a message queue", script: `python3 -c '
import ctypes; libc = ctypes.CDLL("librt.so.1", use_errno=True); print("queue", libc.mq_open(b"/gresize-evil", 0o102, 0o600, None) >= -1)'`, want: []string{"queue True"}},
	{name: "cron and at", script: `echo '* * * * * touch pwned' | crontab - 2>&1; echo touch pwned | at now 2>&1; echo tried`, want: []string{"tried"}},
	// processes
	{name: "fork bomb", script: `bomb() { bomb | bomb & }; bomb; while :; do :; done`, bound: BoundProcesses},
	{name: "a fork bomb that ends at once when it is refused a process", script: `exec python3 -c '
import os, signal
try:
    while True:
        if os.fork() == 0: signal.pause()
except OSError: os._exit(3)'`, bound: BoundProcesses},
	{name: "a bomb of threads", script: `python3 -c '
import threading, time
n = 0
try:
    while n < 20000: threading.Thread(target=time.sleep, args=(30,), daemon=True).start(); n += 1
except RuntimeError as e: print("refused", e, flush=True)
import os; os._exit(0)'`, want: []string{"refused"}},
	{name: "all the memory", script: `python3 -c '
held = []
while True: held.append(bytearray(32 << 20))'`, bound: BoundHostMemory},
	{name: "a child that becomes a daemon", script: `python3 -c '
import os, signal, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for s in range(1, 32):
    try: signal.signal(s, signal.SIG_IGN)
    except OSError: pass
time.sleep(300)'; echo gone`, want: []string{"gone"}},
	{name: "a child that keeps the output open", script: `sleep 300 & echo ends`, want: []string{"ends"}},
	{name: "signals that are ignored", script: `trap '' TERM INT HUP QUIT; echo ready; while :; do sleep 1; done`, want: []string{"ready"}, cancel: true},
	{name: "a trap that cleans up", script: `trap 'rm -rf "$HOME"/*; echo cleaned' EXIT; exit 3`, want: []string{"cleaned"}},
	{name: "kill of everything", script: `echo tried; kill -9 1; kill -9 -1; echo not here`, want: []string{"tried"}},
	{name: "ptrace of a neighbour", script: `python3 -c '
import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); print(libc.ptrace(16, int(os.environ["NEIGHBOUR"]), 0, 0), ctypes.get_errno() in (1, 3))'; kill -9 "$NEIGHBOUR" 2>&1; cat "/proc/$NEIGHBOUR/environ" 2>&1; echo tried`, want: []string{"-1 True", "tried"}},
	{name: "a core file", script: `ulimit -c unlimited 2>/dev/null; sh -c 'kill -SEGV $$'; ls core* 2>/dev/null | wc -l`, want: []string{"0\n"}},
	{name: "limits that are lifted", script: `bash -c 'ulimit -u unlimited; [ $(ulimit -u) -le 864 ] && echo bounded' 2>&1`, want: []string{"cannot modify limit", "bounded"}, withoutUsers: []string{"cannot modify limit"}},
	// the network
	{name: "a service on the host's loopback", script: `python3 -c '
import os, socket
for what, address in ((socket.AF_INET, ("127.0.0.1", int(os.environ["PORT"]))), (socket.AF_UNIX, os.environ["SOCKET"]), (socket.AF_UNIX, "\0" + os.environ["ABSTRACT"])):
    s = socket.socket(what); s.settimeout(2)
    try: s.connect(address); print("reached", address)
    except OSError: print("refused")'`, want: []string{"refused\nrefused\nrefused\n"}},
	{name: "a download and an upload", script: `python3 -c '
import socket
try: socket.create_connection(("192.0.2.1", 443), 2); print("reached")
except OSError: print("refused")'; env | grep -E '^(WANDB_MODE|HF_HUB_OFFLINE)' | wc -l`, want: []string{"refused"}},
	{name: "VSOCK to the hypervisor", script: `"$VSOCK"`, want: []string{"vsock: Address family not supported by protocol"}},
	// Slurm, mail
	{name: "nested sbatch", script: `sbatch --wrap hostname 2>&1; /usr/bin/sbatch --wrap hostname 2>&1; echo tried`, want: []string{"tried"}},
	{name: "scancel and requeue of the job", script: `scancel 1 2>&1; scontrol requeue 1 2>&1; echo $?`, want: []string{"0\n"}},
	{name: "mail and ssh", script: `echo hi | mail -s done me@example.org 2>/dev/null; ssh login.example 'rm -rf results' 2>/dev/null; rsync -a . host:/results 2>/dev/null; echo $?`, want: []string{"0\n"}},
	// programs that nobody looks into
	{name: "an environment that is emptied", script: `env -i /bin/sh -c 'echo evil > best.pt; cat best.pt'`, want: []string{"evil"}},
	{name: "a static program", script: `"$STATIC" best.pt; cat best.pt`, want: []string{"written by a static program"}},
	{name: "python -I", script: `python3 -I -c 'open("best.pt", "w").write("isolated"); print(open("best.pt").read())'`, want: []string{"isolated"}},
	{name: "a preloaded library of its own", script: `LD_PRELOAD="$PRELOAD" cat best.pt; cat best.pt`, want: []string{"written by a preloaded library"}},
	{name: "a flood of output", script: `yes evil | head -c 300M; echo; echo end`, want: []string{"end\n"}},
	{name: "a full report directory", script: `dd if=/dev/zero of=` + ReportDir + `/x bs=1M count=100 2>&1; echo tried`, want: []string{"No space left", "tried"}},
}

func allNasty() []nastyScript {
	return slices.Concat(nastyScripts, nastyCalls, nastyPlaces, nastyMemory)
}

// nastyWorld is what the scripts attack; it is handed to the test that runs as the job's owner.
type nastyWorld struct {
	Root, Home, Bare string
	Env              []string
	// Copies says that there are no overlays, NoUsers that users make no user namespaces.
	Copies, NoUsers bool
}

// TestNastyScripts has every nasty script run in a sandbox, and compares the world before and after. NASTY_PLACE is the folder for that world, /var/tmp where nobody says: another file system is
// tried with it.
func TestNastyScripts(t *testing.T) { nasty(t, "") }

// TestNastyScriptsOnOldKernels has the same scripts meet what is done where the kernel lacks something.
func TestNastyScriptsOnOldKernels(t *testing.T) {
	if os.Getenv("GRESIZE_NIGHTLY") == "" {
		t.Skip("a part of make nightly: GRESIZE_NIGHTLY is not set")
	}
	for _, kernel := range []string{"4.18", "4.18 with users' overlay"} {
		t.Run(kernel, func(t *testing.T) { nasty(t, kernel) })
	}
}

// nasty runs them all on one of oldKernels.
func nasty(t *testing.T, kernel string) {
	if n := len(allNasty()); n < 70 {
		t.Fatalf("only %d scripts", n)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid = 54331 + os.Getpid()%10_000 // not that of the same test beside this one
		gid = uid
	}
	place := os.Getenv("NASTY_PLACE")
	if place == "" {
		place = "/var/tmp"
	}
	root, err := os.MkdirTemp(place, "gresize-nasty-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	temporary := filepath.Join(root, "tmp")
	if place != "/var/tmp" {
		// As on a node of a cluster: the home is there, and what is temporary on a disk of its own.
		if temporary, err = os.MkdirTemp("/var/tmp", "gresize-nasty-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(temporary) })
		if err := os.Chown(temporary, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(root, "home")
	makeNastyHome(t, home)
	programs := makeNastyPrograms(t, root)
	err = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
	if err != nil {
		t.Fatal(err)
	}
	if uid != os.Getuid() { // root: a mount beside the home makes another view necessary, entry by entry
		if err := unix.Mount("tmpfs", filepath.Join(root, "scratch"), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(root, "scratch"), unix.MNT_DETACH) })
	}
	world := nastyWorld{Root: root, Home: home, Bare: makeBare(t, root, uid, gid), Copies: oldKernels[kernel].copies, NoUsers: kernel == noUsers, Env: append(programs, "GRESIZE_TEST_KERNEL="+kernel, "HOME="+home, "TMPDIR="+temporary, "PATH="+os.Getenv("PATH"))}
	if world.NoUsers {
		putHelper(t, root)
	}
	outside := watchOutside(t, root, &world, uid, gid)
	before := outside.look(t)
	asOwner(t, root, world, uid, gid)
	if diff := cmp.Diff(before, outside.look(t)); diff != "" {
		t.Errorf("the world outside changed:\n%s", diff)
	}
	page, err := os.ReadFile("../../../docs/sandbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range allNasty() {
		if !bytes.Contains(page, []byte("| "+s.name+" |")) {
			t.Errorf("docs/sandbox.md has no row of %q", s.name)
		}
	}
}

func makeNastyHome(t *testing.T, home string) {
	t.Helper()
	for name, text := range map[string]string{"best.pt": "the best weights", ".bashrc": "# mine\n", "lock": "", "data/a": "a", "data/deep/b": "b", "../tmp/x": "x", "../scratch/y": "y"} {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(home, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "-q", "--bare", filepath.Join(home, "repo")).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
}

// makeNastyPrograms compiles what a script cannot say.
func makeNastyPrograms(t *testing.T, root string) []string {
	t.Helper()
	programs := []struct{ variable, source, flags string }{
		{"STATIC", `#include <fcntl.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) { const char *s = "written by a static program\n"; int f = open(argv[1], O_WRONLY | O_TRUNC); return write(f, s, strlen(s)) < 0; }`, "-static"},
		{"PRELOAD", `#include <fcntl.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void evil(void) { const char *s = "written by a preloaded library\n"; int f = open("best.pt", O_WRONLY | O_TRUNC); if (write(f, s, strlen(s)) < 0) _exit(9); }`, "-shared"},
		{"VSOCK", `#include <stdio.h>
#include <sys/socket.h>
int main(void) { if (socket(AF_VSOCK, SOCK_STREAM, 0) >= 0) { puts("vsock: made"); return 0; } perror("vsock"); return 0; }`, "-O1"},
		{"HOARD", hoard, "-O1"},
	}
	var env []string
	for _, p := range programs {
		path := filepath.Join(root, strings.ToLower(p.variable))
		cmd := exec.Command("gcc", "-fPIC", p.flags, "-x", "c", "-", "-o", path)
		cmd.Stdin = strings.NewReader(p.source)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
		env = append(env, p.variable+"="+path)
	}
	return env
}

// outsideWatch looks at what is not in the home: services, a neighbour, what the kernel keeps.
type outsideWatch struct {
	uid       int
	fifos     []*os.File
	neighbour *exec.Cmd
	reached   chan string
}

func watchOutside(t *testing.T, root string, world *nastyWorld, uid, gid int) *outsideWatch {
	t.Helper()
	w := &outsideWatch{uid: uid, reached: make(chan string, 100)}
	abstract := "gresize-nasty-" + strconv.Itoa(os.Getpid())
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(root, "socket"), "unix ": "@" + abstract} {
		l, err := net.Listen(strings.TrimSpace(network), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			world.Env = append(world.Env, "PORT="+strconv.Itoa(tcp.Port))
		}
		go w.accept(l)
	}
	if err := os.Chmod(filepath.Join(root, "socket"), 0o777); err != nil {
		t.Fatal(err)
	}
	onTmpfs := filepath.Join(root, "scratch/socket")
	for _, path := range []string{onTmpfs, world.Bare + "/socket", world.Bare + "/deep/er/socket", world.Bare + "/later/socket"} {
		w.listenIn(t, path)
	}
	world.Env = append(world.Env, "BARE="+world.Bare, "CLOSED="+makeClosed(t, gid), "ON_TMPFS="+onTmpfs, "SSH_AUTH_SOCK="+onTmpfs, "DBUS_SESSION_BUS_ADDRESS=unix:path="+filepath.Join(root, "socket"), "DOCKER_HOST=unix://"+world.Bare+"/socket")
	w.neighbour = exec.Command("sleep", "600")
	w.neighbour.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		w.neighbour.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if err := w.neighbour.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.neighbour.Process.Kill(); _ = w.neighbour.Wait() })
	for _, path := range []string{world.Home + "/fifo", world.Bare + "/fifo", world.Bare + "/deep/er/fifo"} {
		fifo, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { fifo.Close() })
		w.fifos = append(w.fifos, fifo)
	}
	world.Env = append(world.Env, "NEIGHBOUR="+strconv.Itoa(w.neighbour.Process.Pid), "SOCKET="+filepath.Join(root, "socket"), "ABSTRACT="+abstract)
	return w
}

// look gathers what a script must not change.
func (w *outsideWatch) look(t *testing.T) map[string]string {
	t.Helper()
	seen := map[string]string{"services reached": strconv.Itoa(len(w.reached))}
	for _, path := range []string{"/proc/sysvipc/shm", "/proc/sysvipc/msg", "/proc/sysvipc/sem", "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/etc/passwd"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		seen[path] = string(data)
	}
	for _, pattern := range []string{"/tmp/gresize-nasty*", "/var/tmp/gresize-nasty", "/dev/shm/evil", "/dev/mqueue/gresize-evil", "/var/spool/cron/crontabs/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		seen[pattern] = strings.Join(found, " ")
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(w.neighbour.Process.Pid) + "/stat")
	if err != nil {
		t.Errorf("the neighbour is gone: %v", err)
	} else {
		seen["the neighbour is stopped or dead"] = strconv.FormatBool(bytes.ContainsAny(stat[bytes.LastIndexByte(stat, ')')+2:][:1], "tTZX"))
	}
	for _, fifo := range w.fifos {
		buffer := make([]byte, 16)
		n, _ := syscall.Read(int(fifo.Fd()), buffer)
		seen[fifo.Name()] = string(buffer[:max(n, 0)])
	}
	if os.Getuid() == 0 {
		seen["processes of the owner"] = strconv.Itoa(len(processesOf(t, w.uid)))
	}
	return seen
}

func processesOf(t *testing.T, uid int) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(func(yield func(int) bool) {
		for _, dir := range dirs {
			var st syscall.Stat_t
			pid, _ := strconv.Atoi(filepath.Base(dir))
			if syscall.Stat(dir, &st) == nil && int(st.Uid) == uid && !yield(pid) {
				return
			}
		}
	})
}

// asOwner runs TestNastyAsOwner as the job's owner, from a copy that he can read.
func asOwner(t *testing.T, root string, world nastyWorld, uid, gid int) {
	t.Helper()
	program := filepath.Join(root, "program")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(world)
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^TestNastyAsOwner$"
	if _, one, some := strings.Cut(flag.Lookup("test.run").Value.String(), "TestNastyScripts/"); some {
		pattern += "/" + one
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run="+pattern, "-test.v")
	cmd.Dir = world.Home
	cmd.Env = append(slices.Clone(world.Env), "GRESIZE_TEST_WORLD="+string(text))
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d scripts\n%s", strings.Count(string(out), "--- PASS: TestNastyAsOwner/"), out)
}

// tailWriter keeps the last bytes of a flood.
type tailWriter struct{ data []byte }

func (w *tailWriter) Write(p []byte) (int, error) {
	w.data = append(w.data, p[max(0, len(p)-8192):]...)
	w.data = w.data[max(0, len(w.data)-8192):]
	return len(p), nil
}

// TestNastyAsOwner is the part of TestNastyScripts that runs as the job's owner.
func TestNastyAsOwner(t *testing.T) {
	text := os.Getenv("GRESIZE_TEST_WORLD")
	if text == "" {
		t.Skip("one half of another test, which starts it in a process of its own")
	}
	var world nastyWorld
	if err := json.Unmarshal([]byte(text), &world); err != nil {
		t.Fatal(err)
	}
	before := everything(t, world)
	for _, s := range allNasty() {
		if world.Copies && s.overlay {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			patience := 20 * time.Second
			if s.cancel {
				patience = time.Second
				if world.Copies {
					patience += 10 * time.Second // they take their time
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var out tailWriter
			p, err := Start(ctx, Spec{
				Argv: []string{"/bin/sh", "-c", s.script}, Env: append(slices.Clone(world.Env), "PATH="+ShimDir+":"+os.Getenv("PATH")), Dir: world.Home, Output: &out,
				Policy: Policy{Copies: world.Copies, Processes: 200, HostMemoryBytes: 512 << 20, ScratchBytes: 64 << 20, ReportBytes: 16 << 20},
			})
			if err != nil {
				t.Fatal(err)
			}
			exit := p.Wait()
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if exit.ByHelper != world.NoUsers {
				t.Errorf("by the helper: %v", exit.ByHelper)
			}
			bound := s.bound
			if world.NoUsers && s.withoutUsers != nil {
				bound = ""
			}
			if exit.Bound != bound || s.cancel != (ctx.Err() != nil) {
				t.Errorf("%+v, ended by its time: %v\n%s", exit, ctx.Err() != nil, out.data)
			}
			want := s.want
			if world.NoUsers && s.withoutUsers != nil {
				want = s.withoutUsers
			}
			for _, want := range want {
				if !strings.Contains(string(out.data), want) {
					t.Errorf("no %q in\n%s", want, out.data)
				}
			}
			if strings.Contains(string(out.data), "the secret of another") {
				t.Errorf("it was read:\n%s", out.data)
			}
			assertNothingLeft(t)
			if diff := cmp.Diff(before, everything(t, world)); diff != "" {
				t.Errorf("the world changed:\n%s", diff)
			}
		})
	}
}

// unleased opens a file for writing, which a lease of somebody would not let through at once.
func unleased(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// everything is every byte, mode, owner, time and attribute below the world's root, and whether its lock is free.
func everything(t *testing.T, world nastyWorld) map[string]string {
	t.Helper()
	tree := snapshot(t, world.Root)
	for path := range tree {
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		names := make([]byte, 1024)
		n, _ := unix.Llistxattr(path, names)
		tree[path] += fmt.Sprint(st.Uid, st.Gid, st.Nlink, names[:max(n, 0)])
	}
	for _, path := range []string{world.Home + "/lock", world.Bare + "/lock"} {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Errorf("the lock %s is held: %v", path, err)
		}
	}
	if err := unleased(world.Home + "/best.pt"); err != nil {
		t.Errorf("a lease is held: %v", err)
	}
	// The mount points of the sandboxes are made there, and taken away.
	maps.DeleteFunc(tree, func(path, _ string) bool { return path == os.TempDir() || path == filepath.Dir(os.TempDir()) })
	return tree
}
