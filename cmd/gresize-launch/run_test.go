package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/internal/account"
)

// TestMain is gresize-launch itself where a test starts it.
func TestMain(m *testing.M) {
	if os.Getenv("GRESIZE_TEST_LAUNCH") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSbatchSeesNothingOfTheLauncher starts gresize-launch with a hostile environment and a descriptor that somebody left open. What it runs as the job's owner has
// neither, nor any right.
func TestSbatchSeesNothingOfTheLauncher(t *testing.T) {
	u, err := account.ByName("gresize-user") // made by tools/setup
	if err != nil {
		t.Fatal(err)
	}
	uid, gid := u.UID, u.GID
	dir, err := os.MkdirTemp("", "gresize-launch-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{dir, filepath.Join(dir, "out"), filepath.Join(dir, "evil")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "out"), 0o777); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out", "seen")
	program := filepath.Join(dir, "sbatch")
	script := `#!/usr/bin/python3 -I
import os
with open("` + out + `", "w") as f:
    mine = f.fileno()
    f.write(open("/proc/self/environ").read().replace("\0", "\n"))
    for n in sorted(os.listdir("/proc/self/fd"), key=int):
        try: target = os.readlink("/proc/self/fd/" + n)
        except OSError: continue # the listing itself
        if int(n) != mine: f.write("fd %s %s\n" % (n, target))
    f.write("".join(l for l in open("/proc/self/status") if l.split(":")[0] in ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapAmb", "CapInh")))
print(42)
`
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	secret, err := os.CreateTemp(dir, "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	socket := filepath.Join(dir, "s")
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-socket", socket, "-slurm-user", "root", "-sbatch", program, "-probe", program, "-slurm-conf", "/etc/slurm/ours.conf")
	c.Env = []string{"GRESIZE_TEST_LAUNCH=1", "PATH=" + dir + "/evil", "LD_PRELOAD=" + dir + "/evil/none.so", "LD_LIBRARY_PATH=" + dir + "/evil", "SLURM_CONF=/evil/slurm.conf", "SBATCH_UID=0", "SBATCH_EXPORT=ALL", "SLURM_JOB_ID=7",
		"BASH_ENV=" + dir + "/evil/rc", "TOKEN=secret"}
	c.ExtraFiles = []*os.File{secret, secret, secret}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Signal(syscall.SIGTERM); _ = c.Wait() })
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("gresize-launch does not listen")
		}
	}
	id, err := (&launch.Client{Path: socket, Timeout: 20 * time.Second}).Submit(t.Context(), launch.Request{UID: uid, GID: gid, Name: launch.NamePrefix + "abcdefgh", Key: strings.Repeat("k", 52),
		URL: "http://127.0.0.1:1/v1/probes/x", WorkDir: "/tmp", TimeLimitMinutes: 5, CPUs: 1, MemoryMiB: 100})
	if err != nil || id != 42 {
		t.Fatal(id, err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var rest []string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		switch {
		case line == "LC_ALL=C", line == "PATH=/usr/bin:/bin", line == "SLURM_CONF=/etc/slurm/ours.conf":
		case strings.HasPrefix(line, "fd 0 pipe:"), strings.HasPrefix(line, "fd 1 pipe:"), strings.HasPrefix(line, "fd 2 pipe:"):
		case strings.HasPrefix(line, launch.KeyVariable+"="), strings.HasPrefix(line, launch.URLVariable+"="):
		case line == fmt.Sprintf("Uid:\t%d\t%d\t%d\t%d", uid, uid, uid, uid), line == fmt.Sprintf("Gid:\t%d\t%d\t%d\t%d", gid, gid, gid, gid):
		case strings.HasPrefix(line, "Groups:") && !strings.Contains(line+" ", "\t0 ") && !strings.Contains(line+" ", " 0 "):
		case strings.HasPrefix(line, "Cap") && strings.HasSuffix(line, "\t0000000000000000"):
		default:
			rest = append(rest, line)
		}
	}
	if len(rest) > 0 {
		t.Errorf("sbatch sees %q, all of it:\n%s", rest, data)
	}
	if !strings.Contains(string(data), launch.KeyVariable+"=") || !strings.Contains(string(data), "Uid:\t"+strconv.Itoa(int(uid))) {
		t.Errorf("the script saw less than it should:\n%s", data)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-min-uid", "0x10"}, exitUsage, "in decimal digits"},
		{[]string{"-min-uid", "4294967295"}, exitUsage, "in decimal digits"},
		{[]string{"-min-uid", "-1"}, exitUsage, "in decimal digits"},
		{[]string{"word"}, exitUsage, "unexpected argument"},
		{[]string{"--version"}, exitOK, "gresize-launch version "},
		{[]string{"-help"}, exitOK, "default 1000"},
		{[]string{"-min-uid", "010", "-slurm-user", "nobody-of-that-name"}, exitFailed, "-slurm-user: \"nobody-of-that-name\": the system knows no such user (`getent passwd` does not find one) (name the SlurmUser of slurm.conf)"},
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.says) || (out.Len() > 0) != (c.args[0] == "--version") {
			t.Errorf("%q: exit code %d, want %d, saying %q:\n%s%s", c.args, code, c.code, c.says, out.String(), errs.String())
		}
	}
}
