package minicluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// A block's file holds the folder of the cluster that has the block, so that the cluster of a killed process is found
// wherever it lies. Behind removeMark it says that the folder goes with the cluster.
const removeMark = "\nremove\n"

// portBlock is a run of ports that this process alone hands out while lock and claim are open.
type portBlock struct {
	lock *os.File
	// claim is a socket with an abstract name, of which a network namespace has one. The lock is not enough: processes in another root have another folder of locks, and the same ports.
	claim net.Listener
	base  int
	next  int
}

// sweep ends the clusters of killed processes: those whose block nobody holds any more.
func sweep() {
	files, err := filepath.Glob(filepath.Join(portLockDir, "*"))
	if err != nil {
		return
	}
	for _, file := range files {
		if lock, err := lockLeft(file); err == nil {
			clearBlock(lock)
			lock.Close()
		}
	}
}

// clearBlock ends the cluster that a block's file, which the caller holds, still names.
func clearBlock(lock *os.File) {
	note, err := io.ReadAll(io.LimitReader(lock, 4096))
	if err != nil || len(note) == 0 {
		return
	}
	dir, remove := strings.CutSuffix(string(note), removeMark)
	// The folder may have been taken over by a living cluster, or be gone while its daemons run on.
	owner, err := lockLeft(filepath.Join(dir, lockName))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		killAll(dir)
		if remove && os.Getenv("GRESIZE_MINICLUSTER_KEEP") == "" {
			os.RemoveAll(dir)
		}
	}
	if err == nil {
		owner.Close()
	}
	lock.Truncate(0)
}

// reservePorts finds a block of which no other cluster and no other program uses a port.
func reservePorts(dir string, removeDir bool) (*portBlock, error) {
	if err := os.MkdirAll(portLockDir, 0o755); err != nil {
		return nil, fmt.Errorf("minicluster: folder for port locks: %w", err)
	}
	for base := firstPort; base+portBlockSize <= lastPort; base += portBlockSize {
		lock, err := os.OpenFile(filepath.Join(portLockDir, strconv.Itoa(base)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("minicluster: lock of a port block: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			clearBlock(lock)
			claim, err := net.Listen("unix", "@gresize-minicluster-"+strconv.Itoa(base))
			switch {
			case err != nil:
			case !allFree(base):
				claim.Close()
			default:
				note := dir
				if removeDir {
					note += removeMark
				}
				block := &portBlock{lock: lock, claim: claim, base: base}
				if _, err := lock.WriteAt([]byte(note), 0); err != nil {
					block.release()
					return nil, fmt.Errorf("minicluster: note in a port block's file: %w", err)
				}
				return block, nil
			}
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
		b.lock.Truncate(0)
		b.lock.Close()
		b.claim.Close()
		b.lock = nil
	}
}
