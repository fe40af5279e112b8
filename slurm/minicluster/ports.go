package minicluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// The ports lie below Linux's ephemeral range, so that no outgoing connection
// of another program takes one between our look and the daemon's bind.
const (
	firstPort     = 21000
	lastPort      = 32000
	portBlockSize = 20
	portLockDir   = "/run/lock/gresize-minicluster"
)

// portBlock is a run of ports that this process alone hands out while lock is open.
type portBlock struct {
	lock *os.File
	base int
	next int
}

// reservePorts finds a block of which no other cluster and no other program uses a port.
func reservePorts() (*portBlock, error) {
	if err := os.MkdirAll(portLockDir, 0o755); err != nil {
		return nil, fmt.Errorf("minicluster: folder for port locks: %w", err)
	}
	for base := firstPort; base+portBlockSize <= lastPort; base += portBlockSize {
		lock, err := os.OpenFile(filepath.Join(portLockDir, strconv.Itoa(base)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("minicluster: lock of a port block: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && allFree(base) {
			return &portBlock{lock: lock, base: base}, nil
		}
		lock.Close()
	}
	return nil, fmt.Errorf("minicluster: no block of %d free ports between %d and %d on 127.0.0.1", portBlockSize, firstPort, lastPort)
}

// allFree tells whether every port of the block can be bound, on all addresses.
func allFree(base int) bool {
	for port := base; port < base+portBlockSize; port++ {
		l, err := net.Listen("tcp4", ":"+strconv.Itoa(port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// take gives the next port of the block.
func (b *portBlock) take() (int, error) {
	if b.next == portBlockSize {
		return 0, fmt.Errorf("minicluster: more than %d daemons", portBlockSize)
	}
	port := b.base + b.next
	b.next++
	return port, nil
}

// release lets other clusters have the block.
func (b *portBlock) release() {
	if b.lock != nil {
		b.lock.Close()
		b.lock = nil
	}
}
