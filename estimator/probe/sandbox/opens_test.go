package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOpenedFilesAreSeen: whoever opens a file and however it is named, it is noted; what the command makes itself is not.
func TestOpenedFilesAreSeen(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"settings.sh", "sub/data", "seen", "changed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x=1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A link to a folder elsewhere: what lies beside that folder is meant by "..".
	if err := os.MkdirAll(filepath.Join(dir, "real/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "real/beside"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real/x", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	script := `cat link/../beside; python3 -c 'open("changed", "r+")'; . ./settings.sh; cd sub; cat data >/dev/null; cat ../seen >/dev/null; echo made >made; cat made >/dev/null; (cat "` + dir + `/none" 2>/dev/null); cat /proc/self/stat >/dev/null; exit 3`
	p, err := Start(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir, Policy: Policy{RecordOpens: true}})
	if err != nil {
		t.Fatal(err)
	}
	exit := p.Wait()
	seen, complete := p.Seen()
	paths := seen.Read
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if exit.Code != 3 || !complete {
		t.Fatalf("%+v, complete %v, %d paths: %q", exit, complete, len(paths), paths)
	}
	for _, name := range []string{"settings.sh", "sub/data", "seen", "none", "changed", "real/beside"} {
		if !slices.Contains(paths, filepath.Join(dir, name)) {
			t.Errorf("%s was not seen in %q", name, paths)
		}
	}
	if slices.Contains(paths, filepath.Join(dir, "sub/made")) {
		t.Error("a file that the command made is among those that it read")
	}
	if !slices.ContainsFunc(paths, func(p string) bool { return strings.HasSuffix(p, "/cat") }) || !slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, "libc.so") }) {
		t.Errorf("programs and libraries were not seen: %q", paths)
	}

	asking, err := Start(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", `[ -e none ]; [ -d sub ]; [ -e settings.sh ] && . ./settings.sh; ls sub >/dev/null; echo x >new; [ -e new ]; python3 -c '
import os
os.path.exists("asked-by-python"); os.path.getsize("sub/data"); os.access("real/.gresize-listing", 0); os.listdir("link")'`}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir, Policy: Policy{RecordOpens: true}})
	if err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	seen, complete = asking.Seen()
	if err := asking.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"none", "sub", "asked-by-python", "sub/data"} {
		if !slices.Contains(seen.Asked, filepath.Join(dir, name)) {
			t.Errorf("the question for %s was not seen in %q (complete %v)", name, seen.Asked, complete)
		}
	}
	if slices.Contains(seen.Asked, filepath.Join(dir, "settings.sh")) || !slices.Contains(seen.Read, filepath.Join(dir, "settings.sh")) || slices.Contains(seen.Asked, filepath.Join(dir, "new")) {
		t.Errorf("what was read, or made by the command, is among what was only asked about: %q", seen.Asked)
	}
	// What Python lists is told by the Python layer, which is not here: of its calls only the mark counts.
	if want := []string{filepath.Join(dir, "real"), filepath.Join(dir, "sub")}; !complete || !slices.Equal(slices.Sorted(slices.Values(slices.DeleteFunc(seen.Listed, func(p string) bool { return !strings.HasPrefix(p, dir) }))), want) {
		t.Errorf("complete %v, listed %q, want %q", complete, seen.Listed, want)
	}

	around, err := Start(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", "exec 7<.; cat /proc/self/fd/7/seen"}, Dir: dir, Policy: Policy{RecordOpens: true}})
	if err != nil {
		t.Fatal(err)
	}
	around.Wait()
	if _, complete := around.Seen(); complete {
		t.Error("complete, though a way led through a descriptor")
	}
	if err := around.Close(); err != nil {
		t.Error(err)
	}

	// What a process sees under other mounts, or another root, cannot be found again by its name.
	for _, script := range []string{"unshare -Um cat seen", "unshare -UR real cat /beside"} {
		p, err := Start(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir, Policy: Policy{RecordOpens: true}})
		if err != nil {
			t.Fatal(err)
		}
		p.Wait()
		if _, complete := p.Seen(); complete {
			t.Errorf("%s: complete", script)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}

	plain, err := Start(t.Context(), Spec{Argv: []string{"/bin/true"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	plain.Wait()
	if _, complete := plain.Seen(); complete {
		t.Error("complete without having looked")
	}
	if err := plain.Close(); err != nil {
		t.Error(err)
	}
}

// TestPythonTellsWhatItsProgramLists: the program's own looks into folders are told, however they are made; those for modules are not, or no job whose output lies
// beside its script would ever be answered from an earlier one.
func TestPythonTellsWhatItsProgramLists(t *testing.T) {
	layer, err := filepath.Abs("../../vgpu/python")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want := []string{"by-descriptor", "by-glob", "by-listdir", "by-pathlib", "by-scandir", "by-walk"}
	for _, name := range append([]string{"modules"}, want...) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := `
import glob, importlib.metadata, os, pathlib, pkgutil, sys
sys.path.insert(0, "modules")
list(importlib.metadata.distributions()); list(pkgutil.iter_modules(["modules"]))
try:
    import nothing_of_this_name
except ImportError:
    pass
os.listdir("by-listdir"); list(os.scandir(b"by-scandir")); glob.glob("by-glob/*.pt"); list(pathlib.Path("by-pathlib").iterdir()); list(os.walk("by-walk"))
os.listdir(os.open("by-descriptor", os.O_RDONLY))
`
	p, err := Start(t.Context(), Spec{Argv: []string{"/usr/bin/python3", "-c", program}, Env: []string{"PATH=/usr/bin:/bin", "PYTHONPATH=" + layer, "GRESIZE_VGPU_REPORT_DIR=/tmp"}, Dir: dir,
		Policy: Policy{RecordOpens: true}})
	if err != nil {
		t.Fatal(err)
	}
	exit := p.Wait()
	seen, complete := p.Seen()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, path := range seen.Listed {
		if name, ours := strings.CutPrefix(path, dir+"/"); ours {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if exit.Code != 0 || !complete || !slices.Equal(got, want) || slices.Contains(seen.Listed, dir) {
		t.Errorf("%+v, complete %v, listed %q, want %q; all: %q", exit, complete, got, want, seen.Listed)
	}
}
