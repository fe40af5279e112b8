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
}
