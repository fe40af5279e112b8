// Package tools tests the scripts that set a machine up.
package tools

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inChroot runs a shell command line in a plain chroot that shows the machine's own files, in a mount namespace that
// ends with it. The scripts own-root and slurmroot/make-root lie in it at the root.
func inChroot(t *testing.T, line string) (string, int) {
	t.Helper()
	// The root is a folder below a mount, as a chroot's usually is, and so not a mount's own root.
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	tools, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", `
		root=$1/root tools=$2 line=$3
		mount -t tmpfs tmpfs "$1"
		mkdir -p "$root"/proc "$root"/tmp "$root"/dev "$root"/work
		for dir in bin sbin lib lib64 usr etc; do
			[ -e "/$dir" ] || continue
			mkdir "$root/$dir"
			mount --rbind "/$dir" "$root/$dir"
		done
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		chmod 1777 "$root/tmp"
		mkdir "$root/slurmroot"
		cp "$tools/own-root" "$root/own-root"
		cp "$tools/slurmroot/make-root" "$root/slurmroot/make-root"
		exec chroot "$root" sh -c "cd /work && $line"`, "sh", top, tools, line)
	var out, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
	case err != nil:
		t.Fatal(err)
	}
	if errText.Len() > 0 {
		t.Logf("stderr: %s", errText.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// sandbox makes, as an unprivileged user, the namespaces of the probe's sandbox.
const sandbox = `su -s /bin/sh nobody -c 'unshare --user --map-root-user --mount --pid --fork --net --mount-proc true'`

func TestOwnRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root, as make test does")
	}
	if out, code := inChroot(t, sandbox); code == 0 {
		t.Fatalf("the chroot of this test allows sandboxes by itself, so the test shows nothing: %s", out)
	}
	if out, code := inChroot(t, "/own-root sh -c \""+sandbox+"\""); code != 0 {
		t.Errorf("no sandbox under own-root: code %d, %s", code, out)
	}
	out, code := inChroot(t, `A='b c' /own-root sh -c 'pwd; echo "$A" "$1"; ls /; cat /proc/self/comm; echo x >/tmp/f; cat /tmp/f; exit 7' sh 'd  e'`)
	if code != 7 {
		t.Errorf("exit code %d, the command's is 7", code)
	}
	for _, line := range []string{"/work", "b c d  e", "own-root", "cat", "x"} {
		if !strings.Contains("\n"+out, "\n"+line+"\n") {
			t.Errorf("no line %q in:\n%s", line, out)
		}
	}
}

func TestOwnRootOutsideAChroot(t *testing.T) {
	out, err := exec.Command("./own-root", "sh", "-c", `echo "$1"; exit 3`, "sh", "a b").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "a b\n" {
		t.Errorf("printed %q, %v", out, err)
	}
}

// TestMakeRootInAChroot comes as far as debootstrap, which this test gives no network but words of its own, with mounts that nobody else sees.
func TestMakeRootInAChroot(t *testing.T) {
	const line = `mkdir /tmp/bin
printf '#!/bin/sh\necho http://localhost/debian\n' >/tmp/bin/apt-get
printf '#!/bin/sh\nmount -t tmpfs tmpfs /tmp/bin && echo debootstrap $2 in $(findmnt --noheadings --output PROPAGATION /) mounts >&2\nexit 1\n' >/tmp/bin/debootstrap
chmod 755 /tmp/bin/*
PATH=/tmp/bin:$PATH GRESIZE_CACHE=/tmp/cache /slurmroot/make-root 24.11 2>&1
ls /tmp/bin /tmp/cache`
	out, code := inChroot(t, line)
	if code != 0 || !strings.Contains(out, "debootstrap trixie in private mounts\n") || !strings.HasSuffix(out, "/tmp/bin:\napt-get\ndebootstrap\n\n/tmp/cache:\nslurm-24.11.lock\n") {
		t.Errorf("code %d:\n%s", code, out)
	}
}

// TestSetupIsDone shows that a second run of the set-up needs neither root's network nor time: it prints nothing.
func TestSetupIsDone(t *testing.T) {
	for _, what := range []string{"slurm", "slurm-24.11"} {
		cmd := exec.Command("unshare", "--net", "./setup", what)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", what, err, out)
		}
	}
}

// TestInstall installs what is built below another root, and asks programs from there for what they find beside themselves.
func TestInstall(t *testing.T) {
	root := t.TempDir()
	make := exec.Command("make", "-C", "..", "install", "DESTDIR="+root, "SLURM_PLUGIN_DIR=/usr/lib/slurm")
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []string{"usr/bin/gresized", "usr/libexec/gresize/gresize-probe", "usr/lib/gresize/vgpu/gresize-audit.so", "usr/lib/systemd/system/gresized.service", "usr/lib/slurm/job_submit_gresize.so"} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	gresize := filepath.Join(root, "usr/bin/gresize")
	if out, err := exec.Command(gresize, "estimator", "list").CombinedOutput(); err != nil || !strings.Contains(string(out), "vgpu") {
		t.Errorf("its estimators: %v: %s", err, out)
	}
	var exit *exec.ExitError
	out, err := exec.Command(gresize, "estimate", "--no-sandbox", "--", "true").CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(string(out), "no_torch") {
		t.Errorf("the virtual GPU: %v: %s", err, out)
	}
	if out, err := exec.Command("make", "-C", "..", "install", "BUILD="+root+"/none", "DESTDIR="+root).CombinedOutput(); err == nil || !strings.Contains(string(out), "run make build") {
		t.Errorf("nothing built: %v: %s", err, out)
	}
}
