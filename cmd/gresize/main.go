// Command gresize is for people: it estimates what a command needs, and shows
// what the daemon decided and why.
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
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
