package listen

import (
	"net"
	"sync"
)

// Limited accepts at most so many connections at once: a page that many people open must not use up the descriptors of the daemon. Others wait their turn.
func Limited(l net.Listener, connections int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, connections), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept waits for a connection, and first for a free place.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends the waiting, too.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	free func()
}

// Close gives the place back.
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
