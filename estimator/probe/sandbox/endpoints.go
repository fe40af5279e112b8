package sandbox

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A read-only mount keeps nobody from connecting to a socket or from writing into a pipe: both are open to whoever may write to the file. In an overlay they are
// other files than those outside, and nobody listens there. In a place that no overlay covers they are covered one by one, as far as they are found.

// Limits on the search: a home has its sockets near the top, and a data set of millions of files has none.
const (
	maxEndpointEntries = 100_000
	maxEndpointMasks   = 1024
	endpointTime       = 3 * time.Second
	endpointsTime      = 4 * time.Second // for all places together
	endpointChunk      = 1024
)

// endpointMask is the empty file that covers them, in the private file system.
const endpointMask = "nothing"

// coverEndpoints covers every socket and every pipe below dst, which shows src as it is. Directories nearer to the top come first. What is left is said in a note.
func (b *builder) coverEndpoints(src, dst string) {
	if err := os.WriteFile(endpointMask, nil, 0o400); err != nil {
		b.note("%s: its sockets and pipes can be reached: %v", src, err)
		return
	}
	if b.endpointsUntil.IsZero() {
		b.endpointsUntil = time.Now().Add(endpointsTime)
	}
	until, entries := time.Now().Add(endpointTime), 0
	if until.After(b.endpointsUntil) {
		until = b.endpointsUntil
	}
	for queue := []string{dst}; len(queue) > 0; queue = queue[1:] {
		dir, err := os.Open(queue[0])
		if err != nil {
			continue // what cannot be listed is closed to the command, too, or nearly so
		}
		for {
			found, err := dir.ReadDir(endpointChunk)
			for _, e := range found {
				path := filepath.Join(queue[0], e.Name())
				switch {
				case e.IsDir():
					queue = append(queue, path)
				case e.Type()&(os.ModeSocket|os.ModeNamedPipe) != 0:
					b.coverEndpoint(src, dst, path)
				}
			}
			entries += len(found)
			if err != nil || entries > maxEndpointEntries || time.Now().After(until) {
				break
			}
		}
		_ = dir.Close()
		if entries > maxEndpointEntries || time.Now().After(until) {
			b.note("%s: sockets and pipes beyond its first %d entries can be reached", src, entries)
			return
		}
	}
}

func (b *builder) coverEndpoint(src, dst, path string) {
	name := src + path[len(dst):]
	if b.endpoints++; b.endpoints > maxEndpointMasks {
		b.note("%s can be reached: more than %d sockets and pipes", name, maxEndpointMasks)
		return
	}
	if err := mount(endpointMask, path, "", unix.MS_BIND, ""); err != nil {
		b.note("%s can be reached: %v", name, err)
	}
}
