package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLargeFilesAreOnlyRead: a file for whose copy there is no room can be opened as a database opens it, and not be changed, and that is told by its name; one that was changed before can be.
func TestLargeFilesAreOnlyRead(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"large.mdb": 96 << 20, "small.mdb": 20 << 20} {
		if err := os.WriteFile(filepath.Join(dir, name), append([]byte(name), make([]byte, size-len(name))...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse.mdb"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if err := sparse.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // the time of a file system may be behind
	for _, record := range []bool{false, true} {
		exit, out := run(t, dir, `python3 -c '
import fcntl, mmap, os, time
begin = time.time()
def attempt(what, f):
    try: f(); print(what, "done")
    except OSError as e: print(what, e.strerror)
def database():
    f = os.open("large.mdb", os.O_RDWR | os.O_CLOEXEC); m = mmap.mmap(f, 0, prot=mmap.PROT_READ); fcntl.flock(f, fcntl.LOCK_EX)
    print(os.pread(f, 5, 0), m[:5], os.fstat(f).st_size, os.get_inheritable(f))
attempt("database", database)
attempt("write", lambda: os.write(os.open("large.mdb", os.O_RDWR), b"x"))
attempt("append", lambda: os.write(os.open("large.mdb", os.O_WRONLY | os.O_APPEND | os.O_CREAT), b"x"))
attempt("map", lambda: mmap.mmap(os.open("large.mdb", os.O_RDWR), 0))
attempt("exclusive", lambda: os.open("large.mdb", os.O_RDWR | os.O_CREAT | os.O_EXCL))
attempt("mode", lambda: os.chmod("large.mdb", 0o600))
attempt("name", lambda: os.rename("large.mdb", "other"))
attempt("link", lambda: os.link("large.mdb", "linked"))
attempt("truncate", lambda: os.truncate("large.mdb", 96 << 20))
attempt("read", lambda: open("large.mdb", "rb"))
attempt("small", lambda: open("small.mdb", "r+b"))
attempt("sparse", lambda: open("sparse.mdb", "r+b"))
open("new", "wb").write(bytes(30 << 20))
attempt("new", lambda: open("new", "r+b"))
attempt("small again", lambda: open("small.mdb", "r+b"))
attempt("all of it", lambda: open("large.mdb", "wb"))
print("quick" if time.time() - begin < 5 else "slow")'`, func(s *Spec) { s.Policy = Policy{ScratchBytes: 64 << 20, RecordOpens: record} })
		full := " No space left on device\n"
		want := "b'large' b'large' 100663296 False\ndatabase done\nwrite Bad file descriptor\nappend Bad file descriptor\nmap Permission denied\nexclusive File exists\nmode" + full + "name" + full + "link" + full + "truncate" + full + "read done\nsmall done\nsparse done\nnew done\nsmall again done\nall of it done\nquick\n"
		if exit.Code != 0 || out != want || !strings.Contains(exit.TooLarge, "/large.mdb is opened to be changed: its 96 MiB would be copied") {
			t.Errorf("%+v\n%s\nwant\n%s", exit, out, want)
		}
	}
}
