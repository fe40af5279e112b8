// Package listen opens the addresses on which the daemon is asked: sockets that
// only its user and group can use, and TCP. It serves nobody.
package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// unixPrefix begins an address that is a path.
const unixPrefix = "unix:"

// On opens "unix:/path" or an address with a port.
func On(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		l, err := Unix(path)
		if err != nil {
			return nil, err // not a listener that is none, which is no nil
		}
		return l, nil
	}
	return net.Listen("tcp", address)
}

// Unix makes the socket at path, in place of one that a dead daemon left behind. Only the daemon's user and its group
// can connect. It sets the umask of the process for a moment, so call it before anything else writes files.
func Unix(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("listen: %s is there and is no socket: remove it or choose another path", path)
		}
		if connection, err := net.DialTimeout("unix", path, time.Second); err == nil {
			return nil, errors.Join(fmt.Errorf("listen: somebody answers on %s: is another gresized running?", path), connection.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
	}
	// The mode is right from the first moment, and nothing is looked up by its name again that others may have put there.
	old := syscall.Umask(0o117)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}
