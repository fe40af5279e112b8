package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gresize/gresize/estimator/answer"
	"github.com/gresize/gresize/estimator/vgpu/torchtest"
	"golang.org/x/sys/unix"
)

// TestEstimateInAHomeOfASite: an ordinary user whose home lies in his group's folder, which is root's, on a file system of its own; his script makes a folder for its runs.
func TestEstimateInAHomeOfASite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes the home of another: run by root in make test")
	}
	const uid, gid = 54343, 54343
	mount, err := os.MkdirTemp("/var/tmp", "gresize-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(mount) })
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	home := filepath.Join(mount, "physics", "bob")
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	// A place that cannot be found, only known, is made when the script writes to it.
	known := filepath.Join(mount, "closed", "lab", "bob")
	if err := os.MkdirAll(known, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(known), 0o711); err != nil {
		t.Fatal(err)
	}
	train := filepath.Join(home, "train.py")
	if err := os.WriteFile(train, []byte("import os\nos.makedirs('runs/exp1')\nopen('runs/exp1/log', 'w').write('begun')\nopen('"+known+"/log', 'w').write('begun')\n"+toy), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{home, train, known} {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	// The folder of this tree may be closed to others, as /root is.
	build := filepath.Join(mount, "build")
	if err := errors.Join(os.Mkdir(build, 0o755), unix.Mount("../../build", build, "", unix.MS_BIND, ""),
		unix.Mount("", build, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(build, "bin/gresize"), "estimate", "--json", "--", torchtest.Python(t, "2.6.0"), "train.py")
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var a printed
	if json.Unmarshal(stdout.Bytes(), &a) != nil || err != nil || a.Status != answer.Fits || a.has("script_failed") {
		t.Errorf("%v\n%s%s", err, stdout.String(), stderr.String())
	}
	if _, err := os.Stat(filepath.Join(home, "runs")); err == nil {
		t.Error("the folder for the runs is there outside")
	}
}

// TestEstimateAtAHostWithAnAddress: torchrun and MASTER_ADDR where the host's name leads to an address of an interface, or is in no file.
func TestEstimateAtAHostWithAnAddress(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes a network and a name of its own: run by root in make test")
	}
	python := torchtest.Python(t, "2.6.0")
	program, err := filepath.Abs("../../build/bin/gresize")
	if err != nil {
		t.Fatal(err)
	}
	train := filepath.Join(t.TempDir(), "train.py")
	if err := os.WriteFile(train, []byte("import torch.distributed\ntorch.distributed.init_process_group('nccl')\n"+toy), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ hosts, command string }{
		"torchrun":             {"127.0.0.1 localhost\n10.9.9.1 node7.cluster.test node7\n", python + " -m torch.distributed.run --standalone --nproc_per_node=1 " + train},
		"MASTER_ADDR, no line": {"127.0.0.1 localhost\n", "MASTER_ADDR=$(hostname) MASTER_PORT=29501 RANK=0 WORLD_SIZE=1 " + python + " " + train},
	} {
		t.Run(name, func(t *testing.T) {
			hosts := filepath.Join(filepath.Dir(train), "hosts")
			if err := os.WriteFile(hosts, []byte(c.hosts), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--uts", "--mount", "sh", "-ec", `hostname node7; ip link set lo up
				ip link add eth7 type dummy 2>/dev/null || ip link add eth7 type bridge; ip link set eth7 up; ip addr add 10.9.9.1/24 dev eth7
				mount --bind "$1" /etc/hosts; exec "$0" estimate --json -- sh -c "$2"`, program, hosts, c.command)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			var a printed
			if json.Unmarshal(stdout.Bytes(), &a) != nil || err != nil || a.Status != answer.Fits {
				t.Errorf("%v\n%s%s", err, stdout.String(), stderr.String())
			}
		})
	}
}
