// Package systemd tells the service manager that the daemon is ready and
// alive, and takes over sockets that it has opened. Without systemd it does
// nothing. It is the only user of go-systemd.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
)

// Listener returns the unix socket that systemd has opened under this name, or nil.
func Listener(name string) (*net.UnixListener, error) {
	byName, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("socket activation: %w", err)
	}
	for _, l := range byName[name] {
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
			return u, nil
		}
	}
	return nil, nil
}

// Ready says that requests are answered.
func Ready(status string) error {
	_, err := daemon.SdNotify(false, daemon.SdNotifyReady+"\nSTATUS="+status)
	return err
}

// Stopping says that the end has begun.
func Stopping() error {
	_, err := daemon.SdNotify(false, daemon.SdNotifyStopping)
	return err
}

// Watch tells the watchdog that the daemon is alive, as often as it wants to know and only while alive returns nil. Why it does not is said once.
func Watch(ctx context.Context, alive func(context.Context) error, logger *slog.Logger) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	ticker := time.NewTicker(interval / 3)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			check, cancel := context.WithTimeout(ctx, interval/3)
			err := alive(check)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				// Nothing can be done when systemd does not hear it; it will restart us.
				_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
				if failing {
					logger.Info("the daemon does its work again")
				}
			case !failing:
				logger.Error("the daemon does not do its work: the watchdog is not told that it is alive, and will restart it", "error", err)
			}
			failing = err != nil
		}
	}
}
