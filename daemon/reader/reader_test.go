package reader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/spool"
	"github.com/gresize/gresize/estimator"
	"github.com/gresize/gresize/estimator/analysis/plot"
	"github.com/gresize/gresize/estimator/gpu"
	"github.com/gresize/gresize/estimator/methods/bundled"
	"github.com/gresize/gresize/estimator/trace"
)

// escape names what a child of a test tries in place of reading.
const escape = "GRESIZE_TEST_ESCAPE"

func TestMain(m *testing.M) {
	if what := os.Getenv(escape); what != "" {
		os.Exit(tryTo(what))
	}
	if Asked() {
		os.Exit(Serve())
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newReader(t testing.TB) *Reader {
	t.Helper()
	files, err := spool.Open(filepath.Join(t.TempDir(), "spool"))
	must(t, err)
	return &Reader{Command: []string{"/proc/self/exe"}, Marks: files, Warn: func(why string) { t.Errorf("no filter of system calls: %s", why) }}
}

func fileOf(t testing.TB, data []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle")
	must(t, os.WriteFile(path, data, 0o600))
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

const realBundle = "../web/testdata/rtx3060.gresize"

// TestAnswersAsInProcess: each bundled estimator and the picture are what they are without a process in between.
func TestAnswersAsInProcess(t *testing.T) {
	card, err := gpu.Load("rtx3060")
	must(t, err)
	b, err := trace.ReadFile(realBundle)
	must(t, err)
	data, err := os.ReadFile(realBundle)
	must(t, err)
	r := newReader(t)
	for _, m := range bundled.All() {
		if m.Name == bundled.HistoryName {
			continue // asked with the rows of a log, in cmd/gresized
		}
		want, fault := m.FromBundle(b, card)
		got, err := r.Ask(t.Context(), fileOf(t, data), Question{Method: m.Name, Card: card})
		if (fault == nil) != (err == nil) || fault != nil && fault.Error() != err.Error() {
			t.Errorf("%s: %v, want %v", m.Name, err, fault)
			continue
		}
		if fault != nil {
			continue
		}
		text, err := json.Marshal(want)
		must(t, err)
		var same estimator.Estimate
		must(t, json.Unmarshal(text, &same))
		if !reflect.DeepEqual(*got.Estimate, same) {
			t.Errorf("%s: %+v, want %+v", m.Name, got.Estimate, want)
		}
	}
	figure, err := plot.OfBundle(b, 0, "the record")
	must(t, err)
	figure.Title = "a title"
	var svg bytes.Buffer
	must(t, plot.SVG(&svg, figure))
	a, err := r.Ask(t.Context(), fileOf(t, data), Question{Draw: &Draw{Title: "a title", Owners: 3}})
	must(t, err)
	if d := a.Drawing; !bytes.Equal(d.SVG, svg.Bytes()) || d.Ranks != len(b.Ranks) || len(d.Owners) != 3 || d.Height != figure.Height() {
		t.Errorf("%d bytes, want %d: %d ranks, %d owners", len(d.SVG), svg.Len(), d.Ranks, len(d.Owners))
	}
	if _, err := r.Ask(t.Context(), fileOf(t, data), Question{Draw: &Draw{Rank: 9}}); err == nil || errors.Is(err, ErrEnded) {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

// hostileBundle is one of about 10 MB that unpacks to 118 MB: a history of events that are all different.
func hostileBundle(t testing.TB) []byte {
	t.Helper()
	b, err := trace.ReadFile(realBundle)
	must(t, err)
	var events bytes.Buffer
	events.Write(b.Ranks[0].Events[:bytes.IndexByte(b.Ranks[0].Events, '\n')+1])
	for i := 0; events.Len() < 118<<20; i++ {
		fmt.Fprintf(&events, "{\"action\":\"alloc\",\"addr\":%d,\"size\":%d,\"stream\":0}\n", 1<<40+i*512, 512)
	}
	b.Ranks[0].Events = events.Bytes()
	var out bytes.Buffer
	must(t, trace.Write(&out, b))
	return out.Bytes()
}

// another is the same bundle with another hash.
func another(t testing.TB, data []byte, n int) []byte {
	t.Helper()
	b, err := trace.Decode(data)
	must(t, err)
	b.Manifest.Notes = append(b.Manifest.Notes, fmt.Sprint(n))
	var out bytes.Buffer
	must(t, trace.Write(&out, b))
	return out.Bytes()
}

// TestAHostileBundleEndsItsReaderOnly: three at once cost this process nothing, and none is read a second time, in a later life either.
func TestAHostileBundleEndsItsReaderOnly(t *testing.T) {
	card, err := gpu.Load("rtx3060")
	must(t, err)
	data := hostileBundle(t)
	t.Logf("a bundle of %.1f MB", float64(len(data))/1e6)
	r := newReader(t)
	var wait sync.WaitGroup
	files := []*os.File{}
	for i := range 3 {
		files = append(files, fileOf(t, another(t, data, i)))
	}
	data = nil
	debug.FreeOSMemory()
	begun, before := time.Now(), heldBytes(t)
	for i, f := range files {
		wait.Go(func() {
			_, err := r.Ask(t.Context(), f, Question{Method: "vgpu", Card: card})
			t.Logf("bundle %d: %v", i, err)
		})
	}
	wait.Wait()
	t.Logf("%s for three at once; this process holds %d KiB more", time.Since(begun).Round(time.Millisecond), (heldBytes(t)-before)>>10)
	if grown := heldBytes(t) - before; grown > 16<<20 {
		t.Errorf("this process has grown by %d bytes", grown)
	}
}

// TestWhatEndsAReaderIsNotReadAgain: of one bundle one reader ends, whoever asks and whatever for, also after a restart; one that nobody waited for is read.
func TestWhatEndsAReaderIsNotReadAgain(t *testing.T) {
	card, err := gpu.Load("rtx3060")
	must(t, err)
	dir := filepath.Join(t.TempDir(), "spool")
	files, err := spool.Open(dir)
	must(t, err)
	starts := filepath.Join(t.TempDir(), "starts")
	dying := &Reader{Command: []string{"/bin/sh", "-c", "echo >>" + starts + "; kill -9 $$"}, Marks: files}
	poison, sound := fileOf(t, []byte("poison")), fileOf(t, []byte("sound"))
	if _, err := dying.Ask(t.Context(), poison, Question{Method: "vgpu", Card: card}); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("%v", err)
	}
	files, err = spool.Open(dir)
	must(t, err)
	dying.Marks = files
	for _, q := range []Question{{Method: "vgpu", Card: card}, {Draw: &Draw{}}} {
		if _, err := dying.Ask(t.Context(), poison, q); !errors.Is(err, ErrEnded) || !strings.Contains(err.Error(), "not read again") {
			t.Errorf("%v", err)
		}
	}
	if text, err := os.ReadFile(starts); err != nil || len(text) != 1 {
		t.Errorf("%d readers were started: %v", len(text), err)
	}
	// A daemon that is told to end is no fault of the bundle's.
	slow := &Reader{Command: []string{"/bin/sh", "-c", "sleep 60"}, Marks: files}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := slow.Ask(ctx, sound, Question{Method: "vgpu", Card: card}); err == nil || errors.Is(err, ErrEnded) {
		t.Errorf("%v", err)
	}
	if marked, err := files.BeginReading(mustHash(t, sound)); marked || err != nil {
		t.Errorf("marked %v: %v", marked, err)
	}
}

// TestWhatAReaderMayNot: it has no file, no network, no other process, and an end.
func TestWhatAReaderMayNot(t *testing.T) {
	for _, what := range []string{"open", "write", "connect", "start", "signal", "raise", "memory", "stack", "time"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = []string{escape + "=" + what, "GOMAXPROCS=1"}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			bounded := what == "memory" || what == "stack" || what == "time"
			if !strings.Contains(out.String(), "confined\n") || (err == nil) == bounded || strings.Contains(out.String(), "done") {
				t.Errorf("%v: %.300s", err, out.String())
			}
		})
	}
}

// tryTo does what no reader may, in a process that is confined as one.
func tryTo(what string) int {
	if err := errors.Join(confine(1), filterCalls()); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("confined")
	var err error
	switch what {
	case "open":
		_, err = os.Open("/etc/passwd")
	case "write":
		err = os.WriteFile("/tmp/gresize-reader-test", nil, 0o600)
	case "connect":
		_, err = net.Dial("unix", "/run/gresize/submit.sock")
	case "start":
		_, _, errno := syscall.RawSyscall(syscall.SYS_FORK, 0, 0, 0)
		if err = errno; errno == 0 {
			err = nil
		}
	case "signal":
		err = syscall.Kill(os.Getppid(), 0)
	case "raise":
		err = syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: 1000, Max: 1000})
	case "memory":
		var all [][]byte
		for range 2000 {
			piece := make([]byte, 1<<20)
			for i := range piece {
				piece[i] = byte(i)
			}
			all = append(all, piece)
		}
		fmt.Println("done", len(all))
	case "stack":
		fmt.Println("done", deep(1<<30))
	case "time":
		for begun := time.Now(); time.Since(begun) < time.Minute; {
			strconv.Itoa(1)
		}
		fmt.Println("done")
	}
	if bounded := what == "memory" || what == "stack" || what == "time"; !bounded && err == nil {
		fmt.Println("done")
	}
	return 0
}

func deep(n int) int {
	var room [128]int
	room[n%128] = n
	if n == 0 {
		return room[0]
	}
	return deep(n-1) + room[5]
}

// FuzzAnswer: no answer of a child takes the host along.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{"", "{}", `{"fault":"x"}`, `{"estimate":null,"drawing":{"svg":"AA=="}}`, "{", strings.Repeat("x", 100)} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(dir, "answer")
		must(t, os.WriteFile(path, text, 0o600))
		r := &Reader{Command: []string{"/bin/cat", path}, Marks: noMarks{}}
		a, err := r.Ask(t.Context(), fileOf(t, []byte("x")), Question{})
		if err == nil && a.Fault != "" || err != nil && errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%+v %v", a, err)
		}
	})
}

type noMarks struct{}

func (noMarks) BeginReading(string) (bool, error) { return false, nil }
func (noMarks) BarReading(string) error           { return nil }
func (noMarks) EndReading(string) error           { return nil }

func mustHash(t *testing.T, f *os.File) string {
	t.Helper()
	sum, err := hashOf(f)
	must(t, err)
	return sum
}

// heldBytes is the memory of this process.
func heldBytes(t *testing.T) int64 {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	must(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	must(t, err)
	_, value, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
	must(t, err)
	return kib << 10
}
