// Package systemd tells the service manager that the daemon is ready and
// alive, and takes over sockets that it has opened. Without systemd it does
// nothing. It is the only user of go-systemd.
package systemd

import (
	"context"
	"fmt"
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

// Watch tells the watchdog that the daemon is alive, as often as it wants to know and only while alive returns nil.
func Watch(ctx context.Context, alive func(context.Context) error) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	ticker := time.NewTicker(interval / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			check, cancel := context.WithTimeout(ctx, interval/3)
			if alive(check) == nil {
				// Nothing can be done when systemd does not hear it; it will restart us.
				_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			}
			cancel()
		}
	}
}
