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
	paths, complete := p.Opened()
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

	around, err := Start(t.Context(), Spec{Argv: []string{"/bin/sh", "-c", "exec 7<.; cat /proc/self/fd/7/seen"}, Dir: dir, Policy: Policy{RecordOpens: true}})
	if err != nil {
		t.Fatal(err)
	}
	around.Wait()
	if _, complete := around.Opened(); complete {
		t.Error("complete, though a way led through a descriptor")
	}
	if err := around.Close(); err != nil {
		t.Error(err)
	}

	plain, err := Start(t.Context(), Spec{Argv: []string{"/bin/true"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	plain.Wait()
	if _, complete := plain.Opened(); complete {
		t.Error("complete without having looked")
	}
	if err := plain.Close(); err != nil {
		t.Error(err)
	}
}
