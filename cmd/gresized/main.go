// Gresized looks after the jobs that ask for a GPU: it answers the plugin in
// slurmctld, has jobs probed, decides, and changes and releases them. It runs
// as SlurmUser and needs no other right.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/estimator/contract"
)

func main() {
	if reader.Asked() {
		os.Exit(reader.Serve())
	}
	if contract.Starter() {
		os.Exit(contract.StartPlugin())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
