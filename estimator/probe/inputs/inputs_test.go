package inputs

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEveryChangeIsSeen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		long := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path(name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	write("train.py", "a")
	write("model.py", "b")
	write("target", "c")
	if err := os.Symlink("target", path("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	big, err := os.Create(path("big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(wholeBytes + 5); err != nil {
		t.Fatal(err)
	}
	big.Close()
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path("big"), long, long); err != nil {
		t.Fatal(err)
	}
	read := []string{path("train.py"), path("__pycache__/model.cpython-311.pyc"), path("link"), path("none"), path("fifo"), dir, "/proc/self/maps", "/dev/urandom", path("sub/../train.py"), path("big"), "relative"}
	list, err := Make(t.Context(), Seen{Read: read}, time.Now().Add(time.Second))
	if err != nil || list.Files() != 7 {
		t.Fatalf("%+v %v", list, err)
	}
	packed, err := list.Pack()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	if changed, err := again.Changed(t.Context()); err != nil || changed != "" {
		t.Fatalf("%q %v", changed, err)
	}
	for name, c := range map[string]struct{ change, undo func() }{
		"content":      {func() { write("train.py", "x") }, func() { write("train.py", "a") }},
		"source":       {func() { write("model.py", "x") }, func() { write("model.py", "b") }},
		"link target":  {func() { write("target", "x") }, func() { write("target", "c") }},
		"appears":      {func() { write("none", "x") }, func() { os.Remove(path("none")) }},
		"disappears":   {func() { os.Rename(path("train.py"), path("t")) }, func() { os.Rename(path("t"), path("train.py")) }},
		"becomes fifo": {func() { os.Remove(path("target")); syscall.Mkfifo(path("target"), 0o600) }, func() { os.Remove(path("target")); write("target", "c") }},
		"big file":     {func() { os.Chtimes(path("big"), long, long.Add(time.Second)) }, func() { os.Chtimes(path("big"), long, long) }},
	} {
		c.change()
		if changed, err := again.Changed(t.Context()); err != nil || changed != dir+"/" {
			t.Errorf("%s: %q %v", name, changed, err)
		}
		c.undo()
		if changed, err := again.Changed(t.Context()); err != nil || changed != "" {
			t.Fatalf("%s undone: %q %v", name, changed, err)
		}
	}
	// Their times are those of an hour ago, as cp -p leaves them; that they were changed a moment ago can be seen all the same.
	if _, err := Make(t.Context(), Seen{Read: read}, long.Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "changed during the run") {
		t.Errorf("%v", err)
	}
}

// TestWhatIsThereAndWhatAFolderHasCounts: a script may do one thing or another by nothing but that, and its content is no business of the list.
func TestWhatIsThereAndWhatAFolderHasCounts(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "data")
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(path("shards"), 0o755))
	must(os.WriteFile(path("checkpoint"), []byte("a"), 0o600))
	must(os.WriteFile(path("shards/0"), nil, 0o600))
	must(os.Symlink("checkpoint", path("latest")))
	long := time.Now().Add(-time.Hour)
	must(os.Chtimes(path("checkpoint"), long, long))
	began := time.Now().Add(time.Second)
	list, err := Make(t.Context(), Seen{Asked: []string{path("checkpoint"), path("none"), path("latest"), path("shards"), "/proc/self", "/", "/dev"}, Listed: []string{path("shards"), path("no folder"), "/proc"}}, began)
	if err != nil || list.Files() != 6 {
		t.Fatalf("%+v %v", list, err)
	}
	packed, err := list.Pack()
	must(err)
	if list, err = Unpack(packed); err != nil {
		t.Fatal(err)
	}
	unchanged := func(after string) {
		t.Helper()
		if changed, err := list.Changed(t.Context()); err != nil || changed != "" {
			t.Fatalf("after %s: %q %v", after, changed, err)
		}
	}
	unchanged("nothing")
	for name, c := range map[string]struct{ change, undo func() error }{
		"appears":        {func() error { return os.WriteFile(path("none"), nil, 0o600) }, func() error { return os.Remove(path("none")) }},
		"disappears":     {func() error { return os.Rename(path("checkpoint"), path("x")) }, func() error { return os.Rename(path("x"), path("checkpoint")) }},
		"another time":   {func() error { return os.Chtimes(path("checkpoint"), long, time.Now()) }, func() error { return os.Chtimes(path("checkpoint"), long, long) }},
		"another target": {func() error { os.Remove(path("latest")); return os.Symlink("shards", path("latest")) }, func() error { os.Remove(path("latest")); return os.Symlink("checkpoint", path("latest")) }},
		"one more name":  {func() error { return os.WriteFile(path("shards/1"), nil, 0o600) }, func() error { return os.Remove(path("shards/1")) }},
		"a folder":       {func() error { return os.Mkdir(path("no folder"), 0o700) }, func() error { return os.Remove(path("no folder")) }},
	} {
		must(c.change())
		if changed, err := list.Changed(t.Context()); err != nil || changed == "" {
			t.Errorf("%s was not seen: %v", name, err)
		}
		must(c.undo())
		unchanged(name)
	}
	// What lies beside, and what a file holds that is only asked about, changes nothing.
	must(os.WriteFile(path("beside"), nil, 0o600))
	must(os.WriteFile(path("shards/0"), []byte("content"), 0o600))
	unchanged("a file beside")
	// A folder whose names were read and that has changed during the run makes no list.
	if _, err := Make(t.Context(), Seen{Listed: []string{path("shards")}}, long); err == nil || !strings.Contains(err.Error(), "changed during the run") {
		t.Errorf("%v", err)
	}
}

func pack(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	digest := strings.Repeat("a", 32)
	for name, data := range map[string][]byte{
		"no gzip": []byte("x"), "no list": pack(t, "{}"), "empty": pack(t, `{"schema":"gresize.inputs/2"}`), "bomb": pack(t, strings.Repeat(" ", maxUnpackedBytes+1)), "too large": make([]byte, MaxPackedBytes+1),
		"relative": pack(t, `{"schema":"gresize.inputs/2","folders":[{"path":"a/","names":["x"],"digest":"`+digest+`"}]}`),
		"climbing": pack(t, `{"schema":"gresize.inputs/2","folders":[{"path":"/a/","names":[".."],"digest":"`+digest+`"}]}`),
		"a path":   pack(t, `{"schema":"gresize.inputs/2","folders":[{"path":"/a/","names":["b/c"],"digest":"`+digest+`"}]}`),
		"digest":   pack(t, `{"schema":"gresize.inputs/2","folders":[{"path":"/a/","names":["b"],"digest":"x"}]}`),
	} {
		if _, err := Unpack(data); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	l := &List{Schema: Schema, Folders: []Folder{{Path: "/a/", Names: []string{"b"}, Digest: strings.Repeat("a", 32)}}}
	packed, err := l.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := Unpack(data); err == nil && (l.Files() < 1 || l.Files() > MaxFiles) {
			t.Fatal(l)
		}
	})
}
