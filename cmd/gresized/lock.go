package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockLog makes sure that no other gresized uses the same decision log: two of them would each believe that a job is theirs to change.
// The lock is the process's and goes with it, however it ends.
func lockLog(logPath string) (*os.File, error) {
	path := logPath + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("lock the decision log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the decision log: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another gresized uses the decision log %s: stop it first, or give this one a log.path of its own", logPath)
	}
	return file, nil
}
