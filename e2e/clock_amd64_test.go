package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// clockCode asks the kernel for a clock as the vDSO's function does, and adds to the real-time clock the seconds that stand behind it. The monotonic clock is left alone, as it
// is when an administrator sets the clock.
var clockCode = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi (CLOCK_REALTIME is 0)
	0x75, 0x0a, // jne to the end
	0x48, 0x8b, 0x0d, 4, 0, 0, 0, // mov rcx, [rip+4]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
}

// setClock makes a process believe that the clock was set by so many seconds from what it is. It works on the process alone: no clock of the machine is touched.
func setClock(pid int, seconds int64) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	begin, end, err := vdsoOf(pid)
	if err != nil {
		return err
	}
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, begin); err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	at := int64(0)
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			at = begin + int64(s.Value)
		}
	}
	if at == 0 {
		return fmt.Errorf("the vDSO has no clock_gettime")
	}
	offset := binary.LittleEndian.AppendUint64(nil, uint64(seconds))
	if bytes.Equal(image[at-begin:at-begin+int64(len(clockCode))], clockCode) {
		_, err = memory.WriteAt(offset, at+int64(len(clockCode)))
		return err
	}
	// No thread may be in the code that is replaced.
	for range 1000 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
		if !inside(pid, begin, end) {
			_, err = memory.WriteAt(append(append([]byte{}, clockCode...), offset...), at)
			_ = syscall.Kill(pid, syscall.SIGCONT)
			return err
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("the process is always in its vDSO")
}

func vdsoOf(pid int) (begin, end int64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err := fmt.Sscanf(line, "%x-%x ", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, fmt.Errorf("process %d has no vDSO", pid)
}

// inside says whether a thread of a stopped process stands in a range of its code, or still runs.
func inside(pid int, begin, end int64) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, path := range threads {
		text, err := os.ReadFile(path)
		words := strings.Fields(string(text))
		if err != nil || len(words) < 2 {
			return true
		}
		var pc int64
		if _, err := fmt.Sscanf(words[len(words)-1], "0x%x", &pc); err != nil || pc >= begin && pc < end {
			return true
		}
	}
	return len(threads) == 0
}

// TestClockJumps sets the clock of the daemon and of the played slurmctld an hour forward and back while jobs are held: none starts later than its hold, by a clock that
// nobody sets, plus the time that it takes to see that Slurm's clock was set back. Rows of the future are not deleted.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	c := newChaos(t, &history{out: io.Discard}, "enforce", 1)
	var offset atomic.Int64
	c.cluster.mu.Lock()
	c.cluster.clock = func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load()) * time.Second) }
	c.cluster.mu.Unlock()
	set := func(seconds int64) {
		t.Helper()
		offset.Store(seconds)
		must(t, setClock(c.signal(0), seconds))
	}
	c.start()
	c.answering()
	longest, jumps := time.Duration(0), 0
	for round, jump := range [][2]int64{{0, 3600}, {0, -3600}, {3600, 0}, {-3600, 0}, {0, 1}, {86_400, -86_400}} {
		if round != 1 && os.Getenv("GRESIZE_NIGHTLY") != "1" {
			continue
		}
		moods := []string{"", "die"}
		if round == 1 {
			// The hold passes while nobody can let the job go; and the next daemon knows the old clock from its rows alone.
			moods = append(moods, "away", "restart")
		}
		for _, mood := range moods {
			jumps++
			set(jump[0])
			c.cluster.set(&c.cluster.probes, mood)
			began := time.Now()
			id := c.submitHeld()
			time.Sleep(time.Duration(300+400*(round%3)) * time.Millisecond)
			set(jump[1])
			switch mood {
			case "away":
				c.cluster.set(&c.cluster.commands, "refuse")
				time.Sleep(time.Until(began.Add(c.hold + 2*time.Second)))
				c.cluster.set(&c.cluster.commands, "")
			case "restart":
				c.kill()
				c.start()
				set(jump[1])
			}
			for !c.cluster.startedOrGone(id) {
				if time.Since(began) > c.hold+40*time.Second {
					t.Fatalf("the clock went from %+d s to %+d s, probes %q: the job is still held after %s\n%s", jump[0], jump[1], mood, time.Since(began), c.lastWords())
				}
				time.Sleep(20 * time.Millisecond)
			}
			longest = max(longest, time.Since(began))
		}
	}
	set(0)
	waitUntil(t, 2*chaosHold, "every story to end", func() bool { return c.unfinished() == 0 })
	t.Logf("%d jumps of 1 s, 1 h and 1 day: each job started, the last one %s after its submission, with a hold of %s", jumps, longest.Round(100*time.Millisecond), c.hold)
	c.mu.Lock()
	let := strings.Count(c.lines.String(), "to=releasing code=clock_set_back")
	c.mu.Unlock()
	if let == 0 {
		t.Error("no job was let go because the clock was set back")
	}
	if longest > c.hold+15*time.Second {
		t.Errorf("a job was held for %s", longest)
	}
}
