package sandbox

import "fmt"

// oneCall is a script that makes one system call and says what came of it.
func oneCall(arguments string) string {
	return fmt.Sprintf(`python3 -c '
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(4096)
vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(buffer), 8))
neighbour, own = int(os.environ.get("NEIGHBOUR", "1")), os.getpid()
got = libc.syscall(%s)
print("refused" if got == -1 else "done", os.strerror(ctypes.get_errno()))'`, arguments)
}

// nastyCalls go past the programs that an administrator knows, by the numbers of the calls themselves.
var nastyCalls = []nastyScript{
	{name: "a ring of the kernel that makes calls unseen", script: oneCall(`425, 8, buffer`), want: []string{"refused"}},
	{name: "a program in the kernel", script: oneCall(`321, 0, buffer, 48`), want: []string{"refused"}},
	{name: "counters of the kernel", script: oneCall(`298, buffer, -1, 0, -1, 0`), want: []string{"refused"}},
	{name: "a file by its handle", script: oneCall(`304, -100, buffer, 0`), want: []string{"refused"}},
	{name: "memory of a neighbour", script: oneCall(`310, neighbour, vector, 1, vector, 1, 0`), want: []string{"refused"}},
	{name: "a file of the sandbox's first process", script: `python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(434, 1, 0)
print("refused" if fd < 0 or libc.syscall(438, fd, 0, 0) < 0 else "done")'`, want: []string{"refused"}},
	{name: "the namespaces of the sandbox's first process", script: `for n in mnt net pid ipc uts user; do nsenter --target 1 --$n true 2>/dev/null; nsenter --$n=/proc/1/ns/$n sh -c 'echo evil > "$HOME/best.pt"' 2>/dev/null; done; echo tried`, want: []string{"tried"}},
	{name: "a file system by handle", script: oneCall(`430, b"tmpfs", 0`), want: []string{"refused"}},
	{name: "a tree of mounts that is taken off", script: oneCall(`428, -100, b"/", 1`), want: []string{"refused"}},
	{name: "attributes of a mount", script: oneCall(`442, -100, b"/", 0x8000, buffer, 32`), want: []string{"refused"}},
	{name: "a module of the kernel", script: oneCall(`175, buffer, 4096, b""`), want: []string{"refused"}},
	{name: "another kernel", script: oneCall(`246, 0, 0, 0, 0`), want: []string{"refused"}},
	{name: "accounting into a file", script: oneCall(`163, b"best.pt"`), want: []string{"refused"}},
	{name: "swap", script: oneCall(`167, b"best.pt", 0`), want: []string{"refused"}},
	{name: "ptrace of the sandbox's first process", script: oneCall(`101, 16, 1, 0, 0`), want: []string{"refused"}},
	{name: "a watch over a whole file system", script: oneCall(`300, 0x4, 0`), want: []string{"refused"}},
	{name: "the machine's clock", script: oneCall(`227, 0, buffer`), want: []string{"refused"}},
	{name: "a packet socket, with an address of another", script: `python3 -c '
import socket
try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); print("done")
except OSError as e: print("refused", e)'`, want: []string{"refused"}},
	{name: "the switches of the kernel", script: `for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sys/kernel/yama/ptrace_scope /proc/1/oom_score_adj /sys/power/state; do (echo 1 > $f) 2>/dev/null && echo done $f; done; echo tried`, want: []string{"tried"}},
	{name: "a first place among the processes", script: `(echo -1000 > /proc/self/oom_score_adj) 2>/dev/null && echo done; chrt -f 50 true 2>/dev/null && echo done; nice -n -20 true 2>/dev/null; echo tried`, want: []string{"tried"}},
	{name: "a program that is only in memory", script: `python3 -c '
import os
fd = os.memfd_create("x"); os.write(fd, open("/bin/sh", "rb").read())
os.execve("/proc/self/fd/%d" % fd, ["sh", "-c", "echo evil > best.pt; cat best.pt"], dict(os.environ))'`, want: []string{"evil"}},
	{name: "the program of the sandbox itself", script: `(echo x > /proc/1/exe) 2>/dev/null && echo done; (echo x >> /proc/1/mem) 2>/dev/null && echo done; cat /proc/1/environ 2>/dev/null | head -c 10; echo tried`, want: []string{"tried"}},
	{name: "a tree of mounts with attributes, in a namespace of its own", script: `python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
buffer = ctypes.create_string_buffer(32)
libc.unshare(0x10020000)
print([libc.syscall(467, -100, b"/", flags, buffer, 32) for flags in (1, 0x8001)])'`, want: []string{"[-1, -1]"}},
	{name: "memory that no other may see", script: oneCall(`447, 0`), want: []string{"refused"}},
	{name: "a write into the memory of the first process", script: oneCall(`311, 1, vector, 1, vector, 1, 0`), want: []string{"refused"}},
	{name: "the first process's namespaces by its handle", script: oneCall(`308, libc.syscall(434, 1, 0), 0x6c020000`), want: []string{"refused"}},
	{name: "a namespace of clocks", script: oneCall(`272, 0x80`), want: []string{"refused"}},
	{name: "ports of the machine", script: oneCall(`172, 3`) + "; " + oneCall(`173, 0x70, 2, 1`), want: []string{"refused", "\nrefused"}},
	{name: "the log of the kernel", script: oneCall(`103, 3, buffer, 4096`), want: []string{"refused"}},
	{name: "a comparison with the first process", script: oneCall(`312, 1, own, 0, 0, 0`), want: []string{"refused"}},
	{name: "pages of the first process", script: oneCall(`279, 1, 1, vector, buffer, buffer, 0`) + "; " + oneCall(`256, 1, 64, buffer, buffer`), want: []string{"refused", "\nrefused"}},
	{name: "advice on the first process's memory", script: oneCall(`440, libc.syscall(434, 1, 0), vector, 1, 20, 0`), want: []string{"refused"}},
	{name: "quotas", script: oneCall(`179, 0x80000700, b"/", 0, buffer`) + "; " + oneCall(`443, 0, 0x80000700, 0, buffer`), want: []string{"refused", "\nrefused"}},
	{name: "a mount that is moved", script: oneCall(`429, -100, b"/tmp", -100, b"/mnt", 0`), want: []string{"refused"}},
	{name: "a file system that is picked up", script: oneCall(`433, -100, b"/", 0`), want: []string{"refused"}},
	{name: "sockets of all families", script: `python3 -c '
import socket
made = set()
for family in range(1, 47):
    for kind in (1, 2, 3, 5):
        try: socket.socket(family, kind).close(); made.add(family)
        except OSError: pass
print("others", sorted(made - {1, 2, 10, 16}))'`, want: []string{"others []"}},
	{name: "devices that open doors", script: `for d in kvm fuse net/tun loop-control userfaultfd vhost-net vfio/vfio cuse snapshot mem; do (exec 3< /dev/$d) 2>/dev/null && echo done $d; done; for f in /proc/kcore /proc/kmsg /proc/1/maps /proc/1/auxv; do head -c 1 $f >/dev/null 2>&1 && echo done $f; done; echo tried`, want: []string{"tried"}},
}
