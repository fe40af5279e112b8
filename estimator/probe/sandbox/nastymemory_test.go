package sandbox

// nastyMemory are scripts that hold memory where no process shows it, and others that reach for what is not theirs through namespaces of their own. HOARD is a program of the test's.
var nastyMemory = []nastyScript{
	{name: "the name of gresize's own report", script: `python3 -c '
import ctypes, time
ctypes.CDLL(None).prctl(15, b"gresize:0", 0, 0, 0); time.sleep(0.2); held = []
for _ in range(48): held.append(bytearray(32 << 20)); time.sleep(0.02)
time.sleep(5); print("kept")'`, bound: BoundHostMemory},
	{name: "a ramfs of its own", script: `unshare -Urm sh -c 'mount -t ramfs r /mnt && for i in $(seq 48); do head -c 32M /dev/zero > /mnt/$i; sleep 0.02; done; sleep 5; echo kept'`, bound: BoundHostMemory, withoutUsers: []string{"unshare failed"}},
	{name: "a tmpfs of its own", script: `unshare -Urm sh -c 'mount -t tmpfs -o size=4G t /mnt && for i in $(seq 48); do head -c 32M /dev/zero > /mnt/$i; sleep 0.02; done; sleep 5; echo kept'`, bound: BoundHostMemory, withoutUsers: []string{"unshare failed"}},
	{name: "a tmpfs that is detached", script: `unshare -Urm sh -c 'mount -t tmpfs -o size=4G t /mnt && cd /mnt && umount -l /mnt && for i in $(seq 48); do head -c 32M /dev/zero > ./$i; sleep 0.02; done; sleep 5; echo kept'`, bound: BoundHostMemory, withoutUsers: []string{"unshare failed"}},
	{name: "mounts without a place", script: `"$HOARD" mounts`, want: []string{"fsopen: Function not implemented", "open_tree: Function not implemented"}},
	{name: "files on their way between processes", script: `"$HOARD" flight; echo kept`, bound: BoundHostMemory},
	{name: "memory of a process that closes itself", script: `"$HOARD" closed; echo kept`, bound: BoundHostMemory},
	{name: "mappings that take long to read", script: `"$HOARD" mappings; echo kept`, bound: BoundHostMemory},
	{name: "attributes of files in memory", script: `python3 -c '
import os, time
value = bytes(60 << 10)
try:
    for i in range(1 << 16):
        path = "/dev/shm/x%d" % (i // 16)
        if i % 16 == 0: open(path, "w").close()
        os.setxattr(path, "user.n%d" % (i % 16), value)
        if i % 512 == 0: time.sleep(0.02)
except OSError as e: print("refused", e, flush=True); os._exit(7)
time.sleep(5); print("kept")'; test $? = 7 && exec python3 -c 'while True: held = bytearray(1 << 30)'`, bound: BoundHostMemory},
	{name: "a pagefault that nobody serves", script: `"$HOARD" userfault`, want: []string{"userfaultfd: Function not implemented"}},
	{name: "the group of processes that it is in", script: `unshare -UrmC sh -c 'mount -t cgroup2 none /mnt && echo 1 > /mnt/cgroup.kill && echo killed' 2>&1; unshare -Urm sh -c 'mount -t cgroup2 none /mnt && echo mounted; for c in freezer memory pids cpu; do mount -t cgroup -o $c none /mnt && mkdir /mnt/evil && echo made $c; done' 2>&1; unshare -Urm sh -c 'echo 9 > /proc/sys/user/max_cgroup_namespaces; unshare -UrmC sh -c "mount -t cgroup2 none /mnt && echo mounted"' 2>&1; echo tried`,
		want: []string{"No space left on device", "tried"}, withoutUsers: []string{"unshare failed", "tried"}},
	{name: "a file system that it serves itself", script: `ls /dev/fuse /dev/cuse 2>&1; mknod fuse c 10 229 2>&1; unshare -Urm sh -c 'mknod fuse c 10 229; mount -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 x /mnt 3<>/dev/null && echo mounted' 2>&1; echo tried`, want: []string{"cannot access '/dev/fuse'", "tried"}},
	{name: "all the watches that a user may have", script: `python3 -c '
import ctypes
libc = ctypes.CDLL(None); n = 0
while libc.inotify_init1(0) >= 0: n += 1
print("watches", 0 < n <= 64)'`, want: []string{"watches True"}, withoutUsers: []string{"watches "}},
	{name: "signals to the first process", script: `for s in STOP TERM QUIT SEGV ABRT BUS FPE ILL TRAP SYS USR1; do kill -$s 1 2>/dev/null; done; sleep 0.2; echo lives: $(cat /proc/1/comm)`, want: []string{"lives: "}},
}

// hoard takes memory in ways that a script cannot, and tries calls.
const hoard = `#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
static char block[1 << 20];
static int filled(void) { int f = memfd_create("evil", 0); for (int k = 0; k < 32; k++) if (write(f, block, sizeof block) < 0) perror("write"); usleep(20000); return f; }
static void say(const char *what, long got) { if (got < 0) perror(what); else puts(what); }
int main(int argc, char **argv) {
	const char *how = argv[1];
	memset(block, 1, sizeof block);
	if (!strcmp(how, "mounts")) { say("fsopen", syscall(SYS_fsopen, "tmpfs", 0)); say("open_tree", syscall(SYS_open_tree, -100, "/", 1)); return 0; }
	if (!strcmp(how, "userfault")) { say("userfaultfd", syscall(SYS_userfaultfd, 1)); return 0; }
	if (!strcmp(how, "flight")) {
		int s[2]; if (socketpair(AF_UNIX, SOCK_DGRAM, 0, s)) return 1;
		for (int i = 0; i < 48; i++) {
			int f = filled(); char c = 0, control[CMSG_SPACE(sizeof f)]; struct iovec io = {&c, 1};
			struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
			struct cmsghdr *h = CMSG_FIRSTHDR(&m); h->cmsg_level = SOL_SOCKET; h->cmsg_type = SCM_RIGHTS; h->cmsg_len = CMSG_LEN(sizeof f); memcpy(CMSG_DATA(h), &f, sizeof f);
			if (sendmsg(s[0], &m, MSG_DONTWAIT) < 0) { if (socketpair(AF_UNIX, SOCK_DGRAM, 0, s) || sendmsg(s[0], &m, MSG_DONTWAIT) < 0) return 1; }
			close(f);
		}
	}
	if (!strcmp(how, "closed")) { prctl(PR_SET_DUMPABLE, 0); for (int i = 0; i < 48; i++) filled(); }
	if (!strcmp(how, "mappings")) {
		if (!fork()) {
			char *p = mmap(0, 20000L * 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
			for (long i = 0; i < 20000; i++) mprotect(p + i * 8192, 4096, PROT_READ);
			for (int i = 0; i < 60; i++) if (!fork()) { pause(); _exit(0); }
			pause();
		}
		sleep(2);
		for (int i = 0; i < 48; i++) { char *m = malloc(32 << 20); memset(m, 1, 32 << 20); usleep(20000); }
	}
	sleep(5);
	return 0;
}
`
