// Command gresize-probe runs a job's script on a virtual GPU for some steps and
// reports what it saw to gresized. gresized has it started, as the owner of the
// job; it can be run by hand too.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gresize/gresize/estimator/probe/sandbox"
)

func main() {
	sandbox.Main() // takes over when this process is part of a sandbox
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}
