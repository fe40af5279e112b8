package pluginhost

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/gresize/gresize/estimator"
)

// attack is what a hostile plugin does: in place of serving, or when it is asked.
type attack struct {
	instead func()
	asked   func(e estimator.Estimate) (estimator.Estimate, error)
	// says begins the reason with which the host turns to the next; empty: the answer is taken, since it is a sound one.
	says string
}

// listening says the first line of a plugin that listens, and hands each connection on.
func listening(serve func(net.Conn)) func() {
	return func() {
		dir, _ := os.Getwd()
		l, err := net.Listen("unix", filepath.Join(dir, "s"))
		if err != nil {
			os.Exit(9)
		}
		fmt.Printf("1|1|unix|%s|grpc|\n", filepath.Join(dir, "s"))
		for {
			c, err := l.Accept()
			if err != nil {
				os.Exit(9)
			}
			go serve(c)
		}
	}
}

// first says a first line and waits.
func first(line string) func() {
	return func() {
		_, _ = os.Stdout.WriteString(line)
		select {}
	}
}

// settings begins a connection of HTTP/2, which is what gRPC speaks.
const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// with answers as a sound one does, but for a change.
func with(change func(e *estimator.Estimate)) func(estimator.Estimate) (estimator.Estimate, error) {
	return func(e estimator.Estimate) (estimator.Estimate, error) {
		change(&e)
		return e, nil
	}
}

// begunHere marks the processes that a plugin of this test leaves.
const begunHere = "GRESIZE_TEST_OF_A_PLUGIN=1"

func child(session bool) (*exec.Cmd, error) {
	cmd := exec.Command("/bin/sleep", "600")
	cmd.Env = []string{begunHere}
	cmd.Stdout, cmd.Stderr = os.NewFile(1, ""), os.NewFile(2, "") // they hold the pipes to the host
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	return cmd, cmd.Start()
}

const invalid = "plugin gives an invalid answer"

var attacks map[string]attack

func init() {
	attacks = map[string]attack{
		"says nothing":              {instead: func() { select {} }, says: "plugin does not start"},
		"ends at once":              {instead: func() { os.Exit(0) }, says: "plugin does not start"},
		"floods before its line":    {instead: func() { _, _ = io.Copy(os.Stdout, zeros{}) }, says: "plugin "},
		"floods errors at start":    {instead: func() { _, _ = io.Copy(os.Stderr, zeros{}) }, says: "plugin "},
		"a line of another program": {instead: first("\x1b[2J\x00\xff not a plugin\n"), says: "plugin does not start"},
		"a line of too many parts":  {instead: first("1|1|unix|" + strings.Repeat("|", 10_000) + "\n"), says: "plugin does not start"},
		"a version below nothing":   {instead: first("-1|-99999999999999999999|unix|/s|grpc|\n"), says: "plugin does not start"},
		"another protocol":          {instead: first("1|1|unix|/s|netrpc|\n"), says: "plugin does not start"},
		"a certificate of its own":  {instead: first("1|1|unix|/s|grpc|" + strings.Repeat("QUJD", 10_000) + "\n"), says: "plugin does not start"},
		"a pipe in place of a socket": {instead: func() {
			_ = syscall.Mkfifo("s", 0o600)
			dir, _ := os.Getwd()
			first("1|1|unix|" + dir + "/s|grpc|\n")()
		}, says: "plugin does not start"},
		"takes and says nothing": {instead: listening(func(net.Conn) { select {} }), says: "plugin does not start"},
		"takes and hangs up":     {instead: listening(func(c net.Conn) { c.Close() }), says: "plugin does not start"},
		"speaks garbage":         {instead: listening(func(c net.Conn) { _, _ = io.Copy(c, zeros{}) }), says: "plugin does not start"},
		"speaks HTTP/1":          {instead: listening(func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n{}") }), says: "plugin does not start"},
		"settings and no more":   {instead: listening(func(c net.Conn) { _, _ = io.WriteString(c, settings); select {} }), says: "plugin does not start"},
		"settings without end": {instead: listening(func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, settings); err != nil {
					return
				}
			}
		}), says: "plugin does not start"},
		"pings without end": {instead: listening(func(c net.Conn) {
			_, _ = io.WriteString(c, settings)
			for {
				if _, err := io.WriteString(c, "\x00\x00\x08\x06\x00\x00\x00\x00\x00abcdefgh"); err != nil {
					return
				}
			}
		}), says: "plugin does not start"},
		"a frame of 16 MiB": {instead: listening(func(c net.Conn) {
			_, _ = io.WriteString(c, settings+"\xff\xff\xff\x00\x00\x00\x00\x00\x01")
			_, _ = io.Copy(c, zeros{})
		}), says: "plugin does not start"},
		"writes over its line's end": {instead: func() {
			for range 1000 {
				_, _ = os.Stdout.WriteString("1|1|unix|/etc/passwd|grpc|\n")
			}
			select {}
		}, says: "plugin does not start"},

		"hears no signal": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
			select {}
		}, says: "plugin does not answer in time"},
		"floods while it is asked": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for piece := make([]byte, 1<<16); ; {
				_, _ = syscall.Write(1, piece)
			}
		}, says: "plugin "},
		"floods errors while it is asked": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for piece := make([]byte, 1<<16); ; {
				_, _ = syscall.Write(2, piece)
			}
		}, says: "plugin "},
		"ends in the middle": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			time.AfterFunc(20*time.Millisecond, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
			select {}
		}, says: "plugin died"},
		"shuts its sockets": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for fd := 3; fd < 64; fd++ {
				_ = syscall.Close(fd)
			}
			select {}
		}, says: "plugin "},
		"an error of many bytes": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			return e, errors.New(strings.Repeat("x", 16<<20))
		}, says: "plugin "},
		"ranks without end": {asked: with(func(e *estimator.Estimate) { e.Ranks = slices.Repeat(e.Ranks, 3000) }), says: "plugin "},
		"reasons without end": {asked: with(func(e *estimator.Estimate) {
			e.Reasons = slices.Repeat([]estimator.Reason{{Code: "x1"}}, 10_000)
		}), says: invalid},
		"sizes below nothing": {asked: with(func(e *estimator.Estimate) { e.Ranks[0].ComfortableHighBytes = -1 }), says: invalid},
		"the largest number":  {asked: with(func(e *estimator.Estimate) { e.Ranks[0].ComfortableHighBytes = math.MaxInt64 }), says: invalid},
		"sums that wrap": {asked: with(func(e *estimator.Estimate) {
			e.Ranks[0].PeakReservedBytes, e.Ranks[0].OutsideBytes = math.MaxInt64, math.MaxInt64
		}), says: invalid},
		"an upper end below":  {asked: with(func(e *estimator.Estimate) { e.Ranks[0].ComfortableHighBytes = 1 }), says: invalid},
		"no number":           {asked: with(func(e *estimator.Estimate) { e.WallSeconds = math.NaN() }), says: "plugin "},
		"without a rank":      {asked: with(func(e *estimator.Estimate) { e.Ranks = nil }), says: invalid},
		"the name of another": {asked: with(func(e *estimator.Estimate) { e.Estimator = "vgpu" }), says: invalid},
		"another card":        {asked: with(func(e *estimator.Estimate) { e.GPU = "h100" }), says: invalid},
		"a confidence above":  {asked: with(func(e *estimator.Estimate) { e.Confidence = "certain" }), says: invalid},
		"a code that is none": {asked: with(func(e *estimator.Estimate) { e.Reasons = []estimator.Reason{{Code: "\x1b[2J"}} }), says: invalid},
		"a panic":             {asked: func(estimator.Estimate) (estimator.Estimate, error) { panic("\x1b[2J" + strings.Repeat("x", 1<<20)) }, says: "plugin "},
		"a stack without end": {asked: func(estimator.Estimate) (estimator.Estimate, error) { return estimator.Estimate{}, errors.New(deep(1)) }, says: "plugin "},
		"all the memory":      {asked: func(e estimator.Estimate) (estimator.Estimate, error) { _ = make([]byte, 2<<30); select {} }, says: "plugin "},
		"children in its group": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for range 100 {
				if _, err := child(false); err != nil {
					return e, err
				}
			}
			return e, nil
		}},
		"opens files without end": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for {
				if _, err := os.Open("/dev/null"); err != nil {
					return e, nil
				}
			}
		}},
		"a file without end": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			signal.Ignore(syscall.SIGXFSZ)
			f, err := os.Create("large")
			if err != nil {
				return e, err
			}
			if err := f.Truncate(300 << 20); err == nil {
				return e, errors.New("it may write more than 256 MiB")
			}
			return e, nil
		}},
		"raises its own limits": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for _, which := range []int{syscall.RLIMIT_DATA, syscall.RLIMIT_FSIZE} {
				var now syscall.Rlimit
				if err := syscall.Getrlimit(which, &now); err != nil || now.Max > 512<<20 {
					return e, fmt.Errorf("limit %d is %d: %w", which, now.Max, err)
				}
			}
			return e, nil
		}},
		"leaves files without number": {asked: func(e estimator.Estimate) (estimator.Estimate, error) {
			for i := range 500 {
				if err := os.WriteFile(strconv.Itoa(i), nil, 0o400); err != nil {
					return e, err
				}
			}
			return e, errors.Join(os.Mkdir("closed", 0o755), os.WriteFile("closed/x", nil, 0o400), os.Chmod("closed", 0), os.Symlink("/etc", "etc"))
		}},
	}
}

//lint:ignore SA5007 the plugin is meant to run out of its stack
func deep(n int) string { return strconv.Itoa(n) + deep(n + 1)[:1] }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestHostilePlugins puts each hostile plugin before a sound one: the host has the sound one's answer in bounded time, with a reason that can be shown, it holds no descriptor, no memory and no
// process more than before, and is closed at once.
func TestHostilePlugins(t *testing.T) {
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			bundle := bundleOf(t)
			descriptors, memory := held(t)
			x := entry(t, name)
			x.Name = fake(name).name()
			if a.instead != nil {
				x.Command.StartTimeout = time.Second
			}
			if a.says == "" {
				x.Timeout = 5 * time.Second
			}
			h := New([]Entry{x, entry(t, "good")}, slog.New(slog.DiscardHandler))
			begun := time.Now()
			e, err := h.Estimate(t.Context(), estimator.Job{}, bundle, "a100-80")
			took := time.Since(begun)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case e.Validate() != nil:
				t.Errorf("%+v: %v", e, e.Validate())
			case a.says == "" && (e.Estimator != x.Name || len(e.Reasons) > 0):
				t.Errorf("%+v", e)
			case a.says != "" && (e.Estimator != "good" || len(e.Reasons) != 1 || !strings.HasPrefix(e.Reasons[0].Detail, x.Name+": "+a.says)):
				t.Errorf("%.600q", fmt.Sprintf("%+v", e))
			}
			if len(e.Reasons) > 0 {
				if strings.ContainsFunc(e.Reasons[0].Detail, unicode.IsControl) {
					t.Errorf("its words steer a terminal: %.600q", e.Reasons[0].Detail)
				}
				t.Logf("after %s: %.200q", took.Round(time.Millisecond), e.Reasons[0].Detail)
			}
			begun = time.Now()
			h.Close()
			if closed := time.Since(begun); took > 10*time.Second || closed > 3*time.Second {
				t.Errorf("the answer took %s, the end %s", took, closed)
			}
			for deadline := time.Now().Add(5 * time.Second); len(left(t)) > 0; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("processes %v are left", left(t))
				}
			}
			if files, err := os.ReadDir(x.Command.Dir); err != nil || len(files) > 0 {
				t.Errorf("%d files are left: %v", len(files), err)
			}
			var nowDescriptors int
			var nowMemory int64
			for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				if nowDescriptors, nowMemory = held(t); nowDescriptors <= descriptors {
					break
				}
			}
			if nowDescriptors > descriptors+2 || nowMemory > memory+64<<20 {
				t.Errorf("descriptors %d, then %d; %d MiB, then %d", descriptors, nowDescriptors, memory>>20, nowMemory>>20)
			}
		})
	}
}

// held is what this process holds: descriptors and memory.
func held(t *testing.T) (descriptors int, bytes int64) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return len(files), kib << 10
}

// left are the processes that a plugin has begun and that live.
func left(t *testing.T) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), begunHere) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}
