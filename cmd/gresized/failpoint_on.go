//go:build failpoint

package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// failpoint kills the daemon at the place named by GRESIZE_FAILPOINT=PLACE=exit, as kill -9 would, or with PLACE=hang never goes on from there, or with PLACE=stop stops it there until SIGCONT; N*PLACE is the
// N-th time that the place is reached. Places are "<state>:written", after the row of a state, and "<state>:acted", after the action that the row announced, and those of
// jobs.Config.Failpoint.
func failpoint() func(string) {
	place, action, _ := strings.Cut(os.Getenv("GRESIZE_FAILPOINT"), "=")
	if place == "" || action != "exit" && action != "hang" && action != "stop" {
		return nil
	}
	times := int64(1)
	if number, rest, found := strings.Cut(place, "*"); found {
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return nil
		}
		times, place = n, rest
	}
	var reached atomic.Int64
	return func(name string) {
		if name == place && reached.Add(1) == times {
			switch action {
			case "exit":
				// No deferred call and no flush may run.
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			case "stop":
				// A signal to the whole process may be taken by another thread, and this one would go on until that has a processor.
				runtime.LockOSThread()
				_ = unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGSTOP)
				runtime.UnlockOSThread()
				return
			}
			select {}
		}
	}
}
