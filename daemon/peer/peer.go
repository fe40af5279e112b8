// Package peer tells who is at the other end of a unix socket.
package peer

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Of returns the credentials that the kernel noted when the connection was made (SO_PEERCRED).
func Of(connection *net.UnixConn) (unix.Ucred, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var peer *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) { peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, inner); err != nil {
		return unix.Ucred{}, err
	}
	return *peer, nil
}
