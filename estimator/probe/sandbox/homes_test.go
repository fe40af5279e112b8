package sandbox

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	homeUser, homeGroup, homeLab = 54341, 54341, 54342 // an ordinary user, his own group, and one that he is in
)

// siteHome is a folder of a user as sites lay them out, below a root of the test's.
type siteHome struct {
	name string
	// parents are the folders above it that belong to root, with their modes, and what is mounted there; the last is the home itself.
	parents []siteFolder
	// link is another name of the home, by which the command knows it.
	link string
}

type siteFolder struct {
	path     string
	uid, gid int
	mode     os.FileMode
	// mounted: a file system of its own; bound: another folder is shown here.
	mounted bool
	bound   string
	// access are the users whom an access list gives all rights, inherited by what is made here.
	access []uint32
}

func siteHomes() []siteHome {
	root := func(path string, mode os.FileMode) siteFolder { return siteFolder{path: path, mode: mode} }
	own := func(path string) siteFolder {
		return siteFolder{path: path, uid: homeUser, gid: homeGroup, mode: 0o700}
	}
	lab := func(path string, uid int) siteFolder {
		return siteFolder{path: path, uid: uid, gid: homeLab, mode: 0o775 | os.ModeSetgid}
	}
	onItsOwn := func(f siteFolder) siteFolder { f.mounted = true; return f }
	return []siteHome{
		{name: "a group's folder above", parents: []siteFolder{root("home/physics", 0o755), own("home/physics/bob")}},
		{name: "all homes on a file system", parents: []siteFolder{onItsOwn(root("nfs", 0o755)), root("nfs/physics", 0o755), own("nfs/physics/bob")}},
		{name: "each home a file system", parents: []siteFolder{root("auto/physics", 0o755), onItsOwn(own("auto/physics/bob"))}},
		{name: "each home a file system, folders that cannot be listed", parents: []siteFolder{root("hidden", 0o711), root("hidden/physics", 0o711), onItsOwn(own("hidden/physics/bob"))}},
		{name: "folders that cannot be listed", parents: []siteFolder{root("closed", 0o711), root("closed/physics", 0o711), own("closed/physics/bob")}},
		{name: "scratch of a group", parents: []siteFolder{onItsOwn(root("scratch", 0o755)), lab("scratch/lab", 0), own("scratch/lab/u")}},
		{name: "a project's folder", parents: []siteFolder{root("project", 0o755), lab("project/lab", 0), lab("project/lab/code", homeUser), lab("project/lab/code/deep", homeUser), lab("project/lab/code/deep/er", 0)}},
		{name: "a folder by an access list", parents: []siteFolder{root("acl", 0o755), {path: "acl/p", mode: 0o755, access: []uint32{homeUser, 54399}}}},
		{name: "an access list that names others", parents: []siteFolder{root("shared", 0o755), {path: "shared/p", uid: homeUser, gid: homeGroup, mode: 0o755, access: []uint32{54399}}}},
		{name: "nested deeply", parents: []siteFolder{root("a", 0o755), root("a/b", 0o755), root("a/b/c", 0o755), root("a/b/c/d", 0o755), root("a/b/c/d/e", 0o755), root("a/b/c/d/e/f", 0o755), own("a/b/c/d/e/f/bob")}},
		{name: "a symbolic link", parents: []siteFolder{root("data1", 0o755), root("data1/users", 0o755), own("data1/users/bob")}, link: "u/bob"},
		{name: "a bind mount", parents: []siteFolder{root("srv", 0o755), root("srv/real", 0o755), own("srv/real/bob"), {path: "bind", bound: "srv/real", mode: 0o755}, own("bind/bob")}},
		{name: "open to all", parents: []siteFolder{root("open", 0o755), root("open/all", 0o777|os.ModeSticky), own("open/all/bob")}},
	}
}

func (h *siteHome) dir(root string) string {
	if h.link != "" {
		return filepath.Join(root, h.link)
	}
	return filepath.Join(root, h.parents[len(h.parents)-1].path)
}

func (h *siteHome) make(t *testing.T, root string) {
	t.Helper()
	for _, f := range h.parents {
		path := filepath.Join(root, f.path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case f.mounted:
			err = unix.Mount("tmpfs", path, "tmpfs", 0, "")
		case f.bound != "":
			err = unix.Mount(filepath.Join(root, f.bound), path, "", unix.MS_BIND, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.mounted || f.bound != "" {
			t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
		}
		if err := os.Chown(path, f.uid, f.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, f.mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"system.posix_acl_access", "system.posix_acl_default"} {
			if len(f.access) > 0 {
				if err := unix.Setxattr(path, name, accessList(f.access), 0); err != nil {
					t.Skipf("no access lists here: %v", err)
				}
			}
		}
	}
	last := h.parents[len(h.parents)-1]
	old := filepath.Join(root, last.path, "old")
	if err := os.WriteFile(old, []byte("before\n"), 0o664); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(old, homeUser, last.gid); err != nil {
		t.Fatal(err)
	}
	if h.link != "" {
		link := filepath.Join(root, h.link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, last.path), link); err != nil {
			t.Fatal(err)
		}
	}
}

// accessList gives the named users all rights, in the kernel's form.
func accessList(users []uint32) []byte {
	const version, none = 2, ^uint32(0)
	list := binary.LittleEndian.AppendUint32(nil, version)
	add := func(tag, rights uint16, number uint32) {
		list = binary.LittleEndian.AppendUint16(list, tag)
		list = binary.LittleEndian.AppendUint16(list, rights)
		list = binary.LittleEndian.AppendUint32(list, number)
	}
	add(0x01, 7, none)
	for _, user := range users {
		add(0x02, 7, user)
	}
	add(0x04, 5, none)
	add(0x10, 7, none)
	add(0x20, 5, none)
	return list
}

// TestHomesOfASite: wherever its owner may write, the command may, and nothing of it stays. It needs root, who makes such places.
func TestHomesOfASite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes folders of others: run by root in make test")
	}
	root, err := os.MkdirTemp("/var/tmp", "gresize-homes-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	program := copyOfThisProgram(t, root)
	homes := siteHomes()
	for i := range homes {
		homes[i].make(t, root)
	}
	before := snapshot(t, root)
	asBob := func(t *testing.T, home string, dirs ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAsBob$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "GRESIZE_TEST_HOME="+home, "GRESIZE_TEST_DIRS="+strings.Join(dirs, ":"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: homeUser, Gid: homeGroup, Groups: []uint32{homeLab}}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
			t.Errorf("the world changed:\n%s", diff)
		}
	}
	var all []string
	for i := range homes {
		dir := homes[i].dir(root)
		t.Run(homes[i].name, func(t *testing.T) { asBob(t, dir, dir) })
		all = append(all, dir)
	}
	t.Run("each from the first", func(t *testing.T) { asBob(t, all[0], all...) })
}

// copyOfThisProgram is one that others can run: the test's own directory is closed to them.
func copyOfThisProgram(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestAsBob is the part of TestHomesOfASite that runs as the user. The script reads the folders from its standard input, where nothing looks for them: one that cannot be listed is found when the script
// writes to it, and then the script is run anew.
func TestAsBob(t *testing.T) {
	home := os.Getenv("GRESIZE_TEST_HOME")
	if home == "" {
		t.Skip("one half of another test, which starts it in a process of its own")
	}
	dirs := strings.Split(os.Getenv("GRESIZE_TEST_DIRS"), ":")
	var exit Exit
	var out string
	var writable []string
	for len(writable) == 0 || exit.Missing != "" && len(writable) < 4 {
		exit, out = run(t, home, `while read -r d; do cd "$d" && mkdir -p runs/exp1 && echo new > runs/exp1/log && touch new && echo more >> old && cat old && mkdir -p a/b && mv new a/b/ && rm -r a && test ! -e a || echo "failed in $d"; done`,
			func(s *Spec) {
				s.Env, s.Input, s.Writable, s.Restart = append(s.Env, "HOME="+home), []byte(strings.Join(dirs, "\n")+"\n"), writable, func(string) bool { return true }
			})
		writable = append(writable, exit.Missing)
	}
	if len(dirs) > 1 && len(writable) < 2 {
		t.Error("a folder that nobody can find was found before")
	}
	told := slices.ContainsFunc(exit.Notes, func(note string) bool { return strings.Contains(note, "/gresize-homes-") })
	if want := strings.Repeat("before\nmore\n", len(dirs)); exit.Code != 0 || out != want || told {
		t.Errorf("%+v\n%s", exit, out)
	}
}
