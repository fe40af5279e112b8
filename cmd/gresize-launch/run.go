package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/gresize/gresize/daemon/launch"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/systemd"
	"github.com/gresize/gresize/internal/account"
	"github.com/gresize/gresize/internal/buildinfo"
)

// Exit codes; the manual lists them.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// socketName is the FileDescriptorName= of the socket's unit.
const socketName = "gresize-launch"

// sbatchTimeout bounds one submission of a probe.
const sbatchTimeout = 10 * time.Second

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("gresize-launch", flag.ContinueOnError)
	flags.SetOutput(stderr)
	socket := flags.String("socket", "/run/gresize-launch/launch.sock", "listen on `PATH`, unless systemd hands over a socket")
	slurmUser := flags.String("slurm-user", "slurm", "the `USER` that may ask, beside root")
	sbatch := flags.String("sbatch", "/usr/bin/sbatch", "the only command that is run, at `PATH`")
	slurmConf := flags.String("slurm-conf", "", "slurm.conf at `PATH`, if it is not in Slurm's default place")
	probe := flags.String("probe", "/usr/libexec/gresize/gresize-probe", "the program that a probe runs on its node, at `PATH`")
	minUID := uint64(1000)
	flags.Func("min-uid", "submit nothing for users with a smaller `ID` (default 1000)", func(text string) (err error) {
		minUID, err = strconv.ParseUint(text, 10, 32)
		if err != nil || minUID > 1<<32-2 {
			return errors.New("write the number of a user in decimal digits, such as 1000")
		}
		return nil
	})
	version := flags.Bool("version", false, "print the version and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "gresize-launch: unexpected argument %q; see gresize-launch -help\n", flags.Arg(0))
		return exitUsage
	}
	if *version {
		fmt.Fprintln(stdout, "gresize-launch version", buildinfo.Version())
		return exitOK
	}
	logger := slog.New(systemd.LogHandler(stderr))
	// Whatever whoever started this program left open is not for what it starts as the owners of jobs.
	if err := keepDescriptors(); err != nil {
		logger.Error("descriptors that were left open are not closed to sbatch", "error", err)
		return exitFailed
	}
	owner, err := account.System{}.ByName(ctx, *slurmUser)
	if err != nil {
		fmt.Fprintf(stderr, "gresize-launch: -slurm-user: %q: %v (name the SlurmUser of slurm.conf)\n", *slurmUser, err)
		return exitFailed
	}
	config := launch.Config{Sbatch: *sbatch, SlurmConf: *slurmConf, Probe: *probe, AllowedUIDs: []uint32{owner.UID}, MinUID: uint32(minUID), Timeout: sbatchTimeout, Logger: logger}
	if err := serve(ctx, *socket, owner.GID, config); err != nil {
		logger.Error("gresize-launch ends", "error", err)
		return exitFailed
	}
	return exitOK
}

// keepDescriptors closes all descriptors but the first three to the programs that this one starts.
func keepDescriptors() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

func serve(ctx context.Context, path string, gid uint32, config launch.Config) error {
	if os.Geteuid() != 0 {
		return errors.New("gresize-launch has to run as root: it submits probes as the owners of jobs")
	}
	s, err := launch.NewServer(config)
	if err != nil {
		return err
	}
	listener, err := listenFor(path, gid)
	if err != nil {
		return err
	}
	config.Logger.Info("ready", "socket", path, "sbatch", config.Sbatch, "probe", config.Probe)
	if err := systemd.Ready("waiting"); err != nil {
		config.Logger.Warn("systemd cannot be notified", "error", err)
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	return s.Serve(context.WithoutCancel(ctx), listener)
}

// listenFor makes a socket that only root and the group of SlurmUser can connect to.
func listenFor(path string, gid uint32) (*net.UnixListener, error) {
	listener, err := systemd.Listener(socketName)
	if err != nil || listener != nil {
		return listener, err
	}
	if listener, err = listen.Unix(path); err != nil {
		return nil, err
	}
	if err := os.Lchown(path, 0, int(gid)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
