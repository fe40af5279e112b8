package hostmem

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// held is a program of Python that is stopped at each of its stages: it prints a line, and goes on when it reads one.
type held struct {
	t    *testing.T
	in   io.WriteCloser
	out  *bufio.Reader
	cmd  *exec.Cmd
	tree Lister
}

func begin(t *testing.T, program string) *held {
	t.Helper()
	h := &held{t: t, cmd: exec.CommandContext(t.Context(), "python3", "-c", "import mmap, os, sys, time\ndef stage():\n print('here', flush=True)\n sys.stdin.readline()\n"+program)}
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.cmd.Stderr, h.out = os.Stderr, bufio.NewReader(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.tree = TreeOf(h.cmd.Process.Pid)
	h.arrive()
	return h
}

// arrive waits until the program is at its next stage.
func (h *held) arrive() {
	h.t.Helper()
	if _, err := h.out.ReadString('\n'); err != nil {
		h.t.Fatal(err)
	}
}

func (h *held) next() {
	h.t.Helper()
	if _, err := h.in.Write([]byte("\n")); err != nil {
		h.t.Fatal(err)
	}
	h.arrive()
}

func (h *held) end() {
	h.t.Helper()
	if err := errors.Join(h.in.Close(), h.cmd.Wait()); err != nil {
		h.t.Error(err)
	}
}

// closely looks at every mapping now, however recent the last such look is.
func (s *Sampler) closely() Use {
	s.peak, s.lastUse, s.known = Use{}, Use{}, nil
	s.sample()
	return s.peak
}

const mib = int64(1) << 20

// TestSharedPagesCountOnce lets a process share 200 MiB with three children, as data loaders do.
func TestSharedPagesCountOnce(t *testing.T) {
	h := begin(t, `
block = bytearray(b'x') * (200 << 20)
held = []
for _ in range(3):
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(w); os.read(r, 1); os._exit(0)
    held.append(w)
stage()`)
	if pids := h.tree(); len(pids) != 4 || pids[0] != h.cmd.Process.Pid {
		t.Errorf("tree: %v", pids)
	}
	var told []Use
	s := &Sampler{list: h.tree, step: 16 << 20, notify: func(u Use) { told = append(told, u) }}
	s.sample()
	s.sample()
	if s.peak.NeedBytes < 200*mib || s.peak.NeedBytes > 240*mib {
		t.Errorf("%d MiB for 200 MiB that four processes share", s.peak.NeedBytes>>20)
	}
	if len(told) != 1 || told[0].NeedBytes > s.peak.NeedBytes {
		t.Errorf("told %v, peak %d", told, s.peak)
	}
	h.end()
	if slices.Contains(AllButSelf(), os.Getpid()) {
		t.Error("AllButSelf lists itself")
	}
}

// TestBorrowedMemoryCountsOnce keeps a child between posix_spawn and exec: it waits for the other end of a FIFO, in its parent's memory.
func TestBorrowedMemoryCountsOnce(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h := begin(t, `
block = bytearray(b'x') * (200 << 20)
stage()
os.waitpid(os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, `+strconv.Quote(fifo)+`, os.O_WRONLY, 0)]), 0)
`)
	if _, err := h.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	for len(h.tree()) < 2 {
		time.Sleep(time.Millisecond)
	}
	s := &Sampler{list: h.tree}
	for look, use := range map[string]Use{"a close look": s.closely(), "the counters": func() Use { s.sample(); return s.peak }()} {
		if use.NeedBytes < 200*mib || use.NeedBytes > 260*mib {
			t.Errorf("%s: %d MiB, want about 215", look, use.NeedBytes/mib)
		}
	}
	if end, err := os.Open(fifo); err != nil {
		t.Error(err)
	} else {
		defer end.Close()
	}
	h.end()
}

// TestWhatFollowsSharing: once the children are gone, or have changed what they shared, the plain sums say nothing of how much there is.
func TestWhatFollowsSharing(t *testing.T) {
	h := begin(t, `
block = bytearray(b'x') * (64 << 20)
pipes = []
for _ in range(4):
    r, w = os.pipe()
    back, done = os.pipe()
    if os.fork() == 0:
        for _, other, _ in pipes: os.close(other)
        os.close(w)
        if os.read(r, 1):
            for i in range(0, len(block), 4096): block[i] = 1
            os.write(done, b'.')
            os.read(r, 1)
        os._exit(0)
    pipes.append((r, w, back))
stage()
for _, w, _ in pipes: os.write(w, b'.')
for _, _, back in pipes: os.read(back, 1)
stage()
for _, w, _ in pipes: os.close(w)
for _ in pipes: os.wait()
more = bytearray(b'x') * (96 << 20)
stage()`)
	s := &Sampler{list: h.tree}
	for _, want := range []int64{64, 5 * 64, 64 + 96} {
		s.rest, s.lastLook = 0, s.lastLook.Add(-leastRest) // as much later
		s.peak = Use{}
		for s.sample(); s.running != nil; s.sample() { // on a busy machine a close look takes longer than one is waited for
		}
		if got := s.peak.NeedBytes >> 20; got < want || got > want+40 {
			t.Errorf("%d MiB, want %d and five interpreters", got, want)
		}
		if want != 64+96 {
			h.next()
		}
	}
	h.end()
}

// TestWhatWasThereForAMoment: a peak between two looks is known to the kernel.
func TestWhatWasThereForAMoment(t *testing.T) {
	h := begin(t, `
stage()
m = mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, len(m), 4096): m[i] = 1
m.close()
stage()`)
	s := &Sampler{list: h.tree}
	s.sample()
	h.next()
	s.sample()
	if got := s.peak.NeedBytes >> 20; got < 128 || got > 160 {
		t.Errorf("%d MiB", got)
	}
	h.end()
}

// TestFilesAreTheKernels: pages of a mapped file are no need of the program, but those that it has changed for itself.
func TestFilesAreTheKernels(t *testing.T) {
	path := t.TempDir() + "/rows"
	if err := os.WriteFile(path, make([]byte, 96<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	h := begin(t, `
f = open(`+strconv.Quote(path)+`, "r+b")
m = mmap.mmap(f.fileno(), 96 << 20)
for i in range(0, len(m), 4096): m[i] = 1
stage()
p = mmap.mmap(f.fileno(), 96 << 20, flags=mmap.MAP_PRIVATE)
for i in range(0, len(p) // 3, 4096): p[i] = 2
stage()`)
	s := &Sampler{list: h.tree}
	if got := s.closely().NeedBytes >> 20; got > 40 {
		t.Errorf("%d MiB for a mapped file", got)
	}
	h.next()
	if got := s.closely().NeedBytes >> 20; got < 32 || got > 72 {
		t.Errorf("%d MiB for a mapped file of which a third is its own", got)
	}
	h.end()
}

// TestPinnedMemoryCountsInFull marks memory as the virtual GPU does: of what is pinned each page counts, touched or not, and once for a process and its
// children; what is a card's is only held.
func TestPinnedMemoryCountsInFull(t *testing.T) {
	h := begin(t, `
DONTDUMP, RANDOM, NOHUGEPAGE = 16, 1, 15
pinned = mmap.mmap(-1, 160 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pinned.madvise(DONTDUMP); pinned.madvise(RANDOM)
for i in range(0, 32 << 20, 4096): pinned[i] = 1
card = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for advice in (NOHUGEPAGE, DONTDUMP, RANDOM): card.madvise(advice)
for i in range(0, 64 << 20, 4096): card[i] = 1
r, w = os.pipe()
if os.fork() == 0:
    os.close(w); os.read(r, 1); os._exit(0)
stage()`)
	s := &Sampler{list: h.tree}
	u := s.closely()
	if got := u.NeedBytes >> 20; got < 160 || got > 200 {
		t.Errorf("%d MiB are needed for 160 MiB that are pinned", got)
	}
	if got := u.HeldBytes >> 20; got < 96 || got > 130 {
		t.Errorf("%d MiB are held: 32 MiB of what is pinned and 64 MiB of a card", got)
	}
	h.end()
}

// TestOwnReportIsNotTheProgram: what a process takes once it bears the name that the Python layer gives it is left out, its peak too.
func TestOwnReportIsNotTheProgram(t *testing.T) {
	h := begin(t, `
stage()
late = bytearray(b'x') * (48 << 20) # since the last look
had = sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(("RssAnon", "RssShmem"))) // 64
open("/proc/self/comm", "w").write("`+reportingName+`%07x" % had)
block = bytearray(b'x') * (96 << 20)
stage()
open("/proc/self/comm", "w").write("python3")
block = None
stage()`)
	s := &Sampler{list: h.tree}
	for stage := range 3 {
		if stage > 0 {
			h.next()
		}
		s.rest, s.lastLook = 0, s.lastLook.Add(-leastRest) // as much later
		s.sample()
		if got := s.peak.NeedBytes >> 20; got > 40 && stage == 0 || got < 48 && stage > 0 || got > 90 {
			t.Errorf("stage %d: %d MiB for an interpreter and 48 MiB that it had when it began to report", stage, got)
		}
	}
	h.end()
}

func TestStopWithoutProcesses(t *testing.T) {
	if peak := Start(func() []int { return nil }, 1, nil).Stop(); peak != (Use{}) {
		t.Errorf("%d", peak)
	}
}

func TestAvailableMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 9 kB\nMemAvailable:    2048 kB\n": 2 << 20, "MemAvailable: -5 kB\n": 0, "MemAvailable: 99999999999999999999 kB\n": 0, "": 0, "MemAvailable:": 0,
	} {
		if got := field([]byte(text), "MemAvailable:"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestNamelessMemoryCounts writes 96 MiB into a file without a name, of which it maps a third and later all: each page counts once.
func TestNamelessMemoryCounts(t *testing.T) {
	h := begin(t, `
f = os.memfd_create("held")
for _ in range(24): os.write(f, bytes(4 << 20))
m = mmap.mmap(f, 32 << 20)
for i in range(0, len(m), 4096): m[i] = 1
stage()
m = mmap.mmap(f, 96 << 20)
for i in range(0, len(m), 4096): m[i] = 1
stage()`)
	s := &Sampler{list: h.tree}
	for _, what := range []string{"of which it maps a third", "of which it maps all"} {
		if got := s.closely().NeedBytes >> 20; got < 96 || got > 130 {
			t.Errorf("%d MiB for 96 MiB in a file without a name, %s, and a Python", got, what)
		}
		if what != "of which it maps all" {
			h.next()
		}
	}
	h.end()
}

func TestMappings(t *testing.T) {
	const text = `00400000-00500000 r-xp 00000000 fe:00 12   /usr/bin/python3.11
Rss:                 400 kB
Pss:                 200 kB
Anonymous:             0 kB
00500000-00600000 rw-p 00100000 fe:00 12   /usr/bin/python3.11
Rss:                 100 kB
Pss:                  80 kB
Anonymous:            50 kB
SwapPss:               4 kB
7f0000000000-7f0000100000 r--s 00000000 fe:00 99   /data/my rows.bin
Rss:                1000 kB
Pss:                1000 kB
Anonymous:             0 kB
7f0000200000-7f0000300000 rw-s 00000000 00:01 4   /dev/zero (deleted)
Pss:                  10 kB
7f0000400000-7f0000500000 rw-s 00000000 00:1a 5   /dev/shm/torch_1_2 (deleted)
Pss:                  20 kB
7f0000600000-7f0000700000 rw-s 00000000 00:01 6   /memfd:held (deleted)
Pss:                  30 kB
7f0000800000-7f0000900000 rw-s 00000000 00:01 7   /SYSV00000000 (deleted)
Pss:                  40 kB
7f0001000000-7f0001100000 rw-p 00000000 00:00 0
Rss:                 512 kB
Pss:                 512 kB
VmFlags: rd wr mr mw me nr rr dd
7f0002000000-7f0003000000 rw-p 00000000 00:00 0
Rss:                  64 kB
Pss:                  64 kB
VmFlags: rd wr mr mw me nr rr dd nh
7f0004000000-7f0004100000 rw-p 00000000 00:00 0
Pss:                 700 kB
7f0004100000-7f0004200000 rw-p 00000000 00:00 0
Pss:                 800 kB
7f0004000000-7f0004400000 rw-p 00000000 00:00 0
Pss:                1500 kB
7ffc00000000-7ffc00010000 rw-p 00000000 00:00 0                          [stack]
Pss:                   8 kB
half a line
`
	m := sumMappings(parseMappings([]byte(text)))
	got := []int64{m.ownBytes >> 10, m.libraries["/usr/bin/python3.11"] >> 10, m.namelessBytes >> 10, m.sharedFileBytes >> 10, m.dataBytes >> 10, m.deviceBytes >> 10}
	if want := []int64{44 + 10 + 512 + 1500 + 8, 400 + 50, 30, 60, 1000, 64}; !slices.Equal(got, want) {
		t.Errorf("%d, want %d", got, want)
	}
	if len(m.pinned) != 1 || m.pinned[0].residentBytes != 512<<10 || m.pinned[0].end-m.pinned[0].begin != 1<<20 {
		t.Errorf("%+v", m.pinned)
	}
}

func TestInheritedPinnedMemory(t *testing.T) {
	var p pinnedRanges
	r := pinnedRange{begin: 1 << 20, end: 3 << 20, residentBytes: 1 << 20}
	p.add(10, 1, []pinnedRange{r})
	p.add(11, 10, []pinnedRange{{begin: 1 << 20, end: 2 << 20}})
	p.add(12, 11, []pinnedRange{r})
	p.add(20, 1, []pinnedRange{r})
	if got := p.untouchedBytes(); got != 2<<20 {
		t.Errorf("%d, want 1 MiB each of two processes that are not related", got)
	}
}

func TestResidentSegments(t *testing.T) {
	const header = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n"
	for text, want := range map[string]int64{
		"": 0, header: 0, "no such column\n1 2 3\n": 0,
		header + "0 0 1600 33554432 9 9 0 1 1 1 1 1 1 1 33554432 0\n0 1 1600 4096 9 9 0 1 1 1 1 1 1 1 4096 0\n": 33554432 + 4096,
		header + "0 0 1600 33554432 9 9 0 1 1 1 1 1 1 1 -5 0\nshort\n":                                          0,
	} {
		if got := residentSegments([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	text := strings.ReplaceAll("Name:|my (prog) x\nPPid:|7\nVmHWM:|  900 kB\nRssAnon:|100 kB\nVmSwap:|5 kB\nRssFile:|30 kB\nRssShmem:|40 kB\nVmPTE:|2 kB\n", "|", "\t")
	want := status{name: "my (prog) x", parent: 7, highestBytes: 900 << 10, ownBytes: 105 << 10, fileBytes: 30 << 10, sharedBytes: 40 << 10, tableBytes: 2 << 10}
	if got := parseStatus([]byte(text)); got != want {
		t.Errorf("%+v", got)
	}
}

func TestLimits(t *testing.T) {
	const text = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             0                    unlimited            bytes     
Max data size             1073741824           unlimited            bytes     
Max open files            8                    4096                 files     
Max address space         unlimited            unlimited            bytes     
`
	got := parseLimits([]byte(text))
	if want := (Limits{FileBytes: 1, DataBytes: 1 << 30, OpenFiles: 8}); got != want {
		t.Errorf("%+v", got)
	}
	if lower := got.lowered(Limits{AddressBytes: 5, DataBytes: 1 << 31, OpenFiles: 4}); lower != (Limits{FileBytes: 1, DataBytes: 1 << 30, OpenFiles: 4, AddressBytes: 5}) {
		t.Errorf("%+v", lower)
	}
}

// TestLimitsOfARun: a limit that a process has only for a while is kept.
func TestLimitsOfARun(t *testing.T) {
	h := begin(t, "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (777, resource.RLIM_INFINITY))\nstage()\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))\nstage()")
	s := &Sampler{list: h.tree}
	s.sample()
	h.next()
	s.sample()
	if l := s.Limits(); l.CPUSeconds != 777 {
		t.Errorf("%+v", l)
	}
	h.end()
}

// TestWhatIsMovedCountsOnce: mappings that were read while the program moved one of them hold it twice; the counters of the process do not.
func TestWhatIsMovedCountsOnce(t *testing.T) {
	const pid = 1 << 22 // above every number of a process
	s := &Sampler{known: map[int]*process{pid: {status: status{ownBytes: 100 << 20}}}}
	s.take(closeLook{of: map[int]processSeen{pid: {mappings: mappings{ownBytes: 190 << 20}, open: true, found: true, now: status{ownBytes: 110 << 20}}}}, []int{pid}, 0)
	if s.lastUse.NeedBytes != 110<<20 {
		t.Errorf("%d MiB, want 110", s.lastUse.NeedBytes>>20)
	}
}

// TestWhoEndsDuringALook: a child that is there when a close look begins and gone when its mappings are read leaves nothing behind. Its sizes, in which the pages that it
// shared with its parent count in full, are not taken for memory of its own, and its part of those pages is not lost; those of a process that has closed itself to
// others are.
func TestWhoEndsDuringALook(t *testing.T) {
	const mib = 1 << 20
	for _, test := range []struct {
		name  string
		child processSeen
		share int64 // the parent's part of its pages
		want  int64
	}{
		{"ended and reaped", processSeen{}, 100 * mib, 100 * mib},
		{"ended and not reaped", processSeen{found: true}, 100 * mib, 100 * mib},
		{"ended after its parent was looked at", processSeen{}, 50 * mib, 100 * mib},
		{"closed to others", processSeen{found: true, now: status{ownBytes: 100 * mib, tableBytes: mib}}, 100 * mib, 201 * mib},
	} {
		t.Run(test.name, func(t *testing.T) {
			parent := status{ownBytes: 100 * mib}
			s := &Sampler{known: map[int]*process{1: {status: parent}, 2: {status: status{ownBytes: 100 * mib, tableBytes: mib}}}}
			shared := mappings{ownBytes: test.share, wholeBytes: 100 * mib}
			s.take(closeLook{of: map[int]processSeen{1: {open: true, found: true, now: parent, mappings: shared}, 2: test.child}}, []int{1, 2}, 201*mib)
			if s.lastUse.NeedBytes != test.want {
				t.Errorf("%d MiB, want %d", s.lastUse.NeedBytes/mib, test.want/mib)
			}
		})
	}
}

// TestChildrenThatComeAndGo: children that end while they are looked at count no page of their parent's a second time.
func TestChildrenThatComeAndGo(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `
import os, time
kept = bytearray(b"x") * (200 << 20)
end = time.monotonic() + 3
while time.monotonic() < end:
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            time.sleep(0.03)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := Start(TreeOf(cmd.Process.Pid), 1<<20, nil)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := s.Stop().NeedBytes >> 20; got < 200 || got > 240 {
		t.Errorf("%d MiB, want some more than 200", got)
	}
}
