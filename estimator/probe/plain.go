package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gresize/gresize/estimator/probe/hostmem"
)

// executePlain runs the command without a sandbox, in a process group of its own.
func (r *run) executePlain(ctx context.Context) error {
	filesDir, reportDir := filepath.Join(r.private, "files"), filepath.Join(r.private, "left")
	for _, d := range []string{filesDir, reportDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("probe: private directory: %w", err)
		}
	}
	argv, files, err := r.commandAndFiles(filesDir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(filesDir, f.Name), f.Data, os.FileMode(f.Mode)); err != nil {
			return fmt.Errorf("probe: %w", err)
		}
	}
	env, err := r.environment(filesDir, reportDir, "")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = r.options.Dir, env
	if len(r.options.Input) > 0 {
		cmd.Stdin = bytes.NewReader(r.options.Input)
	}
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		r.exit.Code = 127
		_, _ = r.output.Write([]byte(err.Error() + "\n"))
		return os.Mkdir(r.reportDir(), 0o700)
	}
	sampler := hostmem.Start(hostmem.TreeOf(cmd.Process.Pid), 0, nil)
	stopWatching := r.watch(reportDir, begin)
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, &unix.Siginfo{}, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	sampler.Ended(cmd.Process.Pid)
	err = cmd.Wait()
	stopWatching()
	r.exit.HostPeakBytes, r.exit.Limits = sampler.Stop().NeedBytes, sampler.Limits()
	r.ranFor = time.Since(begin)
	// What it left in its group ends with it.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	r.exit.Killed = ctx.Err() != nil
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.exit.Signal = int(status.Signal())
		r.exit.Code = 128 + r.exit.Signal
	} else {
		r.exit.Code = cmd.ProcessState.ExitCode()
	}
	if err != nil && cmd.ProcessState == nil {
		return errors.Join(errors.New("probe: wait for the command"), err)
	}
	r.reportsFull = full(reportDir)
	return collect(reportDir, r.reportDir())
}
