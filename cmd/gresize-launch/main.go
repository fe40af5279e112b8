// Gresize-launch is the one part of gresize that runs as root. It has one
// verb: submit a probe, with the configured sbatch and the configured probe
// program, as the owner of a job. Who may ask is decided by the kernel's word
// for who is at the other end of the socket.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
