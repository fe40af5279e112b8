package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// bomb forks until it is refused, ends what it has started and then itself.
const bomb = `
import os, signal
all = []
try:
    while True:
        all.append(os.fork())
        if all[-1] == 0: signal.pause()
except OSError as e:
    for pid in all: os.kill(pid, 9); os.waitpid(pid, 0)
    raise SystemExit(3)`

// TestForksRefusedByAJobsGroup: on a node the bound is often that of the job's own group of processes. A command that fails since it was refused a process is told so, though nothing of it is left.
func TestForksRefusedByAJobsGroup(t *testing.T) {
	if os.Getenv("GRESIZE_TEST_GROUP") != "" {
		exit, out := run(t, t.TempDir(), "", func(s *Spec) { s.Argv = []string{"python3", "-c", bomb} })
		fmt.Printf("code %d bound %q killed %v notes %q\n%s", exit.Code, exit.Bound, exit.Killed, exit.Notes, out)
		exit, _ = run(t, t.TempDir(), "exit 3", nil)
		fmt.Printf("then code %d bound %q\n", exit.Code, exit.Bound)
		return
	}
	for _, place := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		group := filepath.Join(place, fmt.Sprintf("gresize-test-%d", os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		defer syscall.Rmdir(group)
		if os.WriteFile(filepath.Join(group, "pids.max"), []byte("150"), 0) != nil {
			continue // this one has no such bound
		}
		cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group, os.Args[0], "-test.run=^TestForksRefusedByAJobsGroup$")
		cmd.Env = append(os.Environ(), "GRESIZE_TEST_GROUP=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), `code 3 bound "processes" killed true`) || !strings.Contains(string(out), "pids.max") || !strings.Contains(string(out), `then code 3 bound ""`) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	t.Skip("no group of processes with a bound can be made here: it takes root and the controller pids")
}
