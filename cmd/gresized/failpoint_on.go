//go:build failpoint

package main

import (
	"os"
	"strings"
	"syscall"
)

// failpoint kills the daemon at the place named by GRESIZE_FAILPOINT=PLACE=exit, as kill -9 would. Places are
// "<state>:written", after the row of a state, and "<state>:acted", after the action that the row announced.
func failpoint() func(string) {
	place, action, _ := strings.Cut(os.Getenv("GRESIZE_FAILPOINT"), "=")
	if place == "" || action != "exit" {
		return nil
	}
	return func(name string) {
		if name == place {
			// No deferred call and no flush may run.
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}
