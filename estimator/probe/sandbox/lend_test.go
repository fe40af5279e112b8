package sandbox

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gresize/gresize/estimator/probe/sandbox/sandboxtest"
	"golang.org/x/sys/unix"
)

// noUsers is the kernel on which users make no user namespaces.
const noUsers = "no user namespaces"

// putHelper builds gresize-sandbox into a folder and gives its file the rights to lend; its stage is this test's own program.
func putHelper(t *testing.T, dir string) string {
	t.Helper()
	folder, err := os.MkdirTemp("/var/tmp", "gresize-stage-") // root's, as /usr/libexec is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	stage := filepath.Join(folder, "stage")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stage, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, HelperName)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags", "-X main.stage="+stage, "-o", path, "../../../cmd/gresize-sandbox")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := sandboxtest.GiveRights(path, LentRights()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNastyScriptsByHelper has the scripts meet the sandbox whose namespaces gresize-sandbox has made, where users may make none.
func TestNastyScriptsByHelper(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file its rights")
	}
	if os.Getenv("GRESIZE_TEST_KERNEL") == noUsers {
		nasty(t, noUsers)
		return
	}
	onKernel(t, noUsers)
}

// onKernel runs this test again where that kernel is found.
func onKernel(t *testing.T, name string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "GRESIZE_TEST_KERNEL="+name)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Error(err)
	}
}

// TestHelperAlone: whoever calls the helper by himself gains nothing by it, and without its rights it says what it lacks.
func TestHelperAlone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file its rights")
	}
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) { // a user must get there
		if fi, err := os.Stat(d); err == nil && fi.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(d, fi.Mode()|0o001); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := putHelper(t, dir)
	for _, c := range []struct{ name, script string }{
		{"without descriptors", `"$0"; echo $?`},
		{"with arguments and an environment of its own", `LD_PRELOAD=/tmp/x.so GODEBUG=x GOTRACEBACK=crash GRESIZE_LIBDIR=/tmp exec -a gresize-sandbox-setup "$0" x; echo $?`},
		{"as the stage, in the namespaces of all", `exec 3</dev/null 4</dev/null; (exec -a gresize-sandbox-setup "$0"); echo $?`},
		{"without what it may write to", `ulimit -f 0; ulimit -n 8; "$0" 3</dev/null 4</dev/null; echo $?`},
		{"traced", `command -v strace >/dev/null && strace -f "$0" 2>/dev/null; echo 125`},
	} {
		before, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", c.script, path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54399, Gid: 54399}}
		out, err := cmd.CombinedOutput()
		if text := strings.TrimSpace(string(out)); !strings.HasSuffix(text, "125") && c.name != "with arguments and an environment of its own" {
			t.Errorf("%s: %v\n%s", c.name, err, out)
		}
		after, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || string(after) != string(before) {
			t.Errorf("%s: the mounts outside changed: %v", c.name, err)
		}
	}
}

// TestRightsInTheManual: the command in docs/security.md gives the file what it lends.
func TestRightsInTheManual(t *testing.T) {
	names := map[uintptr]string{unix.CAP_SYS_ADMIN: "sys_admin", unix.CAP_NET_ADMIN: "net_admin", unix.CAP_SETPCAP: "setpcap", unix.CAP_DAC_OVERRIDE: "dac_override", unix.CAP_FOWNER: "fowner",
		unix.CAP_CHOWN: "chown", unix.CAP_FSETID: "fsetid", unix.CAP_MKNOD: "mknod"}
	var all []string
	for _, right := range LentRights() {
		all = append(all, "cap_"+names[right])
	}
	page, err := os.ReadFile("../../../docs/security.md")
	if want := "setcap " + strings.Join(all, ",") + "=ep "; err != nil || !strings.Contains(string(page), want) {
		t.Errorf("%v: no %q", err, want)
	}
}

func TestTrusted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files of root are made")
	}
	dir, err := os.MkdirTemp("/var/tmp", "gresize-trusted-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := trusted(program); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"program", filepath.Join(dir, "link"), filepath.Join(dir, "none"), dir, dir + "/./program", "/proc/self/exe"} {
		if trusted(path) == nil {
			t.Errorf("%s is trusted", path)
		}
	}
	if err := os.Chown(dir, 1, 1); err != nil {
		t.Fatal(err)
	}
	if trusted(program) == nil {
		t.Error("a program in another's folder is trusted")
	}
	if err := os.Chown(dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o775); err != nil {
		t.Fatal(err)
	}
	if trusted(program) == nil {
		t.Error("a program that its group can change is trusted")
	}
}
